#include "cost_model/features/index_ranges.h"

#include <algorithm>

namespace heddle::cost_model {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::Op;

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

}  // namespace

void Environment::PushLoop(const ir::Var* var, uint64_t mask) {
  entries_.push_back({var, {}, mask, nullptr, 0});
}

void Environment::PushIterator(const ir::BlockIter& iter) {
  entries_.push_back({iter.var.get(), {}, Mask(iter.binding), &iter.binding, iter.extent});
}

const Environment::Entry* Environment::Find(const ir::Var* var) const {
  for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) {
    if (it->var == var) return &*it;
  }
  return nullptr;
}

uint64_t Environment::Mask(const Expr& e) const {
  if (e->kind == ExprKind::kVar) {
    const Entry* entry = Find(e->var.get());
    return entry == nullptr ? 0 : entry->mask;
  }
  uint64_t mask = 0;
  for (const Expr& arg : e->args) mask |= Mask(arg);
  return mask;
}

// A guard keeps an iterator inside its extent, whatever its binding reaches.
Range Environment::IteratorRange(const Entry& e) const {
  const std::optional<Range> r = Evaluate(*e.binding);
  if (!r) return {0, e.extent - 1};
  return {std::clamp<int64_t>(r->min, 0, e.extent - 1),
          std::clamp<int64_t>(r->max, 0, e.extent - 1)};
}

std::optional<Range> Environment::Evaluate(const Expr& e) const {
  switch (e->kind) {
    case ExprKind::kInt:
      return Range{e->int_value, e->int_value};
    case ExprKind::kVar: {
      const Entry* entry = Find(e->var.get());
      return entry == nullptr ? std::nullopt : std::optional<Range>(entry->range);
    }
    case ExprKind::kCast:
      return Evaluate(e->args[0]);
    case ExprKind::kOp:
      return EvaluateOp(*e);
    case ExprKind::kFloat:
    case ExprKind::kLoad:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<Range> Environment::EvaluateOp(const ir::ExprNode& e) const {
  if (e.op == Op::kSelect) {
    const auto a = Evaluate(e.args[1]), b = Evaluate(e.args[2]);
    if (!a || !b) return std::nullopt;
    return Range{std::min(a->min, b->min), std::max(a->max, b->max)};
  }
  if (e.args.size() != 2) return std::nullopt;
  const auto a = Evaluate(e.args[0]), b = Evaluate(e.args[1]);
  if (!a || !b) return std::nullopt;
  switch (e.op) {
    case Op::kAdd:
      return Range{a->min + b->min, a->max + b->max};
    case Op::kSub:
      return Range{a->min - b->max, a->max - b->min};
    case Op::kMul: {
      const auto [lo, hi] =
          std::minmax({a->min * b->min, a->min * b->max, a->max * b->min, a->max * b->max});
      return Range{lo, hi};
    }
    case Op::kMin:
      return Range{std::min(a->min, b->min), std::min(a->max, b->max)};
    case Op::kMax:
      return Range{std::max(a->min, b->min), std::max(a->max, b->max)};
    case Op::kDiv:
    case Op::kFloorDiv:
      if (b->min != b->max || b->min <= 0) return std::nullopt;
      return Range{FloorDivide(a->min, b->min), FloorDivide(a->max, b->min)};
    case Op::kFloorMod: {
      if (b->min != b->max || b->min <= 0) return std::nullopt;
      const int64_t m = b->min, q = FloorDivide(a->min, m);
      if (q != FloorDivide(a->max, m)) return Range{0, m - 1};
      return Range{a->min - q * m, a->max - q * m};
    }
    default:
      return std::nullopt;
  }
}

}  // namespace heddle::cost_model
