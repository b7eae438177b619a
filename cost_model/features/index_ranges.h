// Ranges of index expressions while some loops of a nest run and the others stand still.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/ir.h"

namespace heddle::cost_model {

struct Range {
  int64_t min = 0;
  int64_t max = 0;
};

// The loop variables and block iterators in scope. A linear list: a dozen entries, looked up often.
class Environment {
 public:
  struct Entry {
    const ir::Var* var;
    Range range;
    uint64_t mask;            // bits of the loops it depends on
    const ir::Expr* binding;  // null for a loop
    int64_t extent;           // of an iterator
  };

  void PushLoop(const ir::Var* var, uint64_t mask);
  // `iter` must outlive its entry.
  void PushIterator(const ir::BlockIter& iter);
  void Truncate(size_t size) { entries_.resize(size); }
  size_t size() const { return entries_.size(); }

  // Sets every loop to range_of(entry), then the iterators to what follows from that.
  template <typename F>
  void SetLoops(const F& range_of) {
    for (Entry& e : entries_) e.range = e.binding == nullptr ? range_of(e) : IteratorRange(e);
  }

  // nullopt for what cannot be bounded, such as an index that is loaded.
  std::optional<Range> Evaluate(const ir::Expr& e) const;
  // Bits of the loops an expression depends on.
  uint64_t Mask(const ir::Expr& e) const;

 private:
  const Entry* Find(const ir::Var* var) const;
  Range IteratorRange(const Entry& e) const;
  std::optional<Range> EvaluateOp(const ir::ExprNode& e) const;

  std::vector<Entry> entries_;
};

}  // namespace heddle::cost_model
