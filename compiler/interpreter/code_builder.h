// Builds bytecode: registers, instructions and loops. An integer instruction without effects is
// placed once, at the outermost loop that knows its operands, so that indices are sums that the
// outer loops have computed already.
//
// Nothing of ir/analysis is used here, because an oracle must not share the bugs that it is meant
// to find: these intervals and linear forms are the interpreter's own.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/interpreter/bytecode.h"

namespace heddle::interpreter {

struct Range {
  __int128 min = 0, max = 0;
};
inline constexpr __int128 kHuge = static_cast<__int128>(1) << 100;  // stands for "unknown"
inline constexpr Range kAnything = {-kHuge, kHuge};

// constant + sum of register * coefficient.
struct Affine {
  int64_t constant = 0;
  std::vector<std::pair<int, int64_t>> terms;

  void Add(const Affine& other, int64_t factor);
};

// The element base + var * coefficient; base and var are registers.
struct Address {
  int base = 0, var = 0;
  int64_t coefficient = 0;
};

class CodeBuilder {
 public:
  // A register whose value depends on memory. What is computed from it stays where it is used.
  int NewRegister() { return NewRegister(kHere, kAnything); }
  int Constant(Register value, Range range = kAnything);
  int IntConstant(int64_t value) { return Constant(Register{value}, {value, value}); }
  // What the integer in a register can be.
  Range RangeOf(int reg) const { return range_of_[reg]; }
  Range RangeOf(const Affine& affine) const;
  void SetRange(int reg, Range range) { range_of_[reg] = range; }

  // Appends an instruction; returns its place, for PatchToHere.
  size_t Emit(Instruction instruction);
  // Lets the jump at `at` end here.
  void PatchToHere(size_t at);
  // Appends an instruction whose result is a new register; returns that.
  int Fresh(Instruction instruction);
  // Copies any kind of value: dst = 1 ? source : source.
  void Copy(int dst, int source) { Emit({Code::kSelect, 0, dst, IntConstant(1), source, source}); }
  // The register of an integer instruction without effects, wherever it is placed.
  int Pure(Instruction instruction, std::initializer_list<int> operands, Range range);
  int Materialize(Affine affine);
  // Leaves the term of the innermost loop to the instruction that accesses the element.
  Address ToAddress(Affine affine);

  // What is emitted between the two is the loop's body. Returns the register of the loop variable.
  int BeginLoop(int64_t extent);
  void EndLoop(int var, int64_t extent, bool down);

  // The program so far.
  Bytecode Finish(std::vector<ir::BufferRef> buffers) &&;

 private:
  // Level of a value that depends on memory.
  static constexpr int kHere = INT32_MAX;

  struct Level {
    std::vector<Instruction> prologue;  // runs whenever the loop advances, before its body
    std::vector<Instruction> outside;   // code of the loops around, up to this one
  };

  int NewRegister(int level, Range range);

  std::vector<Register> initial_;                      // the register file at the start
  std::vector<Instruction> code_;                      // of the innermost open loop's body
  std::vector<Level> levels_ = std::vector<Level>(1);  // outside all loops, then the open loops
  std::vector<int> level_of_;                          // by register
  std::vector<Range> range_of_;                        // by register, of integers
  std::unordered_map<int64_t, int> constants_;         // by bit pattern
  std::map<std::tuple<int, int, int32_t, int32_t, int64_t>, int> pure_;
};

}  // namespace heddle::interpreter
