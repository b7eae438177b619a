// Writes products for tensor cores. The registers of a warp hold the operands as follows (PTX ISA,
// mma.m16n8k16 and mma.m16n8k8), with group = warp lane / 4, quad = warp lane % 4, and P elements
// in a register of a product over K terms:
//
//   a, register r = 0..3: row group + 8 * (r % 2), P terms from (r / 2) * K/2 + quad * P
//   b, register r = 0..1: column group, P terms from r * K/2 + quad * P
//
// The program gives the address of an element as a function of its row, column and term. So the
// address of an operand is that of its load, with other values for the thread and the loop
// variables.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/codegen/cuda/launch.h"
#include "compiler/ir/analysis/tensor_product.h"
#include "compiler/ir/visit.h"

namespace heddle::codegen {

using namespace ir;

namespace {

constexpr int64_t kPiece = 16;  // bytes in one row of a matrix that ldmatrix loads

bool UsesAny(const Expr& load, const Var* var) {
  return std::any_of(load->args.begin(), load->args.end(),
                     [&](const Expr& index) { return UsesVar(index, var); });
}

// Finds the unrolled loops, each directly inside the previous one, around a tensor loop. False if
// there is no such nest.
bool ChainOf(const For& top, std::vector<const For*>* outer, const For** tensor) {
  const For* loop = &top;
  while (loop != nullptr && loop->kind == LoopKind::kUnrolled) {
    outer->push_back(loop);
    loop = As<For>(loop->body);
  }
  *tensor = loop;
  return loop != nullptr && loop->kind == LoopKind::kTensor;
}

// The two loads of a lowered tensor nest, in any order.
std::vector<Expr> LoadsOf(const For& tensor) {
  std::vector<Expr> loads;
  VisitStmtExprs(tensor.body, [&](const Expr& e) {
    VisitExpr(e, [&](const Expr& x) {
      if (x->kind == ExprKind::kLoad && x->buffer->scope != Scope::kLocal) loads.push_back(x);
    });
  });
  return loads;
}

// Whether no loop moves both operands. A loop that does stays around the whole nest, because the
// operands of its iterations need not be in registers together.
bool MovesOne(const std::vector<const For*>& outer, const std::vector<Expr>& loads) {
  return std::all_of(outer.begin(), outer.end(), [&](const For* loop) {
    return std::count_if(loads.begin(), loads.end(),
                         [&](const Expr& load) { return UsesAny(load, loop->var.get()); }) <= 1;
  });
}

}  // namespace

int64_t CudaLaunch::TensorWords(const Stmt& s) const {
  int64_t most = 0;
  VisitStmt(s, [&](const Stmt& node) {
    const For* loop = As<For>(node);
    if (groups_.count(loop)) return false;  // its operands stay in memory
    std::vector<const For*> outer;
    const For* tensor = nullptr;
    if (loop == nullptr || !ChainOf(*loop, &outer, &tensor)) return true;
    const std::vector<Expr> loads = LoadsOf(*tensor);
    if (!MovesOne(outer, loads)) return true;
    int64_t words = 0;
    for (const Expr& load : loads) {
      int64_t own = UsesAny(load, tensor->var.get()) ? 4 : 2;
      for (const For* around : outer) own *= UsesAny(load, around->var.get()) ? around->extent : 1;
      words += own;
    }
    most = std::max(most, words);
    return false;
  });
  return most;
}

namespace {

// The strides of an operand's element index, if the index is linear in the position in a fragment.
struct Strides {
  bool linear = true;
  int64_t major = 0;  // from group to group of a, or from column to column of b
  int64_t half = 0;   // to the other eight rows of a
  int64_t term = 0;
  int64_t rest = 0;  // a divisor of all other strides and of the constant

  // RowsAt: terms are contiguous, and each run of terms starts at a multiple of n. ColumnsAt: the
  // same for rows or columns instead of terms.
  bool RowsAt(int64_t n) const {
    return linear && term == 1 && std::gcd(std::gcd(major, half), rest) % n == 0;
  }
  bool ColumnsAt(int64_t n) const {
    return linear && major == 1 && std::gcd(std::gcd(term, half), rest) % n == 0;
  }
};

}  // namespace

// Writes one nest. Operand a depends on the row, operand b on the column.
class TensorNestEmitter {
 public:
  TensorNestEmitter(CudaLaunch& launch, std::vector<const For*> outer, TensorProduct product)
      : launch_(launch),
        exprs_(launch.exprs_),
        thread_(*launch.thread_),
        outer_(std::move(outer)),
        p_(std::move(product)),
        row_(kPiece / SizeOf(p_.operand)),
        numbers_(4 / SizeOf(p_.operand)),
        a_(absl::StrCat("h_a", launch.operands_)),
        b_(absl::StrCat("h_b", launch.operands_++)) {}

