// Memory planning: values that are alive together never overlap.
#include "compiler/graph/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "compiler/graph/onnx_import.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/zoo.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

struct Life {
  int born = 0, dies = 0;  // indices of the groups that write it first and read it last
  int64_t begin = 0, end = 0;
};

std::map<ValueId, Life> Lives(const FusedGraph& fused, const MemoryPlan& plan) {
  std::map<ValueId, Life> lives;
  for (size_t g = 0; g < fused.groups.size(); ++g) {
    const int now = static_cast<int>(g);
    for (ValueId v : fused.groups[g].outputs) {
      auto it = plan.offsets.find(v);
      if (it == plan.offsets.end()) continue;
      const TensorType& type = fused.graph.values[v].type;
      lives[v] = {now, now, it->second, it->second + NumElements(type) * ir::SizeOf(type.dtype)};
    }
    for (ValueId input : fused.groups[g].inputs) {
      const ValueId v = fused.MemoryOf(input);
      if (lives.count(v)) lives[v].dies = now;
    }
  }
  return lives;
}

void CheckPlan(const FusedGraph& fused, const MemoryPlanOptions& options) {
  const MemoryPlan plan = PlanMemory(fused, options);
  const std::map<ValueId, Life> lives = Lives(fused, plan);
  EXPECT_LE(plan.arena_bytes, plan.unshared_bytes);
  if (!options.share) {
    EXPECT_EQ(plan.arena_bytes, plan.unshared_bytes);
  }
  for (const auto& [v, life] : lives) {
    EXPECT_EQ(life.begin % 64, 0);
    EXPECT_LE(life.end, plan.arena_bytes);
    for (const auto& [w, other] : lives) {
      if (v >= w || life.begin >= other.end || other.begin >= life.end) continue;
      const Life &first = life.born <= other.born ? life : other,
                 &second = life.born <= other.born ? other : life;
      EXPECT_LT(first.dies, second.born) << "values " << v << " and " << w << " overlap";
    }
  }
  // Everything between groups has a place, nothing else has.
  for (const Group& group : fused.groups) {
    for (ValueId v : group.outputs) {
      const auto& outputs = fused.graph.outputs;
      const bool is_output = std::any_of(outputs.begin(), outputs.end(),
                                         [&](ValueId o) { return fused.MemoryOf(o) == v; });
      EXPECT_EQ(plan.offsets.count(v), is_output ? 0u : 1u);
    }
  }
}

TEST(MemoryPlanProperty, LiveValuesNeverOverlap) {
  for (uint64_t seed = 0; seed < 300 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TestRng rng(seed);
    auto fused =
        Fuse(RandomGraph(rng, 4 + static_cast<int>(seed % 25)), {.enabled = seed % 3 != 0});
    ASSERT_TRUE(fused.ok());
    for (bool share : {true, false}) CheckPlan(*fused, {.share = share});
  }
}

TEST(MemoryPlan, SharingSavesMostOfAResNet) {
  const FusedGraph fused = *Fuse(*Optimize(*ImportOnnx(*MakeZooModel("resnet18", 1))));
  const MemoryPlan plan = PlanMemory(fused);
  EXPECT_LT(plan.arena_bytes, plan.unshared_bytes / 2);
}

}  // namespace
}  // namespace heddle::graph
