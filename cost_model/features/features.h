// What the cost model sees of a candidate: features of its loop program, never the decisions that
// made it, so that a model can transfer between workloads.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"

namespace heddle::cost_model {

// Changes whenever a feature is added, removed or redefined. A search state or model of another
// version is discarded.
inline constexpr int kFeatureVersion = 5;

// One feature: what it means in a sentence, and its unit.
struct FeatureInfo {
  std::string name;
  std::string group;  // features that are switched off together to see what they are worth
  std::string unit;
  std::string meaning;
};
std::span<const FeatureInfo> FeatureTable();

// One value for each row of FeatureTable(), for every program. The features describe the main
// statement (trip counts, bytes touched and reused at each loop level, strides, arithmetic,
// annotations), sums over the other statements and over the program, and the reuse curves of the
// main statement's accesses. Programs with different numbers of buffers are comparable. Magnitudes
// are log2(1 + v). Names have no influence.
//
// Takes scheduled and lowered programs. A search passes scheduled ones: in them an unrolled tile is
// one statement in loops, which says more than hundreds of copies would, and lowering costs many
// times as much as extracting features. `known` remembers statements for programs that share them
// (statements.h).
class KnownStatements;
std::vector<float> ExtractFeatures(const ir::Program& program, const machine::TargetInfo& target,
                                   KnownStatements* known = nullptr);

// Columns of the features that are in none of `groups`. InvalidArgument lists the groups that exist
// if one of them does not.
absl::StatusOr<std::vector<size_t>> ColumnsWithout(std::span<const std::string> groups);
std::vector<std::string> FeatureGroups();  // in the order of the table

// For each loop that has features, the positions of these in `columns`. All loops have the same
// number.
std::vector<std::vector<size_t>> LoopTokens(const std::vector<size_t>& columns);

// The features of these columns.
std::vector<float> Pick(const std::vector<float>& features, const std::vector<size_t>& columns);

}  // namespace heddle::cost_model
