#include "compiler/pass/widen_copies.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "compiler/ir/analysis/index.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/fresh_names.h"

namespace heddle::pass {

namespace {

using namespace ir;

// The loops of a nest from outside in, the one store inside, and what it reads.
struct Copy {
  std::vector<const For*> loops;
  const Store* store = nullptr;
  const ExprNode* load = nullptr;  // null: a constant is stored
  // The condition of the load, with a constant elsewhere. Null: always.
  Expr condition;
};

bool IsConstant(const Expr& e) { return e->kind == ExprKind::kInt || e->kind == ExprKind::kFloat; }

std::optional<Copy> AsCopy(const For& outermost) {
  Copy copy;
  const For* loop = &outermost;
  while (loop->kind == LoopKind::kSerial) {
    copy.loops.push_back(loop);
    copy.store = As<Store>(loop->body);
    if (copy.store != nullptr) break;
    loop = As<For>(loop->body);
    if (loop == nullptr) return std::nullopt;
  }
  if (copy.store == nullptr) return std::nullopt;
  Expr value = copy.store->value;
  if (value->kind == ExprKind::kOp && value->op == Op::kSelect && IsConstant(value->args[2])) {
    copy.condition = value->args[0];
    value = value->args[1];
  }
  if (value->dtype == DType::kBool) return std::nullopt;
  if (IsConstant(value) && copy.condition == nullptr) return copy;
  if (value->kind != ExprKind::kLoad) return std::nullopt;
  copy.load = value.get();
  // What is stored must not be read: by the value, its condition or an index.
  bool reads = false;
  VisitLoads(loop->body, [&](const Expr& x) { reads |= x->buffer == copy.store->buffer; });
  return reads ? std::nullopt : std::optional(copy);
}

class CopyWidener {
 public:
  CopyWidener(const Program& program, int64_t line_bytes)
      : names_(program), line_bytes_(line_bytes) {}

  Stmt Run(const Stmt& s) {
    auto* loop = As<For>(s);
    if (loop && loop->kind == LoopKind::kVectorized) return s;
    if (loop) {
      if (const std::optional<Copy> copy = AsCopy(*loop)) return Widened(*copy, s);
      ranges_[loop->var.get()] = {0, loop->extent - 1};
    }
    return MapChildren(s, [&](const Stmt& child) { return Run(child); });
  }

 private:
  // Whether a step of the variable moves the access by `elements`.
  bool Moves(const Buffer& buffer, const std::vector<Expr>& indices, const Var* var,
             int64_t elements) const {
    return Stride(LinearIndex(buffer, indices, ranges_), var) == elements;
  }

  bool AllMove(const Copy& copy, const Var* var, int64_t elements) const {
    return Moves(*copy.store->buffer, copy.store->indices, var, elements) &&
           (copy.load == nullptr || Moves(*copy.load->buffer, copy.load->args, var, elements)) &&
           (copy.condition == nullptr || !UsesVar(copy.condition, var));
  }

  Stmt Widened(const Copy& copy, const Stmt& s) {
    for (const For* loop : copy.loops) ranges_[loop->var.get()] = {0, loop->extent - 1};
    size_t first = copy.loops.size();
    int64_t elements = 1;
    while (first > 0 && (copy.loops[first - 1]->extent == 1 ||
                         AllMove(copy, copy.loops[first - 1]->var.get(), elements)))
      elements *= copy.loops[--first]->extent;
    if (elements < kMinWidenedElements) return s;
    const std::vector<const For*> flat(copy.loops.begin() + static_cast<int64_t>(first),
                                       copy.loops.end());
    const int64_t lanes =
        std::max<int64_t>(line_bytes_ / SizeOf(copy.store->buffer->dtype), kMinWidenedElements);
    std::vector<Stmt> parts;
    if (elements >= lanes) parts.push_back(Vectors(copy, flat, 0, elements / lanes, lanes));
    if (const int64_t left = elements % lanes; left > 0)
      parts.push_back(Vectors(copy, flat, elements - left, 1, left));
    if (std::any_of(parts.begin(), parts.end(), [](const Stmt& part) { return part == nullptr; }))
      return s;
    Stmt result = MakeSeq(std::move(parts));
    for (; first > 0; --first) {
      const For& loop = *copy.loops[first - 1];
      result = MakeStmt(For{loop.var, loop.extent, loop.kind, std::move(result)});
    }
    return result;
  }

  // `count` vectors that begin at element `begin` of the flattened loops `flat`. Null if the
  // analysis cannot prove that the lanes of each are contiguous.
  Stmt Vectors(const Copy& copy, const std::vector<const For*>& flat, int64_t begin, int64_t count,
               int64_t lanes) {
    const std::string& name = flat[0]->var->name;
    const auto vector = std::make_shared<const Var>(Var{names_.Make(name)});
    const auto lane = std::make_shared<const Var>(Var{names_.Make(name)});
    ranges_[vector.get()] = {0, count - 1};
    ranges_[lane.get()] = {0, lanes - 1};
    const Expr element = VarExpr(vector) * Int(lanes) + VarExpr(lane) + Int(begin);
    Substitution at;
    int64_t below = 1;  // elements of the loops inside
    for (size_t k = flat.size(); k > 0; --k) {
      const For& loop = *flat[k - 1];
      const Expr number = FloorDiv(element, Int(below));
      at[loop.var.get()] = k == 1 ? number : FloorMod(number, Int(loop.extent));
      below *= loop.extent;
    }
    Stmt body = Substitute(MakeStmt(*copy.store), at);
    const For one{lane, lanes, LoopKind::kSerial, body};
    const Copy moved = *AsCopy(one);  // substitution does not change the form of a copy
    if ((lanes > 1 && !AllMove(moved, lane.get(), 1)) ||
        (count > 1 && !AllMove(moved, vector.get(), lanes)))
      return nullptr;
    body = MakeStmt(For{lane, lanes, LoopKind::kVectorized, std::move(body)});
    return MakeStmt(For{vector, count, LoopKind::kSerial, std::move(body)});
  }

  FreshNames names_;
  int64_t line_bytes_;
  Ranges ranges_;
};

}  // namespace

Program WidenCopies(const Program& program, const machine::TargetInfo& target) {
  Program result = program;
  result.body =
      ir::Simplify(CopyWidener(program, target.line_bytes).Run(program.body), /*keep_loops=*/false);
  return result;
}

}  // namespace heddle::pass
