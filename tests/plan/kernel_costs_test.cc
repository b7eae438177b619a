// Costs of kernels: records count as they are, and what was measured predicts the rest.
#include "compiler/plan/kernel_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/zoo/zoo.h"
#include "compiler/driver/compile.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/core/tensor_data.h"

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

// A graph with a product of [64, 64] by each matrix: half of them constants, half of them given.
graph::FusedGraph Products(const std::vector<int64_t>& columns) {
  graph::GraphBuilder b;
  const graph::ValueId x = b.Input("x", {ir::DType::kF32, {64, 64}});
  std::vector<std::pair<std::string, graph::ValueId>> outputs;
  for (const int64_t n : columns) {
    const graph::TensorType type{ir::DType::kF32, {64, n}};
    for (const bool constant : {true, false}) {
      const graph::ValueId w =
          constant ? b.Constant("w", graph::Filled(type, 1)) : b.Input(absl::StrCat("w", n), type);
      outputs.emplace_back(absl::StrCat("y", outputs.size()),
                           *b.Add(graph::OpKind::kMatmul, {x, w}, {}, "product"));
    }
  }
  return *graph::Fuse(*b.Build(outputs));
}

bool HasConstant(const graph::FusedGraph& fused, const graph::Group& group) {
  return std::any_of(group.inputs.begin(), group.inputs.end(),
                     [&](graph::ValueId v) { return fused.graph.constants.contains(v); });
}

TEST(KernelCosts, ConstantsComeFromMemoryAndTheRestFromCaches) {
  machine::TargetInfo target;
  machine::GraphSpeed& speed = target.graph_speed;
  speed.peak_gflops = 1e6;
  speed.call_ns = 7;
  speed.l2_bytes = 64 << 10;
  speed.l3_bytes = 256 << 10;
  speed.l2_read_bytes_per_ns = 64;
  speed.l3_read_bytes_per_ns = 32;
  speed.memory_read_bytes_per_ns = 16;
  const double kib = 1024;
  // By columns: with a matrix that is a constant, and with one that is not.
  const std::map<int64_t, std::pair<double, double>> expected = {
      {32, {8 * kib / 16 + 24 * kib / 64, 32 * kib / 64}},
      {128, {32 * kib / 16 + 48 * kib / 64, 80 * kib / 32}},
      {1024, {256 * kib / 16 + 272 * kib / 16, 528 * kib / 16}}};
  std::vector<int64_t> columns;
  for (const auto& [n, ns] : expected) columns.push_back(n);
  const graph::FusedGraph fused = Products(columns);
  ASSERT_EQ(fused.groups.size(), 6u);
  const KernelCosts costs(target, {});
  for (const graph::Group& group : fused.groups) {
    const auto& [constant, given] =
        expected.at(fused.graph.values[static_cast<size_t>(group.outputs[0])].type.shape[1]);
    EXPECT_DOUBLE_EQ(costs.Of(fused, group).ns, 7 + (HasConstant(fused, group) ? constant : given))
        << group.label;
  }
}

// What a factor depends on is learned: here, whether the matrix is a constant.
TEST(KernelCosts, ProductsByConstantsAreNotLikeOthers) {
  const graph::FusedGraph fused = Products({16, 24, 32, 40, 48, 56});
  const KernelCosts machine({}, {});
  const auto truth = [&](const graph::Group& group) {
    return machine.Of(fused, group).ns * (HasConstant(fused, group) ? 1.2 : 4);
  };
  std::map<std::string, double> measured;
  for (size_t i = 0; i < 8; ++i) measured[fused.groups[i].key] = truth(fused.groups[i]);
  KernelCosts costs({}, measured);
  costs.Learn(fused);
  for (size_t i = 8; i < fused.groups.size(); ++i)
    EXPECT_NEAR(std::log(costs.Of(fused, fused.groups[i]).ns / truth(fused.groups[i])), 0, 0.1);
}

}  // namespace
}  // namespace heddle::plan
