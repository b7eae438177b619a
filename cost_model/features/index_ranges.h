// Ranges of index expressions while some loops of a nest run and the others stand still.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/analysis/interval.h"
#include "compiler/ir/ir.h"

namespace heddle::cost_model {

// The loop variables and block iterators in scope, each with its range. A linear list: it holds a
// dozen entries and is searched often.
class IndexRanges {
 public:
  struct Entry {
    const ir::Var* var;
    ir::Interval range;
    uint64_t mask;            // one bit for each loop that the variable depends on
    const ir::Expr* binding;  // null for a loop
    int64_t extent;           // of an iterator
  };

  void PushLoop(const ir::Var* var, uint64_t mask);
  // `iter` must outlive its entry.
  void PushIterator(const ir::BlockIter& iter);
  void Truncate(size_t size) { entries_.resize(size); }
  size_t size() const { return entries_.size(); }

  // All loops, as a mask.
  static constexpr uint64_t kAll = ~uint64_t{0};

  // Sets the range of each loop to range_of(entry), and computes the ranges of iterators from
  // those. `changed`: the loops whose range differs from the previous call; kAll in the first call.
  template <typename F>
  void SetLoops(uint64_t changed, const F& range_of) {
    for (Entry& e : entries_) {
      if (changed != kAll && (e.mask & changed) == 0) continue;
      e.range = e.binding == nullptr ? range_of(e) : IteratorRange(e);
    }
  }

  // The values of an index (ir::QuickBounds). nullopt if the index cannot be bounded, for example
  // because it is loaded.
  std::optional<ir::Interval> RangeOf(const ir::Expr& index) const;
  // One bit for each loop that an expression depends on.
  uint64_t Mask(const ir::Expr& e) const;

 private:
  const Entry* Find(const ir::Var* var) const;
  ir::Interval IteratorRange(const Entry& e) const;

  std::vector<Entry> entries_;
};

}  // namespace heddle::cost_model
