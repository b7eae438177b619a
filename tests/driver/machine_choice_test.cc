// A measured machine enters what is chosen, and nothing that was chosen already.
#include <gtest/gtest.h>

#include <algorithm>

#include "client/zoo/zoo.h"
#include "compiler/driver/compile.h"
#include "compiler/machine/measured_machine.h"

namespace heddle {
namespace {

// Cores whose caches and memory are so fast, or so slow, beside their arithmetic that no CPU is like
// them.
machine::MeasuredMachine Machine(double bandwidth) {
  return {.cores = 2,
          .l1_bytes = 32 << 10,
          .l2_bytes = 256 << 10,
          .l3_bytes = 8 << 20,
          .clock_ghz = 3,
          .gflops = 100,
          .multiply_add_ns = 1.3,
          .l1_gbps = 4 * bandwidth,
          .l2_gbps = 3 * bandwidth,
          .l3_gbps = 2 * bandwidth,
          .memory_gbps = bandwidth,
          .store_gbps = 2 * bandwidth,
          .gathered_per_ns = 3,
          .call_ns = 10,
          .all_gflops = 200,
          .all_l3_gbps = 2 * bandwidth,
          .all_memory_gbps = bandwidth,
          .wake_ns = 1000};
}

const Target kTarget = *ParseTarget("llvm -mcpu=skylake-avx512 -triple=x86_64-linux-gnu");

std::vector<std::string> KeysOf(const graph::FusedGraph& fused) {
  std::vector<std::string> keys;
  for (const graph::Group& group : fused.groups) keys.push_back(group.key);
  return keys;
}

class MachineChoice : public ::testing::TestWithParam<const char*> {};

TEST_P(MachineChoice, ACompletePlanGivesTheSameTasksOnAnyMachine) {
  const std::string onnx = *zoo::MakeZooModel(GetParam(), 0);
  std::vector<ModelOptions> all(3);
  all[1].machine = Machine(1);
  all[2].machine = Machine(1000);
  std::vector<plan::Plan> plans(all.size());
  std::vector<std::vector<std::string>> tasks;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto fused = PrepareModel(onnx, all[i], kTarget, {}, &plans[i]);
    ASSERT_TRUE(fused.ok()) << fused.status();
    tasks.push_back(KeysOf(*fused));
  }
  for (size_t plan = 0; plan < plans.size(); ++plan) {
    for (const ModelOptions& options : all) {
      plan::Plan complete;
      const auto fused = PrepareModel(onnx, options, kTarget, plans[plan], &complete);
      ASSERT_TRUE(fused.ok()) << fused.status();
      EXPECT_EQ(KeysOf(*fused), tasks[plan]);
      EXPECT_EQ(complete, plans[plan]);
    }
  }
}

// A recurrence has products for alternate-products.
INSTANTIATE_TEST_SUITE_P(Zoo, MachineChoice,
                         ::testing::Values("squeezenet", "mobilenet_v2", "lstm_lm"));

// Or else the test above would say nothing.
TEST(MachineChoiceTest, WhatIsOpenIsChosenForTheMachine) {
  const std::string onnx = *zoo::MakeZooModel("mobilenet_v2", 0);
  std::vector<plan::Plan> plans(2);
  for (const bool fast : {false, true}) {
    ModelOptions options;
    options.machine = Machine(fast ? 1000 : 1);
    ASSERT_TRUE(PrepareModel(onnx, options, kTarget, {}, &plans[fast]).ok());
  }
  EXPECT_NE(plan::ToText(plans[0]), plan::ToText(plans[1]));
}

TEST(MachineChoiceTest, AModuleNamesItsMachine) {
  const std::string onnx = *zoo::MakeZooModel("mlp", 0);
  for (const bool measured : {false, true}) {
    ModelOptions options;
    if (measured) options.machine = Machine(10);
    const auto bytes = CompileModel(onnx, options, kTarget, {}, {});
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto module = runtime::ParseModule(*bytes);
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_EQ(module->manifest.machine, measured ? machine::ToText(*options.machine) : "");
  }
}

}  // namespace
}  // namespace heddle
