// The zoo: the same bytes everywhere, the published numbers.
#include "compiler/graph/zoo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/graph/evaluate.h"
#include "compiler/graph/fuse.h"
#include "compiler/graph/onnx_import.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/tensor_data.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

TEST(Zoo, BytesDependOnNameAndSeedOnly) {
  for (const std::string& name : ZooNames()) {
    auto one = MakeZooModel(name, 7), again = MakeZooModel(name, 7), other = MakeZooModel(name, 8);
    ASSERT_TRUE(one.ok() && again.ok() && other.ok());
    EXPECT_EQ(*one, *again);
    EXPECT_NE(*one, *other);
  }
  // The hash of one model, so that a change of generator or compiler that changes the weights is
  // noticed.
  EXPECT_EQ(tensor::WorkloadKey(*MakeZooModel("mlp", 1)), "6e4cbdeb38f72702");
}

TEST(Zoo, AnUnknownNameListsTheKnownOnes) {
  EXPECT_THAT(std::string(MakeZooModel("vgg", 1).status().message()),
              testing::AllOf(testing::HasSubstr("vgg"), testing::HasSubstr("resnet18"),
                             testing::HasSubstr("mlp")));
}

// Multiply-accumulates as the papers count them (ResNet-18 1.8e9 with its padding; MobileNet 569e6;
// MobileNetV2 300e6).
TEST(Zoo, WorkIsWhatThePapersSay) {
  const std::map<std::string, double> giga_macs{
      {"resnet18", 1.814}, {"mobilenet_v1", 0.569}, {"mobilenet_v2", 0.301}};
  for (const auto& [name, expected] : giga_macs) {
    const FusedGraph fused = *Fuse(*Optimize(*ImportOnnx(*MakeZooModel(name, 1))));
    double flops = 0;
    for (const Group& group : fused.groups) flops += group.flops;
    EXPECT_NEAR(flops / 2e9, expected, 0.01 * expected) << name;
  }
}

// Parameters of the published models, batch norm's statistics left out.
TEST(Zoo, ParametersAreAsPublished) {
  const std::map<std::string, double> millions{
      {"resnet18", 11.69}, {"mobilenet_v1", 4.23}, {"mobilenet_v2", 3.50}};
  for (const auto& [name, expected] : millions) {
    const Graph graph = *ImportOnnx(*MakeZooModel(name, 1));
    double count = 0;
    for (const auto& [v, data] : graph.constants) {
      const bool statistic = graph.values[v].name.find(".bn.mean") != std::string::npos ||
                             graph.values[v].name.find(".bn.var") != std::string::npos;
      if (!statistic) count += static_cast<double>(NumElements(data.type));
    }
    EXPECT_NEAR(count / 1e6, expected, 0.01 * expected) << name;
  }
}

TEST(Zoo, MlpGivesAProbabilityDistribution) {
  const Graph graph = *ImportOnnx(*MakeZooModel("mlp", 3));
  TestRng rng(1);
  const std::vector<double> p = ToDoubles((*EvaluateGraph(graph, RandomInputs(rng, graph)))[0]);
  double sum = 0;
  for (double v : p) sum += v;
  EXPECT_NEAR(sum, 1, 1e-5);
}

}  // namespace
}  // namespace heddle::graph
