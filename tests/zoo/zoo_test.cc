// The zoo: the same bytes everywhere, and the published numbers of operations and parameters.
#include "client/zoo/zoo.h"
#include "base/vocabulary/workload_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/onnx/import.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

TEST(Zoo, BytesDependOnNameAndSeedOnly) {
  // One of every file of architectures; the large ones only take longer.
  for (const char* name : {"mlp", "mobilenet_v2", "resnet18", "nasnet_a", "nasrnn"}) {
    auto one = zoo::MakeZooModel(name, 7), again = zoo::MakeZooModel(name, 7),
         other = zoo::MakeZooModel(name, 8);
    ASSERT_TRUE(one.ok() && again.ok() && other.ok());
    EXPECT_EQ(*one, *again);
    EXPECT_NE(*one, *other);
  }
  // The hash of one model, so that a change of generator or compiler that changes the weights is
  // noticed.
  EXPECT_EQ(WorkloadKey(*zoo::MakeZooModel("mlp", 1)), "6e4cbdeb38f72702");
}

TEST(Zoo, AnUnknownNameListsTheKnownOnes) {
  EXPECT_THAT(std::string(zoo::MakeZooModel("vgg", 1).status().message()),
              testing::AllOf(testing::HasSubstr("vgg"), testing::HasSubstr("resnet18"),
                             testing::HasSubstr("mlp")));
}

// Multiply-accumulates in 10^9, as the papers and the frameworks' model cards count them (with
// padding); dcgan and dqn by hand, from the sizes of their layers.
TEST(Zoo, WorkIsWhatThePapersSay) {
  const std::map<std::string, double> giga_macs{
      {"resnet18", 1.814},     {"resnet50", 4.09},      {"resnext50", 4.23},
      {"mobilenet_v1", 0.569}, {"mobilenet_v2", 0.301}, {"inception_v3", 5.713},
      {"squeezenet", 0.819},   {"dqn", 0.00935},        {"dcgan", 0.4105}};
  for (const auto& [name, expected] : giga_macs) {
    const FusedGraph fused = *Fuse(*Optimize(*ImportOnnx(*zoo::MakeZooModel(name, 1))));
    double flops = 0;
    for (const Group& group : fused.groups) flops += group.flops;
    EXPECT_NEAR(flops / 2e9, expected, 0.01 * expected) << name;
  }
}

// Parameters of the published models in millions, without statistics of batch normalisation; nasrnn
// counted by hand.
TEST(Zoo, ParametersAreAsPublished) {
  const std::map<std::string, double> millions{
      {"resnet18", 11.69},    {"resnet50", 25.56},    {"resnext50", 25.03},
      {"mobilenet_v1", 4.23}, {"mobilenet_v2", 3.50}, {"inception_v3", 23.83},
      {"squeezenet", 1.248},  {"dqn", 1.693},         {"lstm_lm", 19.78},
      {"nasrnn", 4.194},      {"bert_base", 109.48}};
  for (const auto& [name, expected] : millions) {
    const Graph graph = *ImportOnnx(*zoo::MakeZooModel(name, 1));
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
  const Graph graph = *ImportOnnx(*zoo::MakeZooModel("mlp", 3));
  TestRng rng(1);
  const std::vector<double> p = ToDoubles((*EvaluateGraph(graph, RandomInputs(rng, graph)))[0]);
  double sum = 0;
  for (double v : p) sum += v;
  EXPECT_NEAR(sum, 1, 1e-5);
}

}  // namespace
}  // namespace heddle::graph
