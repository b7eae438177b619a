// Costs of kernels: records count as they are, and what was measured predicts the rest.
#include "compiler/plan/kernel_costs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "client/zoo/zoo.h"
#include "compiler/driver/compile.h"
#include "compiler/graph/core/operator.h"

namespace heddle::plan {
namespace {

using Source = KernelCost::Source;

graph::FusedGraph Prepared(const char* model) {
  return *PrepareModel(*zoo::MakeZooModel(model, 0), {}, *ParseTarget("llvm -mcpu=skylake-avx512"));
}

TEST(KernelCosts, RecordsCountAsTheyAre) {
  const graph::FusedGraph fused = Prepared("squeezenet");
  KernelCosts costs({}, {{fused.groups[0].key, 1234}});
  EXPECT_EQ(costs.Of(fused, fused.groups[0]).ns, 1234);
  EXPECT_EQ(costs.Of(fused, fused.groups[0]).source, Source::kRecord);
  EXPECT_EQ(costs.Of(fused, fused.groups[1]).source, Source::kMachine);
  costs.Learn(fused);
  EXPECT_EQ(costs.Of(fused, fused.groups[1]).source, Source::kLearned);
}

// Kernels take a planted multiple of the machine model, another one for each operator. Those that were
// not measured are predicted by those that were, and the more were, the better.
TEST(KernelCosts, FactorsOfOperatorsAreLearned) {
  const graph::FusedGraph fused = Prepared("inception_v3");
  const KernelCosts machine({}, {});
  const auto truth = [&](const graph::Group& group) {
    const bool convolution = group.label.find("conv") != std::string::npos;
    return machine.Of(fused, group).ns * (convolution ? 1.5 : 9);
  };
  double first_error = 0, last_error = 0;
  for (const size_t share : {32, 2}) {  // one of so many is measured
    std::map<std::string, double> measured;
    for (size_t i = 0; i < fused.groups.size(); i += share)
      measured[fused.groups[i].key] = truth(fused.groups[i]);
    KernelCosts costs({}, measured);
    costs.Learn(fused);
    costs.Learn(fused);  // what is known teaches nothing
    double error = 0;
    int predicted = 0;
    for (const graph::Group& group : fused.groups) {
      const KernelCost cost = costs.Of(fused, group);
      if (cost.source == Source::kRecord) continue;
      EXPECT_GT(cost.spread, 0);
      error += std::abs(std::log(cost.ns / truth(group)));
      ++predicted;
    }
    ASSERT_GT(predicted, 0);
    error /= predicted;
    (share == 32 ? first_error : last_error) = error;
    if (share == 2) {  // the error that it says it has is about the one it has
      EXPECT_EQ(costs.Error().kernels, static_cast<int>(measured.size()));
      EXPECT_LT(costs.Error().rms, 0.5);
      EXPECT_LE(costs.Error().median, costs.Error().rms);
    }
  }
  EXPECT_LT(last_error, 0.1);
  EXPECT_LT(last_error, first_error);
}

}  // namespace
}  // namespace heddle::plan
