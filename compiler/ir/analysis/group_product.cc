#include "compiler/ir/analysis/group_product.h"

#include <algorithm>
#include <memory>

#include "compiler/ir/analysis/index.h"
#include "compiler/ir/visit.h"

namespace heddle::ir {

namespace {

// A variable and the factor with which an index has to contain it.
struct Part {
  const Var* var;
  int64_t factor;
};

// Whether the index contains each of the parts, and apart from them only multiples of `unit` that do
// not depend on `lanes`.
bool IsMadeOf(const Linear& index, const std::vector<Part>& parts, int64_t unit,
              const std::vector<const Var*>& lanes) {
  for (const Part& part : parts) {
    if (Stride(index, part.var) != part.factor) return false;
  }
  if (index.constant % unit != 0) return false;
  return std::all_of(index.terms.begin(), index.terms.end(), [&](const auto& term) {
    const bool known = std::any_of(parts.begin(), parts.end(), [&](const Part& part) {
      return term.first->kind == ExprKind::kVar && term.first->var.get() == part.var;
    });
    if (known) return true;
    return term.second % unit == 0 && std::none_of(lanes.begin(), lanes.end(), [&](const Var* var) {
             return UsesVar(term.first, var);
           });
  });
}

class Matcher {
 public:
  Matcher(const For& thread, Analyzer& analyzer) : thread_(thread), analyzer_(analyzer) {}

  std::optional<GroupProduct> Run() {
    if (thread_.kind != LoopKind::kThreadX || thread_.extent % kGroupThreads != 0)
      return std::nullopt;
    std::vector<const For*> loops;
    const For* loop = As<For>(thread_.body);
    while (loop && (loop->kind == LoopKind::kSerial || loop->kind == LoopKind::kUnrolled)) {
      loops.push_back(loop);
      loop = As<For>(loop->body);
    }
    if (loop == nullptr || loop->kind != LoopKind::kTensor) return std::nullopt;
    const auto position = analyzer_.Mark();
    for (const For* around : loops) analyzer_.Bind(around->var.get(), {0, around->extent - 1});
    absl::StatusOr<TensorProduct> product = MatchTensorProduct(*loop, thread_, analyzer_);
    std::optional<GroupProduct> found;
    if (product.ok() && IsHalf(product->operand)) {
      BindParts(*product);
      found = Match(*std::move(product), loops);
    }
    analyzer_.Restore(position);
    return found;
  }

 private:
  void BindParts(const TensorProduct& p) {
    const auto bind = [&](const char* name, int64_t extent) {
      VarRef var = std::make_shared<const Var>(Var{thread_.var->name + name});
      analyzer_.Bind(var.get(), {0, extent - 1});
      return var;
    };
    group_ = bind(".four", thread_.extent / kGroupThreads);
    warp_ = bind(".warp", kGroupWarps);
    row_ = bind(".row", 8);
    quad_ = bind(".quad", 4);
    for (const For* inner : {p.rows, p.columns, p.terms})
      analyzer_.Bind(inner->var.get(), {0, inner->extent - 1});
    lanes_ = {warp_.get(),       row_.get(),           quad_.get(),
              p.rows->var.get(), p.columns->var.get(), p.terms->var.get()};
  }

  std::optional<GroupProduct> Match(TensorProduct product, const std::vector<const For*>& loops) {
    if (!HasPanels(*product.a->buffer) || !HasPanels(*product.b->buffer)) return std::nullopt;
    const std::vector<Linear> a = Indices(product.a), b = Indices(product.b);
    GroupProduct result;
    const std::vector<Part> terms = {{product.terms->var.get(), 1}};
    const std::vector<Part> rows = {
        {warp_.get(), kTensorRows}, {product.rows->var.get(), 8}, {row_.get(), 1}};
    std::vector<Part> columns = {{quad_.get(), 2}, {product.columns->var.get(), 1}};
    for (const For* loop : loops) {
      const Var* var = loop->var.get();
      const bool tiles = result.tiles == nullptr && loop->extent > 1 && !Moves(a, var) &&
                         (Stride(b.back(), var) == kTensorColumns) +
                                 (Stride(b[b.size() - 2], var) == kTensorColumns) ==
                             1;
      if (!tiles) {
        result.outer.push_back(loop);
        continue;
      }
      result.tiles = loop;
      result.columns = kTensorColumns * loop->extent;
      columns.push_back({var, kTensorColumns});
      lanes_.push_back(var);
    }
    if (result.columns > kMaxGroupColumns) return std::nullopt;
    if (!IsOperand(a, rows, terms, &result.a_transposed) ||
        !IsOperand(b, columns, terms, &result.b_transposed)) {
      return std::nullopt;
    }
    // Columns that are neighbours in memory fill panels.
    if (result.b_transposed && result.columns % kPanelWidth != 0) return std::nullopt;
    result.product = std::move(product);
    return result;
  }

