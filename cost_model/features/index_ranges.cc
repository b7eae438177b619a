#include "cost_model/features/index_ranges.h"

#include <algorithm>

namespace heddle::cost_model {

void IndexRanges::PushLoop(const ir::Var* var, uint64_t mask) {
  entries_.push_back({var, {}, mask, nullptr, 0});
}

void IndexRanges::PushIterator(const ir::BlockIter& iter) {
  entries_.push_back({iter.var.get(), {}, Mask(iter.binding), &iter.binding, iter.extent});
}

const IndexRanges::Entry* IndexRanges::Find(const ir::Var* var) const {
  for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) {
    if (it->var == var) return &*it;
  }
  return nullptr;
}

uint64_t IndexRanges::Mask(const ir::Expr& e) const {
  if (e->kind == ir::ExprKind::kVar) {
    const Entry* entry = Find(e->var.get());
    return entry == nullptr ? 0 : entry->mask;
  }
  uint64_t mask = 0;
  for (const ir::Expr& arg : e->args) mask |= Mask(arg);
  return mask;
}

// A guard keeps an iterator within its extent, whatever its binding reaches.
ir::Interval IndexRanges::IteratorRange(const Entry& e) const {
  const std::optional<ir::Interval> r = RangeOf(*e.binding);
  if (!r) return {0, e.extent - 1};
  return {std::clamp<int64_t>(r->min, 0, e.extent - 1),
          std::clamp<int64_t>(r->max, 0, e.extent - 1)};
}

std::optional<ir::Interval> IndexRanges::RangeOf(const ir::Expr& index) const {
  return ir::QuickBounds(index, [this](const ir::Var* var) -> const ir::Interval* {
    const Entry* entry = Find(var);
    return entry == nullptr ? nullptr : &entry->range;
  });
}

}  // namespace heddle::cost_model
