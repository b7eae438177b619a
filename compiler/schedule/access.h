// How the iterators of a block move through memory: what the rules of a search space decide by.
// Internal to this folder.
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

// Elements by which the address moves when the iterator advances by one; 0 if it stays, kIrregular
// if the index is not linear in the iterator.
inline constexpr int64_t kIrregular = INT64_MAX;
int64_t StrideOf(const ir::Buffer& buffer, const std::vector<ir::Expr>& indices,
                 const ir::Var* iter);

// Neighbours along the iterator that share an element, where it occurs only as a quotient: the d of
// `iter // d`. 1 if it occurs otherwise.
int64_t SharedBy(const std::vector<ir::Expr>& indices, const ir::Var* iter);

// Loads of the block's value, each once.
std::vector<ir::Expr> DistinctLoads(const ir::Block& block);

// How many places along the axis the windows of `size` neighbours touch: those that some index
// with the axis and a reduce axis in it takes. `size` if there is none.
int64_t TouchedBy(const ir::Block& block, const std::vector<Axis>& reduce, const Axis& axis,
                  int64_t size);

// How badly a block is vectorized along an iterator: accesses that are neither contiguous nor
// invariant; the store counts double.
struct VectorFit {
  int contiguous = 0;
  int scattered = 0;
};
VectorFit FitOf(const ir::Block& block, const ir::Var* iter);

// A reduction in which some load stays in place while a spatial iterator of extent over one moves:
// register tiles reuse it.
bool HasReuse(const ir::Block& block);

// exp, tanh and the like: worth computing once.
bool IsExpensive(const ir::Block& block);

// Divisors in ascending order.
std::vector<int64_t> Divisors(int64_t n);
int64_t LargestDivisorUpTo(int64_t n, int64_t limit);
// Largest power of two that divides n and is at most limit.
int64_t PowerOfTwoDivisor(int64_t n, int64_t limit);

}  // namespace heddle::schedule
