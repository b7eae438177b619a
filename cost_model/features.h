// What the cost model sees of a candidate: features of the lowered loop program, never the decisions that made it, so that a
// model can transfer between workloads.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/ir/target.h"

namespace heddle::cost_model {

// Changes whenever a feature is added, removed or redefined; a search state or model of another version is discarded.
inline constexpr int kFeatureVersion = 1;

// One sentence, unit and identity per field: FeatureTable().
struct FeatureInfo {
  std::string name;
  std::string unit;
  std::string meaning;
};
std::span<const FeatureInfo> FeatureTable();

// Fixed length (FeatureTable().size()) for every program: per-statement context features (trip counts, bytes touched and reused per
// loop level, strides, arithmetic counts, annotations), aggregated over the statements by role so that programs with different
// numbers of buffers compare. Magnitudes are log2(1 + v). Invariant to names.
std::vector<float> ExtractFeatures(const ir::Program& lowered, const ir::TargetInfo& target);

}  // namespace heddle::cost_model
