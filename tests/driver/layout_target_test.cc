// Layouts by target: the block of channels, and what a model of depthwise convolutions takes.
#include <gtest/gtest.h>

#include "client/zoo/zoo.h"
#include "compiler/driver/model_layout.h"

namespace heddle {
namespace {

Target TargetOf(const char* text) { return *ParseTarget(text); }

TEST(LayoutTarget, ABlockIsAVectorAndAtLeastHalfALine) {
  EXPECT_EQ(*BlockFor(TargetOf("llvm -mcpu=skylake-avx512")), 16);
  EXPECT_EQ(*BlockFor(TargetOf("llvm -mcpu=haswell")), 8);
  EXPECT_EQ(*BlockFor(TargetOf("llvm -mcpu=nehalem")), 8);
  EXPECT_EQ(*BlockFor(TargetOf("cuda -arch=sm_90")), 0);
  EXPECT_EQ(BlockFor(TargetOf("llvm -mcpu=nothing")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

int Count(const graph::FusedGraph& fused, graph::OpKind kind) {
  int count = 0;
  for (const graph::Node& node : fused.graph.nodes) count += node.kind == kind;
  return count;
}

TEST(LayoutTarget, DepthwiseModelsAreBlockedOnCpusAndNotOnGpus) {
  const std::string onnx = *zoo::MakeZooModel("mobilenet_v2", 0);
  const auto cpu = PrepareModel(onnx, {}, TargetOf("llvm -mcpu=skylake-avx512"));
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_GE(Count(*cpu, graph::OpKind::kBlockedDepthwiseConv2d), 10);
  EXPECT_GE(Count(*cpu, graph::OpKind::kBlockedConv2d), 20);
  // Of the image. Blocks of 16 do not divide 24 channels, which stay last.
  EXPECT_EQ(Count(*cpu, graph::OpKind::kTranspose), 1);
  const auto gpu = PrepareModel(onnx, {}, TargetOf("cuda -arch=sm_90"));
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  EXPECT_EQ(Count(*gpu, graph::OpKind::kBlockedDepthwiseConv2d) +
                Count(*gpu, graph::OpKind::kBlockedConv2d),
            0);
  const auto plan = ExplainLayouts(onnx, {}, TargetOf("llvm -mcpu=skylake-avx512"));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->block, 16);
  EXPECT_LT(plan->ns, plan->last_ns);
  // Products of blocked channels lose more with threads than strips gain.
  const auto threads = PrepareModel(onnx, {}, TargetOf("llvm -mcpu=skylake-avx512 -threads=2"));
  ASSERT_TRUE(threads.ok()) << threads.status();
  EXPECT_EQ(Count(*threads, graph::OpKind::kBlockedConv2d), 0);
}

// Winograd's form, which 3 x 3 convolutions have channels last, is worth more than their strips.
TEST(LayoutTarget, ModelsOfThreeByThreeStayChannelsLast) {
  const auto plan = ExplainLayouts(*zoo::MakeZooModel("resnet18", 0), {}, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const graph::LayoutPlan::Operator& op : plan->operators)
    EXPECT_NE(op.layout, graph::Layout::kChannelsBlocked) << op.name;
}

// The block that the options name is taken for every target.
TEST(LayoutTarget, OptionsDecideTheBlock) {
  ModelOptions options;
  options.passes.layout.block = 0;
  const std::string onnx = *zoo::MakeZooModel("mobilenet_v1", 0);
  const Target target = TargetOf("llvm -mcpu=skylake-avx512");
  EXPECT_GT(Count(*PrepareModel(onnx, {}, target), graph::OpKind::kBlockedConv2d), 0);
  const auto two = PrepareModel(onnx, options, target);
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(Count(*two, graph::OpKind::kBlockedConv2d), 0);
}

}  // namespace
}  // namespace heddle