  void Emit() {
    launch_.Open("");
    launch_.Line(
        "const int h_lane = (int)(threadIdx.x & 31u), h_first = (int)threadIdx.x - h_lane;");
    launch_.Line(
        absl::StrCat("unsigned ", a_, "[", Count(p_.a), "][4], ", b_, "[", Count(p_.b), "][2];"));
    OpenLoops(p_.a.get());
    LoadA(absl::StrCat(a_, "[", Number(p_.a), "]"));
    CloseLoops(p_.a.get());
    OpenLoops(p_.b.get());
    LoadB(absl::StrCat(b_, "[", Number(p_.b), "]"));
    CloseLoops(p_.b.get());
    OpenLoops(nullptr);
    Multiply();
    CloseLoops(nullptr);
    launch_.Close();
  }

 private:
  // Whether the loop moves the operand `load`. True for every loop if `load` is null.
  bool Around(const For* loop, const ExprNode* load) const {
    return load == nullptr || std::any_of(load->args.begin(), load->args.end(), [&](const Expr& e) {
             return UsesVar(e, loop->var.get());
           });
  }
  void OpenLoops(const ExprNode* load) {
    for (const For* loop : outer_) {
      if (!Around(loop, load)) continue;
      const std::string name = exprs_.Declare(loop->var->name);
      exprs_.Bind(loop->var.get(), name, loop->extent);
      launch_.Line("#pragma unroll");
      launch_.Open(
          absl::StrCat("for (int ", name, " = 0; ", name, " < ", loop->extent, "; ++", name, ") "));
    }
  }
  void CloseLoops(const ExprNode* load) {
    for (const For* loop : outer_) {
      if (Around(loop, load)) launch_.Close();
    }
  }
  // Count: how many fragments of the operand the nest holds. Number: the index of the current one
  // inside the loops.
  int64_t Count(const Expr& load) const {
    int64_t count = 1;
    for (const For* loop : outer_) count *= Around(loop, load.get()) ? loop->extent : 1;
    return count;
  }
  std::string Number(const Expr& load) {
    std::string text = "0";
    for (const For* loop : outer_) {
      if (!Around(loop, load.get())) continue;
      text = absl::StrCat("(", text, ") * ", loop->extent, " + ", exprs_.Value(VarExpr(loop->var)));
    }
    return text;
  }

  // The operand's element for the given thread, row, column and term.
  std::string Element(const Expr& load, const std::string& thread, const std::string& row,
                      const std::string& column, const std::string& term) {
    exprs_.Bind(thread_.var.get(), thread, thread_.extent);
    exprs_.Bind(p_.rows->var.get(), row, p_.rows->extent);
    exprs_.Bind(p_.columns->var.get(), column, p_.columns->extent);
    exprs_.Bind(p_.terms->var.get(), term, p_.terms->extent);
    std::string element = exprs_.Access(*load->buffer, load->args);
    exprs_.Bind(thread_.var.get(), launch_.thread_name_, thread_.extent);
    return element;
  }

  Strides StridesOf(const Expr& load) {
    Analyzer& analyzer = exprs_.analyzer();
    const auto position = analyzer.Mark();
    for (const For* loop : {p_.rows, p_.columns, p_.terms})
      analyzer.Bind(loop->var.get(), {0, loop->extent - 1});
    const ThreadParts parts = BindThreadParts(thread_, analyzer);
    const Linear l = analyzer.SimplifyToLinear(
        InThreadParts(exprs_.Element(*load->buffer, load->args), thread_, parts));
    analyzer.Restore(position);
    Strides s;
    s.rest = l.constant;
    int64_t quad = 0, column = 0;
    const std::pair<const Var*, int64_t*> own[] = {{p_.terms->var.get(), &s.term},
                                                   {p_.rows->var.get(), &s.half},
                                                   {p_.columns->var.get(), &column},
                                                   {parts.group.get(), &s.major},
                                                   {parts.quad.get(), &quad}};
    for (const auto& [term, factor] : l.terms) {
      bool other = true;
      for (const auto& [var, stride] : own) {
        const bool plain = term->kind == ExprKind::kVar && term->var.get() == var;
        if (plain) *stride = factor;
        other &= !plain;
        s.linear &= plain || !UsesVar(term, var);
      }
      if (other) s.rest = std::gcd(s.rest, factor);
    }
    // The column of b is 2 * quad + column.
    s.linear &= quad == 2 * column;
    if (column != 0) s.major = column;
    return s;
  }

  // One register of the operand, packed from its elements; `first` is the first term.
  std::string Gather(const Expr& load, const Strides& s, const std::string& thread,
                     const std::string& row, const std::string& column, int64_t first) {
    const auto at = [&](int64_t n) {
      return Element(load, thread, row, column,
                     absl::StrCat("(h_lane % 4 * ", numbers_, " + ", first + n, ")"));
    };
    if (numbers_ == 1) return absl::StrCat("__float_as_uint(", at(0), ")");
    if (s.RowsAt(numbers_)) return absl::StrCat("h_word(&", at(0), ")");
    return absl::StrCat("h_pair(", at(0), ".x, ", at(1), ".x)");
  }