  std::vector<Linear> Indices(const Expr& load) {
    const Expr thread = VarExpr(group_) * Int(kGroupThreads) + VarExpr(warp_) * Int(kWarpThreads) +
                        VarExpr(row_) * Int(4) + VarExpr(quad_);
    std::vector<Linear> indices;
    for (const Expr& index : load->args)
      indices.push_back(
          analyzer_.SimplifyToLinear(Substitute(index, {{thread_.var.get(), thread}})));
    return indices;
  }
  static bool Moves(const std::vector<Linear>& indices, const Var* var) {
    return std::any_of(indices.begin(), indices.end(),
                       [&](const Linear& index) { return DependsOn(index, var); });
  }

  // Whether the last two indices are `own` (rows or columns of the product) and terms, in any order.
  bool IsOperand(const std::vector<Linear>& indices, const std::vector<Part>& own,
                 const std::vector<Part>& terms, bool* transposed) const {
    for (size_t d = 0; d + 2 < indices.size(); ++d) {
      if (!IsMadeOf(indices[d], {}, 1, lanes_)) return false;
    }
    const Linear &last = indices.back(), &before = indices[indices.size() - 2];
    const int64_t step = TensorTerms(DType::kF16);
    *transposed = IsMadeOf(last, own, kPanelWidth, lanes_);
    if (*transposed) return IsMadeOf(before, terms, step, lanes_);
    return IsMadeOf(last, terms, step, lanes_) && IsMadeOf(before, own, kPanelRows, lanes_);
  }

  const For& thread_;
  Analyzer& analyzer_;
  VarRef group_, warp_, row_, quad_;
  std::vector<const Var*> lanes_;  // what one product is made of
};

}  // namespace

bool HasPanels(const Buffer& buffer) {
  const std::vector<int64_t>& shape = buffer.shape;
  return buffer.scope == Scope::kShared && IsHalf(buffer.dtype) && shape.size() >= 2 &&
         shape.back() % kPanelWidth == 0 && shape[shape.size() - 2] % kPanelRows == 0;
}

Expr PanelElement(const Buffer& buffer, const std::vector<Expr>& indices) {
  const size_t last = indices.size() - 1;
  Expr panel = Int(0);
  for (size_t d = 0; d + 1 < last; ++d) panel = panel * Int(buffer.shape[d]) + indices[d];
  const int64_t panels = buffer.shape[last] / kPanelWidth;
  panel = panel * Int(panels);
  Expr place = indices[last];
  if (panels > 1) {
    panel = panel + FloorDiv(place, Int(kPanelWidth));
    place = FloorMod(place, Int(kPanelWidth));
  }
  return (panel * Int(buffer.shape[last - 1]) + indices[last - 1]) * Int(kPanelWidth) + place;
}

std::optional<GroupProduct> MatchGroupProduct(const For& thread, Analyzer& analyzer) {
  return Matcher(thread, analyzer).Run();
}

Expr FirstOfGroup(const Expr& index, const GroupProduct& product, const For& thread,
                  const Expr& group) {
  Substitution map{{thread.var.get(), group * Int(kGroupThreads)}};
  const TensorProduct& p = product.product;
  for (const For* loop : {p.rows, p.columns, p.terms, product.tiles}) {
    if (loop != nullptr) map[loop->var.get()] = Int(0);
  }
  return Substitute(index, map);
}

}  // namespace heddle::ir
