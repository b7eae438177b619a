#include "cost_model/roofline.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cost_model/features.h"

namespace heddle::cost_model {
namespace {

constexpr double kInstructionsPerCycle = 2;
constexpr double kL1BytesPerCycle = 32;  // filled from L2
constexpr double kL2BytesPerCycle = 8;   // filled from memory

size_t ColumnOf(std::string_view name) {
  const std::span<const FeatureInfo> table = FeatureTable();
  const auto it = std::find_if(table.begin(), table.end(),
                               [&](const FeatureInfo& f) { return f.name == name; });
  if (it == table.end()) {  // a mistake in this file, which its test finds
    std::fprintf(stderr, "roofline: no feature %s\n", std::string(name).c_str());
    std::abort();
  }
  return static_cast<size_t>(it - table.begin());
}

}  // namespace

float RooflineScore(const std::vector<float>& features) {
  static const size_t kInstructions = ColumnOf("program.instructions"),
                      kL1 = ColumnOf("program.l1_bytes"), kL2 = ColumnOf("program.l2_bytes"),
                      kRegisters = ColumnOf("main.register_use"),
                      kParallel = ColumnOf("main.parallel_extent"),
                      kUse = ColumnOf("main.parallel_use"), kThreads = ColumnOf("program.threads");
  const auto magnitude = [&](size_t column) { return std::exp2(features[column]) - 1.0; };
  const double spills = std::max(1.0, 3 * magnitude(kRegisters) - 2);
  const double busy = magnitude(kParallel) > 1 ? magnitude(kThreads) * features[kUse] : 1;
  const double cycles =
      std::max({magnitude(kInstructions) * spills / kInstructionsPerCycle,
                magnitude(kL1) / kL1BytesPerCycle, magnitude(kL2) / kL2BytesPerCycle});
  return static_cast<float>(-std::log2(std::max(1.0, cycles / std::max(1.0, busy))));
}

}  // namespace heddle::cost_model
