// The operators that schedules are judged by, as naive programs (names of the project's list of
// workloads).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"

namespace heddle::schedule {

// C1..C12: convolution, bias and ReLU, NHWC activations, HWIO weights, with padding. D1..D9: the
// same, depthwise. M1: a vector times a matrix, M2: a matrix product, MT: one with the second
// operand transposed. T1, T64: a forest of 32 trees, walked for one and for 64 records. S: softmax of rows. P: global average pooling. E: an elementwise chain.
// Any other convolution is named by its numbers, 56x24-144k1s1: size, input and output channels (0:
// depthwise), kernel, stride. Weights and biases are const.
std::vector<std::string> WorkloadNames();
absl::StatusOr<ir::Program> MakeWorkload(const std::string& name);
// What forest_walk computes (compiler/graph/ops/forest.cc): trees in `groups` of `trees` are walked `steps` steps for each record; each leaf gives `values` numbers, which are summed
// over the trees of a group, and a bias is added. With `ranges`, the tables say what their numbers are below.
ir::Program MakeWalk(int64_t groups, int64_t trees, int64_t steps, int64_t values, int64_t records,
                     bool ranges = true);
// What forest_ranks computes: every node of complete trees of `depth` levels is compared, which gives the number
// of a leaf, and the leaf's values are looked up. The tables of trees stand in blocks of `block`, which divides `trees`.
ir::Program MakeRanks(int64_t groups, int64_t trees, int64_t block, int64_t depth, int64_t values,
                      int64_t records, bool ranges = true);
// What forest_leaves computes: trees of `nodes` nodes stand in blocks of `block`, which divides `trees`. x is ranks, or floats.
ir::Program MakeLeaves(int64_t groups, int64_t trees, int64_t block, int64_t nodes, int64_t values,
                       int64_t records, bool floats = false);
// What forest_select computes of one record: the tables of trees stand in blocks of `block`, which divides `trees`.
ir::Program MakeSelect(int64_t groups, int64_t trees, int64_t block, int64_t depth);
// What digitize computes in two steps: each record's value in each column is compared with the last cuts of `groups` groups, and then
// with the `of_group` cuts of one of them.
ir::Program MakeDigitize(int64_t columns, int64_t groups, int64_t of_group, int64_t records);
// What it computes by halving `cuts` sorted cuts, for one record.
ir::Program MakeHalvedDigitize(int64_t columns, int64_t cuts);

// The widest CPU, a machine with threads.
machine::TargetInfo Wide();
// The narrowest, and Wide().
std::vector<machine::TargetInfo> Targets();

}  // namespace heddle::schedule
