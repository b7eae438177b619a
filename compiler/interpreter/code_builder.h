// Builds bytecode: registers, instructions and loops. An integer instruction without effects is
// placed once, in the outermost loop where its operands are known. So most of an index is a sum
// that outer loops have already computed.
//
// This file uses nothing of ir/analysis, because an oracle must not share the bugs that it is meant
// to find. Its intervals and linear forms are the interpreter's own.
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
  // A register whose value depends on memory. Values that are computed from it stay where they are
  // used.
  int NewRegister() { return NewRegister(kHere, kAnything); }
  int Constant(Register value, Range range = kAnything);
  int IntConstant(int64_t value) { return Constant(Register{value}, {value, value}); }
  // The range of the integer in a register.
  Range RangeOf(int reg) const { return range_of_[reg]; }
  Range RangeOf(const Affine& affine) const;
  void SetRange(int reg, Range range) { range_of_[reg] = range; }

  // Appends an instruction and returns its position, for PatchToHere.
  size_t Emit(Instruction instruction);
  // Makes the next instruction the target of the jump at `at`.
  void PatchToHere(size_t at);
  // Appends an instruction whose result is a new register, and returns that register.
  int Fresh(Instruction instruction);
  // Copies any kind of value: dst = 1 ? source : source.
  void Copy(int dst, int source) { Emit({Code::kSelect, 0, dst, IntConstant(1), source, source}); }
  // The result register of an integer instruction without effects. The instruction may be placed in
  // an outer loop, or exist already.
  int Pure(Instruction instruction, std::initializer_list<int> operands, Range range);
  int Materialize(Affine affine);
  // The address of an element. The term of the innermost loop is left to the instruction that
  // accesses the element.
  Address ToAddress(Affine affine);

  // Code emitted between BeginLoop and EndLoop is the loop's body. Returns the register of the loop
  // variable.
  int BeginLoop(int64_t extent);
  void EndLoop(int var, int64_t extent, bool down);

  // Returns the finished program.
  Bytecode Finish(std::vector<ir::BufferRef> buffers) &&;

 private:
  // The level of a value that depends on memory.
  static constexpr int kHere = INT32_MAX;

  struct Level {
    std::vector<Instruction> prologue;  // runs whenever the loop advances, before its body
    std::vector<Instruction> outside;   // code of the enclosing loops up to this one
  };

  int NewRegister(int level, Range range);

  std::vector<Register> initial_;                      // the registers at the start
  std::vector<Instruction> code_;                      // body of the innermost open loop
  std::vector<Level> levels_ = std::vector<Level>(1);  // outside of all loops, then the open loops
  std::vector<int> level_of_;                          // by register
  std::vector<Range> range_of_;                        // by register, for integers
  std::unordered_map<int64_t, int> constants_;         // by bit pattern
  std::map<std::tuple<int, int, int32_t, int32_t, int64_t>, int> pure_;
};

}  // namespace heddle::interpreter