  void LoadA(const std::string& own) {
    const Strides s = StridesOf(p_.a);
    const bool shared = p_.a->buffer->scope == Scope::kShared;
    if (shared && s.RowsAt(row_)) {
      launch_.Line(absl::StrCat("h_matrices4(", own, ", &",
                                Element(p_.a, "(h_first + h_lane % 8 * 4)", "(h_lane / 8 % 2)", "0",
                                        absl::StrCat("(h_lane / 16 * ", row_, ")")),
                                ");"));
    } else if (shared && numbers_ == 2 && s.ColumnsAt(row_)) {
      launch_.Line(absl::StrCat(
          "h_matrices4_trans(", own, ", &",
          Element(p_.a, "h_first", "(h_lane / 8 % 2)", "0", "(h_lane / 16 * 8 + h_lane % 8)"),
          ");"));
    } else {
      for (int64_t r = 0; r < 4; ++r) {
        launch_.Line(absl::StrCat(own, "[", r, "] = ",
                                  Gather(p_.a, s, launch_.thread_name_, std::to_string(r % 2), "0",
                                         r / 2 * (p_.terms->extent / 2)),
                                  ";"));
      }
    }
    Round(own, 4);
  }

  void LoadB(const std::string& own) {
    const Strides s = StridesOf(p_.b);
    const bool shared = p_.b->buffer->scope == Scope::kShared;
    if (shared && s.RowsAt(row_)) {
      launch_.Line(absl::StrCat("h_matrices2(", own, ", &",
                                Element(p_.b, "(h_first + h_lane % 8 / 2)", "0", "(h_lane % 2)",
                                        absl::StrCat("(h_lane / 8 % 2 * ", row_, ")")),
                                ");"));
    } else if (shared && numbers_ == 2 && s.ColumnsAt(row_)) {
      launch_.Line(absl::StrCat("h_matrices2_trans(", own, ", &",
                                Element(p_.b, "h_first", "0", "0", "(h_lane % 16)"), ");"));
    } else {
      for (int64_t r = 0; r < 2; ++r) {
        launch_.Line(absl::StrCat(own, "[", r, "] = ",
                                  Gather(p_.b, s, "(h_first + h_lane / 8)", "0", "(h_lane / 4 % 2)",
                                         r * (p_.terms->extent / 2)),
                                  ";"));
      }
    }
    Round(own, 2);
  }

  void Round(const std::string& own, int registers) {
    if (p_.operand != DType::kF32) return;
    for (int r = 0; r < registers; ++r)
      launch_.Line(absl::StrCat(own, "[", r, "] = h_tf32(", own, "[", r, "]);"));
  }

  void Multiply() {
    std::string sums;
    for (int r = 0; r < 4; ++r) {
      exprs_.Bind(p_.rows->var.get(), std::to_string(r / 2), p_.rows->extent);
      exprs_.Bind(p_.columns->var.get(), std::to_string(r % 2), p_.columns->extent);
      absl::StrAppend(&sums, exprs_.Access(*p_.sums, p_.indices), ", ");
    }
    const char* type = p_.operand == DType::kF16 ? "f16" : "bf16";
    launch_.Line(absl::StrCat("h_product_", p_.operand == DType::kF32 ? "tf32" : type, "(", sums,
                              a_, "[", Number(p_.a), "], ", b_, "[", Number(p_.b), "]);"));
  }

  CudaLaunch& launch_;
  CudaExpressions& exprs_;
  const For& thread_;
  const std::vector<const For*> outer_;
  const TensorProduct p_;
  const int64_t row_;      // elements in one row of a matrix that ldmatrix loads
  const int64_t numbers_;  // elements in a register
  const std::string a_, b_;
};

absl::StatusOr<bool> CudaLaunch::TensorNest(const For& loop) {
  std::vector<const For*> outer;
  const For* tensor = nullptr;
  if (!ChainOf(loop, &outer, &tensor) || !MovesOne(outer, LoadsOf(*tensor))) return false;
  if (thread_ == nullptr || extents_[4] * extents_[5] > 1)
    return absl::UnimplementedError("tensor cores beside threads along another axis than x");
  for (const For* around : outer)
    exprs_.analyzer().Bind(around->var.get(), {0, around->extent - 1});
  // By now, the sums buffer holds only one thread's share. An earlier pass has verified that it is
  // spread over the threads as ir.h says.
  HEDDLE_ASSIGN_OR_RETURN(TensorProduct product,
                          MatchTensorProduct(*tensor, *thread_, exprs_.analyzer()));
  TensorNestEmitter(*this, std::move(outer), std::move(product)).Emit();
  return true;
}

}  // namespace heddle::codegen
