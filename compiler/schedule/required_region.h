// The part of a buffer that blocks below some statement read, and a block put into loops over just
// that part. Internal.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/analysis/region.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

// What readers load in one dimension.
struct RequiredDim {
  ir::SymbolicInterval
      region;         // while the inner loops run and the outer ones stand still; never more
                      // than the dimension
  int64_t first = 0;  // what is ever read, over all loops; guards of the readers keep them inside
  int64_t last = 0;
};

struct Required {
  std::vector<RequiredDim> dims;  // per dimension of the buffer
  bool exact = true;              // the readers load every element of the box
};

// What the readers load of `buffer`; inner loops are those at depth >= `depth` of their paths.
Required RequiredRegion(const ir::Buffer& buffer, const std::vector<Path>& readers, size_t depth);

struct RegionNest {
  std::vector<FreshLoop> loops;
  ir::Block block;
};

// `block` rebound to fresh loops (one per iterator, in its order) over the region of its buffer
// that `readers` need below `depth`. `outer` are the statements that stand still; their loops'
// extents decide where a guard is needed. FailedPrecondition if the block does not store exactly at
// its iterators, or if `must_be_exact` and the region is only known to contain what is needed: when
// the block's own producers have finished just a part, it must not ask for more.
absl::StatusOr<RegionNest> ComputeRegion(const ir::Block& block, const std::vector<Path>& readers,
                                         size_t depth, const std::vector<ir::Stmt>& outer,
                                         bool must_be_exact,
                                         const std::function<std::string(size_t)>& name);

}  // namespace heddle::schedule
