// Writes products of four warps (wgmma), whose operands the tensor cores read from shared memory.
//
// Four warps make a product of 64 x n sums. Warp w has rows 16 w to 16 w + 15, and of each eight
// columns a thread has the sums that it has in a product of one warp (PTX ISA, wgmma.mma_async,
// register fragments). So the sums of a nest of tensor loops stay where they are. Only the
// instructions that make them differ.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda/launch.h"
#include "compiler/ir/analysis/index.h"
#include "compiler/ir/visit.h"

namespace heddle::codegen {

using namespace ir;

namespace {

constexpr int64_t kPieceElements = 8;  // 16 bytes

// The function h_group of the prelude for one shape. Several launches of a source may define it.
std::string GroupFunction(int64_t columns, DType operand, bool ta, bool tb) {
  const char* type = operand == DType::kF16 ? "f16" : "bf16";
  const std::string name = absl::StrCat("H_GROUP_", columns, "_", type, "_", ta, tb);
  std::string registers, sums;
  for (int64_t r = 0; r < columns / 2; ++r) {
    absl::StrAppend(&registers, r == 0 ? "%" : ", %", r);
    absl::StrAppend(&sums, r == 0 ? "\"+f\"(s[" : ", \"+f\"(s[", r / 4, " * tile",
                    r / 2 % 2 == 0 ? "" : " + half", r % 2 == 0 ? "" : " + column", "])");
  }
  return absl::StrCat(
      "#if !defined(H_HOST) && !defined(", name, ")\n#define ", name, "\n",
      "template <> __device__ __forceinline__ void h_group<", columns, ", h_", type, ", ", ta, ", ",
      tb, ">(float* s, int half, int tile, int column, u64 a, u64 b) {\n",
      "  asm volatile(\"{.reg .pred p; setp.eq.u32 p, 1, 1; wgmma.mma_async.sync.aligned.m64n",
      columns, "k16.f32.", type, ".", type, " {", registers, "}, %", columns / 2, ", %",
      columns / 2 + 1, ", p, 1, 1, ", ta, ", ", tb, ";}\"\n    : ", sums,
      "\n    : \"l\"(a), \"l\"(b));\n}\n#endif\n");
}

// Whether what an iteration of a loop, and the next one, store into the buffer by this statement goes
// to other parts of it than `used`.
bool StoresElsewhere(const Stmt& s, const Buffer* buffer, const Expr& used, Analyzer& analyzer) {
  int64_t parts = 0;
  const auto is_part = [&](const Expr& e, int64_t* modulus) {
    return e->kind == ExprKind::kOp && e->op == Op::kFloorMod && IsConstInt(e->args[1], modulus) &&
           *modulus > 0;
  };
  if (!is_part(used, &parts)) return false;
  bool elsewhere = true;
  VisitStmt(s, [&](const Stmt& node) {
    const Store* store = As<Store>(node);
    if (store == nullptr || store->buffer.get() != buffer) return true;
    int64_t modulus = 0, ahead = 0;
    const Expr& part = store->indices[0];
    const bool known = is_part(part, &modulus) && modulus == parts &&
                       IsConstInt(analyzer.Simplify(part->args[0] - used->args[0]), &ahead);
    // Part k + ahead, and in the next iteration k + 1 + ahead.
    elsewhere &= known && ahead >= 0 && ahead % parts != 0 && (ahead + 1) % parts != 0;
    return true;
  });
  return elsewhere;
}

bool Loads(const Stmt& s, const Buffer* buffer) {
  bool found = false;
  VisitLoads(s, [&](const Expr& load) { found |= load->buffer.get() == buffer; });
  return found;
}

}  // namespace

bool CudaLaunch::MayRunLate(const For& loop, const For& group, const Group& product,
                            Analyzer& analyzer) {
  const Seq* seq = As<Seq>(loop.body);
  if (loop.kind != LoopKind::kSerial || seq == nullptr || As<Barrier>(seq->stmts[0]) == nullptr)
    return false;
  const TensorProduct& p = product.product.product;
  for (size_t k = 1; k < seq->stmts.size(); ++k) {
    const Stmt& s = seq->stmts[k];
    if (As<For>(s) == &group) continue;
    const bool other = Any(s, [&](const Stmt& x) {
      const For* inner = As<For>(x);
      return As<Barrier>(x) != nullptr || WrittenBuffer(x) == p.sums.get() ||
             (inner != nullptr && inner->kind == LoopKind::kTensor);
    });
    if (other || Loads(s, p.sums.get())) return false;
    for (const Expr& load : {p.a, p.b}) {
      if (!StoresElsewhere(s, load->buffer.get(), load->args[0], analyzer)) return false;
    }
  }
  return true;
}

void CudaLaunch::FindGroups(const Stmt& s) {
  // Other threads would have to take part.
  int64_t threads = 1;
  bool other_axis = false;
  Analyzer analyzer;
  VisitStmt(s, [&](const Stmt& node) {
    const For* loop = As<For>(node);
    if (loop == nullptr) return true;
    analyzer.Bind(loop->var.get(), {0, loop->extent - 1});
    if (loop->kind == LoopKind::kThreadX) threads = std::max(threads, loop->extent);
    other_axis |=
        (loop->kind == LoopKind::kThreadY || loop->kind == LoopKind::kThreadZ) && loop->extent > 1;
    return true;
  });
  if (other_axis) return;
  const For* around = nullptr;  // the innermost loop over statements for all threads
  const auto visit = [&](const auto& self, const Stmt& node) -> void {
    const For* loop = As<For>(node);
    if (loop == nullptr) return ForEachChild(node, [&](const Stmt& child) { self(self, child); });
    if (!IsGpuThread(loop->kind)) {
      const For* const outside = std::exchange(around, loop);
      self(self, loop->body);
      around = outside;
      return;
    }
    std::optional<GroupProduct> product;
    if (loop->extent == threads) product = MatchGroupProduct(*loop, analyzer);
    if (!product) return;
    Group group{*std::move(product)};
    const TensorProduct& p = group.product.product;
    const Linear sum = analyzer.SimplifyToLinear(exprs_.Element(*p.sums, p.indices));
    const auto half = Stride(sum, p.rows->var.get()), column = Stride(sum, p.columns->var.get());
    const auto tile = group.product.tiles == nullptr ? std::optional<int64_t>(0)
                                                     : Stride(sum, group.product.tiles->var.get());
    if (!half || !column || !tile || DependsOn(sum, loop->var.get())) return;
    group.half = *half;
    group.column = *column;
    group.tile = *tile;
    group.late = around != nullptr && MayRunLate(*around, *loop, group, analyzer);
    for (const Expr& load : {p.a, p.b}) exprs_.UsePanels(load->buffer.get());
    const Group& kept = groups_[loop] = std::move(group);
    if (kept.late) late_[around] = &kept;
  };
  visit(visit, s);
}

void CudaLaunch::GroupNest(const For& thread, const Group& group) {
  const GroupProduct& g = group.product;
  const TensorProduct& p = g.product;
  const bool ta = g.a_transposed, tb = g.b_transposed;
  functions_ += GroupFunction(g.columns, p.operand, ta, tb);
  const VarRef four = std::make_shared<const Var>(Var{thread.var->name + ".four"});
  group_vars_.push_back(four);
  const std::string name = exprs_.Declare(four->name);
  exprs_.Bind(four.get(), name, thread.extent / kGroupThreads);
  Line(absl::StrCat("const int ", name, " = h_uniform((int)threadIdx.x / ", kGroupThreads, ");"));
  const auto first_of = [&](const std::vector<Expr>& indices) {
    std::vector<Expr> first;
    for (const Expr& index : indices)
      first.push_back(FirstOfGroup(index, g, thread, VarExpr(four)));
    return first;
  };
  // Where the operand of a product lies: its buffer, and the pieces from there.
  const auto operand = [&](const Expr& load, bool transposed) {
    const Buffer& buffer = *load->buffer;
    const int64_t panel_bytes =
        transposed ? buffer.shape[buffer.shape.size() - 2] * kPanelWidth * SizeOf(buffer.dtype)
                   : 16;
    const Expr element = exprs_.analyzer().Simplify(PanelElement(buffer, first_of(load->args)));
    return absl::StrCat("h_operand(", exprs_.NameOf(&buffer), ", ", panel_bytes, ") + (unsigned)(",
                        exprs_.Value(element), ") / ", kPieceElements);
  };
  for (const Expr& load : {p.a, p.b}) WaitForBox(load);
  Line("h_group_begin();");
  for (const For* loop : g.outer) {
    const std::string index = exprs_.Declare(loop->var->name);
    exprs_.Bind(loop->var.get(), index, loop->extent);
    Line("#pragma unroll");
    Open(absl::StrCat("for (int ", index, " = 0; ", index, " < ", loop->extent, "; ++", index,
                      ") "));
  }
  Line(absl::StrCat("h_group<", g.columns, ", ", CudaType(p.operand), ", ", ta, ", ", tb, ">(&",
                    exprs_.Access(*p.sums, first_of(p.indices)), ", ", group.half, ", ", group.tile,
                    ", ", group.column, ", ", operand(p.a, ta), ", ", operand(p.b, tb), ");"));
  for (size_t k = 0; k < g.outer.size(); ++k) Close();
  Line("h_group_commit();");
  if (!group.late) WaitForGroup(group);
}

void CudaLaunch::WaitForGroup(const Group& group) {
  const Buffer& sums = *group.product.product.sums;
  Line("h_group_wait<0>();");
  Line("#pragma unroll");
  Line(absl::StrCat("for (int h_i = 0; h_i < ", sums.NumElements(), "; ++h_i) h_group_keep(",
                    exprs_.NameOf(&sums), "[h_i]);"));
}

}  // namespace heddle::codegen
