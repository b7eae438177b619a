// The part of a buffer that blocks below some statement read, and a block put into loops over just
// that part. Internal.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/region.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

// Per dimension of `buffer`, what the readers load while the loops at depth >= `depth` of their
// paths run and the outer ones stand still; never more than the dimension.
std::vector<SymbolicInterval> RequiredRegion(const ir::Buffer& buffer,
                                             const std::vector<Path>& readers, size_t depth);

struct RegionNest {
  std::vector<FreshLoop> loops;
  ir::Block block;
};

// `block` rebound to fresh loops (one per iterator, in its order) over the region of its buffer
// that `readers` need below `depth`. `outer` are the statements that stand still; their loops'
// extents decide where a guard is needed. FailedPrecondition if the block does not store exactly at
// its iterators.
absl::StatusOr<RegionNest> ComputeRegion(const ir::Block& block, const std::vector<Path>& readers,
                                         size_t depth, const std::vector<ir::Stmt>& outer,
                                         const std::function<std::string(size_t)>& name);

}  // namespace heddle::schedule
