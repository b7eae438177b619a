// How the iterators of a block move through memory. The rules of search spaces base decisions on
// this. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

// A loop of a naive block and the iterator it feeds.
struct Axis {
  std::string loop;
  const ir::Var* iter = nullptr;
  int64_t extent = 1;
};

// A block in a naive nest: one serial loop per iterator, in the iterators' order.
struct StageView {
  std::string block;
  std::vector<Axis> spatial;
  std::vector<Axis> reduce;
};

// False if the block's bindings are not plain loop variables, one loop each.
bool ViewStage(const Path& path, StageView* view);

// By how many elements the address moves when the iterator advances by one: ir::Stride over all
// dimensions. 0 if it stays, kIrregular if an index is not linear in the iterator.
inline constexpr int64_t kIrregular = INT64_MAX;
int64_t StrideOf(const ir::Buffer& buffer, const std::vector<ir::Expr>& indices,
                 const ir::Var* iter);

// How many neighbours along the iterator share an element, if the iterator occurs only as a
// quotient: the d of `iter // d`. 1 if it occurs in any other way.
int64_t SharedBy(const std::vector<ir::Expr>& indices, const ir::Var* iter);

// The loads of the block's value, each once.
std::vector<ir::Expr> DistinctLoads(const ir::Block& block);

// The number of the block's loads, each counted once, whose place depends on an element of `buffer`.
int LookupsBy(const ir::Block& block, const ir::Buffer* buffer);

// How many positions along the axis the windows of `size` neighbours touch together, according to
// the first index that contains both the axis and a reduce axis. `size` if there is none.
int64_t TouchedBy(const ir::Block& block, const std::vector<Axis>& reduce, const Axis& axis,
                  int64_t size);

// How well a block vectorizes along an iterator: its contiguous accesses, and its accesses that are
// neither contiguous nor invariant. The store counts twice.
struct VectorFit {
  int contiguous = 0;
  int scattered = 0;
};
VectorFit FitOf(const ir::Block& block, const ir::Var* iter);

// Whether this is a reduction in which some load stays in place while a spatial iterator of extent
// over one moves, so that register tiles reuse it.
bool HasReuse(const ir::Block& block);

// Whether the value contains exp, tanh or the like, which are worth computing only once.
bool IsExpensive(const ir::Block& block);

// Divisors of `n` that are at most `limit`, in ascending order.
std::vector<int64_t> Divisors(int64_t n, int64_t limit = INT64_MAX);
int64_t LargestDivisorUpTo(int64_t n, int64_t limit);
// Largest power of two that divides n and is at most limit.
int64_t PowerOfTwoDivisor(int64_t n, int64_t limit);

}  // namespace heddle::schedule
