// The part of a buffer that blocks below some statement read, and a block in loops over just that
// part. Internal to this folder.
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
  // The indices read while the inner loops run and the outer ones stand still. Never more than the
  // dimension.
  ir::SymbolicInterval region;
  // The first and last index ever read, over all loops. Guards of the readers keep reads within.
  int64_t first = 0;
  int64_t last = 0;
};

struct Required {
  std::vector<RequiredDim> dims;  // per dimension of the buffer
  bool exact = true;              // the readers load every element of the box
};

// What the readers load of `buffer`. Inner loops are those at depth >= `depth` of the readers'
// paths.
Required RequiredRegion(const ir::Buffer& buffer, const std::vector<Path>& readers, size_t depth);

struct RegionNest {
  std::vector<FreshLoop> loops;
  ir::Block block;
};

// `block` in fresh loops (one per iterator, in its order) over the region of its buffer that
// `readers` need below `depth`. `outer` are the statements around; the extents of their loops
// decide where a guard is needed. FailedPrecondition if the block does not store exactly at its
// iterators, or if `must_be_exact` and the region may contain more than what is needed. It must be
// exact if the block's own producers have finished only a part of what it reads.
absl::StatusOr<RegionNest> ComputeRegion(const ir::Block& block, const std::vector<Path>& readers,
                                         size_t depth, const std::vector<ir::Stmt>& outer,
                                         bool must_be_exact,
                                         const std::function<std::string(size_t)>& name);

}  // namespace heddle::schedule
