// Memory planning: values that are alive together never overlap.
#include "compiler/graph/fusion/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "client/zoo/zoo.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/onnx/import.h"
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

// Whether `result` may lie in `operand`'s place: an input of the group that makes it.
bool MayOverwrite(const FusedGraph& fused, const MemoryPlanOptions& options, int group,
                  ValueId result, ValueId operand) {
  if (options.may_overwrite.empty()) return false;
  const Group& g = fused.groups[static_cast<size_t>(group)];
  int uses = 0;  // one buffer must not be two inputs
  for (ValueId input : g.inputs) uses += fused.MemoryOf(input) == operand;
  for (const auto& [output, input] : options.may_overwrite[static_cast<size_t>(group)]) {
    if (g.outputs[static_cast<size_t>(output)] == result && uses == 1 &&
        fused.MemoryOf(g.inputs[static_cast<size_t>(input)]) == operand) {
      return true;
    }
  }
  return false;
}

// Returns how many results lie in the place of an operand.
int CheckPlan(const FusedGraph& fused, const MemoryPlanOptions& options) {
  const MemoryPlan plan = PlanMemory(fused, options);
  const std::map<ValueId, Life> lives = Lives(fused, plan);
  int in_place = 0;
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
      const bool is_first = life.born <= other.born;
      if (first.dies == second.born && first.begin == second.begin && first.end == second.end &&
          MayOverwrite(fused, options, second.born, is_first ? w : v, is_first ? v : w)) {
        ++in_place;
        continue;
      }
      EXPECT_LT(first.dies, second.born) << "values " << v << " and " << w << " overlap";
    }
  }
  EXPECT_EQ(plan.in_place, in_place);
  // Everything between groups has a place, nothing else has.
  for (const Group& group : fused.groups) {
    for (ValueId v : group.outputs) {
      const auto& outputs = fused.graph.outputs;
      const bool is_output = std::any_of(outputs.begin(), outputs.end(),
                                         [&](ValueId o) { return fused.MemoryOf(o) == v; });
      EXPECT_EQ(plan.offsets.count(v), is_output ? 0u : 1u);
    }
  }
  return in_place;
}

TEST(MemoryPlanProperty, LiveValuesNeverOverlap) {
  int in_place = 0;
  for (uint64_t seed = 0; seed < 300 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TestRng rng(seed);
    auto fused =
        Fuse(RandomGraph(rng, 4 + static_cast<int>(seed % 25)), {.enabled = seed % 3 != 0});
    ASSERT_TRUE(fused.ok());
    for (bool share : {true, false}) EXPECT_EQ(CheckPlan(*fused, {.share = share}), 0);
    // As if every kernel allowed any of its operands of the right size.
    MemoryPlanOptions options;
    for (const Group& group : fused->groups) {
      auto& pairs = options.may_overwrite.emplace_back();
      for (size_t o = 0; o < group.outputs.size(); ++o) {
        for (size_t i = 0; i < group.inputs.size(); ++i) {
          const graph::TensorType& result = fused->graph.values[group.outputs[o]].type;
          const graph::TensorType& operand = fused->graph.values[group.inputs[i]].type;
          if (result.shape == operand.shape && result.dtype == operand.dtype)
            pairs.emplace_back(static_cast<int>(o), static_cast<int>(i));
        }
      }
    }
    in_place += CheckPlan(*fused, options);
    options.share = false;
    EXPECT_EQ(CheckPlan(*fused, options), 0);
  }
  EXPECT_GT(in_place, 100);
}

// Two rows of 16 floats are multiplied by 16 x 16, which two products share, and by 16 x 8.
TEST(MemoryPlan, AnInferenceNeedsConstantsOnceTheArenaAndWhatIsGivenAndTaken) {
  TestRng rng(1);
  GraphBuilder b;
  const auto type = [](int64_t rows, int64_t columns) {
    return TensorType{ir::DType::kF32, {rows, columns}};
  };
  const TensorData shared = RandomTensor(rng, type(16, 16));
  ValueId v = b.Input("x", type(2, 16));
  v = *b.Add(OpKind::kMatmul, {v, b.Constant("w", shared)}, {}, "first");
  v = *b.Add(OpKind::kMatmul, {v, b.Constant("same", shared)}, {}, "second");
  v = *b.Add(OpKind::kMatmul, {v, b.Constant("last", RandomTensor(rng, type(16, 8)))}, {}, "third");
  const FusedGraph fused = *Fuse(*b.Build({{"y", v}}));
  const int64_t arena = PlanMemory(fused).arena_bytes;
  EXPECT_EQ(arena, 2 * 2 * 16 * 4) << "the first two results";
  EXPECT_EQ(InferenceBytes(fused), 4 * (16 * 16 + 16 * 8 + 2 * 16 + 2 * 8) + arena);
}

TEST(MemoryPlan, SharingSavesMostOfAResNet) {
  const FusedGraph fused = *Fuse(*Optimize(*ImportOnnx(*zoo::MakeZooModel("resnet18", 1))));
  const MemoryPlan plan = PlanMemory(fused);
  EXPECT_LT(plan.arena_bytes, plan.unshared_bytes / 2);
}

}  // namespace
}  // namespace heddle::graph
