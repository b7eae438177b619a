// What the cost model sees of a candidate: features of the lowered loop program, never the
// decisions that made it, so that a model can transfer between workloads.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"

namespace heddle::cost_model {

// Changes whenever a feature is added, removed or redefined; a search state or model of another
// version is discarded.
inline constexpr int kFeatureVersion = 4;

// One sentence, unit and identity per field: FeatureTable().
struct FeatureInfo {
  std::string name;
  std::string group;  // features that are switched off together to see what they are worth
  std::string unit;
  std::string meaning;
};
std::span<const FeatureInfo> FeatureTable();

// Fixed length (FeatureTable().size()) for every program: context of the main statement (trip
// counts, bytes touched and reused per loop level, strides, arithmetic counts, annotations), sums
// over the others and over the program, and curves that relate what its accesses touch and reuse,
// so that programs with different numbers of buffers compare. Magnitudes are log2(1 + v). Invariant
// to names.
//
// Takes any level. Search gives it scheduled programs: there an unrolled tile still stands as one
// statement in loops, which says more than hundreds of copies, and lowering costs many times what
// the features do. `known`: of programs that share statements at their roots (nest.h).
class KnownStatements;
std::vector<float> ExtractFeatures(const ir::Program& program, const machine::TargetInfo& target,
                                   KnownStatements* known = nullptr);

// Columns of the features that are in none of the groups. InvalidArgument names the groups when one
// is not there.
absl::StatusOr<std::vector<size_t>> ColumnsWithout(std::span<const std::string> groups);
std::vector<std::string> FeatureGroups();  // in the order of the table

// For each loop of which there are features, where those are among `columns` of the table; all of
// the same number.
std::vector<std::vector<size_t>> LoopTokens(const std::vector<size_t>& columns);

// The features of these columns.
std::vector<float> Pick(const std::vector<float>& features, const std::vector<size_t>& columns);

}  // namespace heddle::cost_model
