// The compiler from programs to the interpreter's bytecode: what interpreter_compile.cc (values,
// memory, statements) and interpreter_integers.cc (registers, indices) share. Deliberately uses
// none of the simplifier: the oracle must not share the bugs it is meant to find.
#pragma once

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/interpreter/bytecode.h"
#include "compiler/ir/ir.h"

namespace heddle::interpreter {

// Level of a value that depends on memory: computed where it is used, never moved.
inline constexpr int kHere = INT32_MAX;

struct Range {
  __int128 min = 0, max = 0;
};
inline constexpr __int128 kHuge = static_cast<__int128>(1) << 100;  // stands for "unknown"

// constant + sum of register * coefficient.
struct Affine {
  int64_t constant = 0;
  std::vector<std::pair<int, int64_t>> terms;

  void Add(const Affine& other, int64_t factor) {
    constant += other.constant * factor;
    for (const auto& [reg, c] : other.terms) {
      auto it = std::find_if(terms.begin(), terms.end(),
                             [r = reg](const auto& t) { return t.first == r; });
      if (it == terms.end()) {
        terms.emplace_back(reg, c * factor);
      } else if ((it->second += c * factor) == 0) {
        terms.erase(it);
      }
    }
  }
};

class BytecodeCompiler {
 public:
  BytecodeCompiler(const ir::Program& program, const InterpreterOptions& options)
      : program_(program), options_(options) {}

  absl::StatusOr<Bytecode> Run();

 private:
  // One loop: instructions that run whenever it advances, before its body.
  struct LoopLevel {
    std::vector<Instruction> prologue;
  };
  struct Address {
    int base = 0, var = 0;
    int64_t coefficient = 0;
  };

  // ---- Registers and instructions ----
  int NewRegister(int level, Range range);
  int Constant(Register value, Range range);
  int IntConstant(int64_t value) { return Constant(Register{value}, {value, value}); }
  int CurrentLevel() const { return static_cast<int>(levels_.size()) - 1; }
  size_t Emit(Instruction instruction);
  void PatchToHere(size_t at);
  // A pure integer instruction, placed at the outermost level that knows its operands, and only
  // once.
  int Pure(Instruction instruction, std::initializer_list<int> operands, Range range);

  // ---- Integer expressions ----
  Range RangeOf(const Affine& affine) const;
  absl::StatusOr<Affine> ToAffine(const ir::Expr& e);
  int Materialize(Affine affine);
  absl::StatusOr<int> IntRegister(const ir::Expr& e);
  // Splits off the term of the innermost loop, which the access adds by itself.
  Address ToAddress(Affine affine);
  // Arithmetic on loop variables that cannot fail, so that it may be computed earlier than written,
  // or in vain.
  static bool IsPure(const ir::Expr& e);
  static Code IntCode(ir::Op op);
  // Integer or bool operator whose operands may be evaluated eagerly.
  absl::StatusOr<int> IntOp(const ir::Expr& e);

  // ---- Values ----
  // Nodes that occur several times in one expression are computed once, as long as control flow
  // allows it.
  absl::StatusOr<int> Value(const ir::Expr& e);
  absl::StatusOr<int> NewValue(const ir::Expr& e);
  int Fresh(Instruction instruction);
  absl::StatusOr<int> FloatOp(const ir::Expr& e);
  // A register copy: dst = 1 ? source : source keeps every kind of value intact.
  void Copy(int dst, int source) { Emit({Code::kSelect, 0, dst, IntConstant(1), source, source}); }
  absl::StatusOr<int> LazyValue(const ir::Expr& e);

  // ---- Memory ----
  int AddBuffer(const ir::BufferRef& buffer);
  // Row-major element number. Indices that loop ranges alone do not keep inside the shape are
  // checked as the program runs.
  absl::StatusOr<Affine> Element(const ir::Buffer& buffer, const std::vector<ir::Expr>& indices);
  absl::StatusOr<int> LoadValue(const ir::Expr& e);
  int LoadElement(const ir::Buffer& buffer, const Address& address);
  void StoreElement(const ir::Buffer& buffer, const Address& address, int value);

  // ---- Statements ----
  absl::Status Visit(const ir::Stmt& s);
  absl::Status VisitAny(const ir::Stmt& s);
  absl::Status VisitFor(const ir::For& loop);
  absl::Status VisitStore(const ir::Store& store);
  absl::Status VisitBlock(const ir::Block& block);
  absl::Status VisitReduction(const ir::Block& block, Affine reduce_sum);
  int Combine(ir::Op op, ir::DType dtype, int a, int b);

  const ir::Program& program_;
  const InterpreterOptions& options_;
  Bytecode out_;
  size_t num_inputs_ = 0;
  int gpu_loops_ = 0;              // around the current statement
  int thread_ = -1;                // register of the threadIdx.x loop around it, -1: none
  bool in_tensor_ = false;         // a tensor loop is around it
  bool in_fetch_ = false;          // it is part of a fetch
  std::vector<Instruction> code_;  // of the innermost open loop's body
  std::vector<LoopLevel> levels_;
  std::vector<int> level_of_;                   // by register
  std::vector<Range> range_of_;                 // by register, of integers
  std::unordered_map<int64_t, int> constants_;  // by bit pattern
  std::map<std::tuple<int, int, int32_t, int32_t, int64_t>, int> pure_;
  std::unordered_map<const ir::Var*, Affine> vars_;  // loop variables and iterators in scope
  std::unordered_map<const ir::Buffer*, int> buffer_ids_;
  std::vector<std::pair<const ir::ExprNode*, int>> computed_;
};

}  // namespace heddle::interpreter
