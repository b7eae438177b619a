// Kernels in a model: constants that are still in a cache cost less, and how much less is computed by hand and by an
// oracle.
#include "compiler/plan/reuse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/fusion/memory_plan.h"
#include "tests/graph/random_graph.h"

namespace heddle::plan {
namespace {

using graph::FusedGraph;
using graph::GraphBuilder;
using graph::OpKind;
using graph::ValueId;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr double kCold = 10'000;  // ns of every kernel alone
constexpr double kWeights = 16 << 10;

// Caches of 64 KiB and 1 MiB. Bytes in a nanosecond: 100, 50, and 10 from memory.
machine::TargetInfo Small() {
  machine::TargetInfo target;
  target.graph_speed.peak_gflops = 1e6;
  target.graph_speed.l2_bytes = 64 << 10;
  target.graph_speed.l3_bytes = 1 << 20;
  target.graph_speed.l2_read_bytes_per_ns = 100;
  target.graph_speed.l3_read_bytes_per_ns = 50;
  target.graph_speed.memory_read_bytes_per_ns = 10;
  return target;
}
const double kFromL2 = kCold - kWeights * (1.0 / 10 - 1.0 / 100);
const double kFromL3 = kCold - kWeights * (1.0 / 10 - 1.0 / 50);

// Products one after the other. Each multiplies a row of 64 by a matrix.
class Chain {
 public:
  Chain() { row_ = b_.Input("x", {ir::DType::kF32, {1, 64}}); }

  // A matrix of 16 KiB.
  ValueId Weights() { return Matrix(64); }
  void Multiply(ValueId weights) { row_ = *b_.Add(OpKind::kMatmul, {row_, weights}, {}, "y"); }
  // Touches about so many bytes: a product with a matrix, and one back to a row of 64.
  void Touch(int64_t bytes) {
    const int64_t columns = bytes / 2 / 64 / 4;
    Multiply(Matrix(columns));
    Multiply(b_.Constant("back", graph::RandomTensor(rng_, {ir::DType::kF32, {columns, 64}})));
  }
  GraphBuilder& builder() { return b_; }
  graph::TestRng& rng() { return rng_; }
  ValueId row() const { return row_; }

  FusedGraph Make(bool fuse = true) {
    return *graph::Fuse(*b_.Build({{"y", row_}}), {.enabled = fuse});
  }

 private:
  ValueId Matrix(int64_t columns) {
    return b_.Constant("w", graph::RandomTensor(rng_, {ir::DType::kF32, {64, columns}}));
  }

  graph::TestRng rng_{7};
  GraphBuilder b_;
  ValueId row_ = -1;
};

std::vector<double> Costs(const FusedGraph& fused, const machine::TargetInfo& target = Small()) {
  return ReuseModel(target).CostsNs(fused, std::vector<double>(fused.groups.size(), kCold));
}

TEST(Reuse, StepsThatShareWeightsReadThemFromTheCache) {
  Chain chain;
  const ValueId w = chain.Weights();
  for (int step = 0; step < 3; ++step) chain.Multiply(w);
  chain.Touch(4 << 20);  // so the next inference finds nothing
  EXPECT_THAT(Costs(chain.Make()), ElementsAre(kCold, DoubleNear(kFromL2, 1e-6),
                                               DoubleNear(kFromL2, 1e-6), kCold, kCold));
}

TEST(Reuse, DistinctWeightsOfALargeModelAreCold) {
  Chain chain;
  for (int step = 0; step < 3; ++step) chain.Multiply(chain.Weights());
  chain.Touch(4 << 20);
  EXPECT_THAT(Costs(chain.Make()), ::testing::Each(kCold));
}

TEST(Reuse, TheDistanceDecidesTheLevel) {
  for (const auto& [between, again] :
       {std::pair(32 << 10, kFromL2), std::pair(512 << 10, kFromL3), std::pair(2 << 20, kCold)}) {
    Chain chain;
    const ValueId w = chain.Weights();
    chain.Multiply(w);
    chain.Touch(between);
    chain.Multiply(w);
    chain.Touch(4 << 20);
    const std::vector<double> costs = Costs(chain.Make());
    EXPECT_EQ(costs[0], kCold) << between;
    EXPECT_NEAR(costs[3], again, 1e-6) << between;
  }
}

TEST(Reuse, AModelThatFitsACacheStaysThere) {
  for (const auto& [steps, again] : {std::pair(3, kFromL2), std::pair(6, kFromL3)}) {
    Chain chain;
    for (int step = 0; step < steps; ++step) chain.Multiply(chain.Weights());
    EXPECT_THAT(Costs(chain.Make()), ::testing::Each(DoubleNear(again, 1e-6)));
  }
}

// A module has equal constants once. Two kernels may pack one constant in two ways.
TEST(Reuse, ConstantsAreToldApartByElementsAndKernels) {
  Chain equal;
  const graph::TensorType type{ir::DType::kF32, {64, 64}};
  for (const double value : {1.5, 1.5, 2.5})
    equal.Multiply(equal.builder().Constant("w", graph::Filled(type, value)));
  equal.Touch(4 << 20);
  EXPECT_THAT(Costs(equal.Make()),
              ElementsAre(kCold, DoubleNear(kFromL2, 1e-6), kCold, kCold, kCold));

  Chain kernels;
  GraphBuilder& b = kernels.builder();
  const ValueId w = kernels.Weights(), rows = b.Input("rows", {ir::DType::kF32, {8, 64}});
  const ValueId one = *b.Add(OpKind::kMatmul, {kernels.row(), w}, {}, "one");
  const ValueId eight = *b.Add(OpKind::kMatmul, {rows, w}, {}, "eight");
  kernels.Touch(4 << 20);
  const FusedGraph fused =
      *graph::Fuse(*b.Build({{"one", one}, {"eight", eight}, {"y", kernels.row()}}));
  EXPECT_THAT(Costs(fused), ::testing::Each(kCold));
}

TEST(Reuse, AGatherTouchesFewRows) {
  Chain chain;
  GraphBuilder& b = chain.builder();
  const ValueId table =
      b.Constant("table", graph::RandomTensor(chain.rng(), {ir::DType::kF32, {1 << 15, 64}}));
  const ValueId ids = b.Constant("ids", graph::FromInts({3}));
  const ValueId row = *b.Add(OpKind::kGather, {table, ids}, {}, "gather");
  chain.Multiply(chain.Weights());
  const FusedGraph fused = *graph::Fuse(*b.Build({{"row", row}, {"y", chain.row()}}));
  const std::vector<double> costs = Costs(fused);
  ASSERT_EQ(costs.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const std::vector<int64_t> touched = TouchedBytes(fused, fused.groups[i]);
    if (fused.groups[i].label.find("gather") != std::string::npos) {
      EXPECT_THAT(touched, ElementsAre(256, 8));
      EXPECT_EQ(costs[i], kCold);  // so little saves nothing
    } else {
      EXPECT_THAT(touched, ElementsAre(256, 16 << 10));
      EXPECT_NEAR(costs[i], kFromL2, 1e-6);
    }
  }
}

// A walk of three steps reads a line of each table at each step, and a line of leaves at the end. Many walks read all.
TEST(Reuse, WalksThroughTreesTouchFewLines) {
  const auto touched = [](int64_t records) {
    GraphBuilder b;
    const graph::Shape nodes{1, 2, 512};
    const ValueId x = b.Input("x", {ir::DType::kF32, {4, records}});
    const ValueId columns =
        b.Constant("columns", graph::FromElements(nodes, std::vector<int32_t>(1024, 0)));
    const ValueId thresholds =
        b.Constant("thresholds", graph::FromElements(nodes, std::vector<float>(1024, 0)));
    const ValueId left =
        b.Constant("left", graph::FromElements(nodes, std::vector<int32_t>(1024, 0)));
    const ValueId values =
        b.Constant("values", graph::FromElements({1, 2, 512, 1}, std::vector<float>(1024, 0)));
    const ValueId y = *b.Add(OpKind::kForestWalk, {x, columns, thresholds, left, values},
                             {{"steps", int64_t{3}}, {"reduce", std::string("sum")}}, "forest");
    const FusedGraph fused = *graph::Fuse(*b.Build({{"y", y}}));
    EXPECT_EQ(fused.groups.size(), 1u);
    // It was timed with warm tables, and saves nothing in a model.
    EXPECT_TRUE(fused.groups[0].timed_warm);
    EXPECT_THAT(Costs(fused), ElementsAre(kCold));
    EXPECT_EQ(ReuseModel(Small()).LeastNs(fused, fused.groups[0], kCold), kCold);
    return TouchedBytes(fused, fused.groups[0]);
  };
  EXPECT_THAT(touched(1), UnorderedElementsAre(4 * 4, 2 * 3 * 64, 2 * 3 * 64, 2 * 3 * 64, 2 * 64));
  EXPECT_THAT(touched(10), UnorderedElementsAre(4 * 40, 3840, 3840, 3840, 10 * 2 * 64));
  EXPECT_THAT(touched(100), UnorderedElementsAre(4 * 400, 4096, 4096, 4096, 4096));
}

// Twenty values of 16 KiB share an arena that has room for a few.
TEST(Reuse, IntermediateValuesCountNoMoreThanTheirArena) {
  GraphBuilder b;
  graph::TestRng rng(1);
  const ValueId x = b.Input("x", {ir::DType::kF32, {64, 64}});
  const ValueId w = b.Constant("w", graph::RandomTensor(rng, {ir::DType::kF32, {64, 64}}));
  ValueId v = *b.Add(OpKind::kMatmul, {x, w}, {}, "product");
  for (int i = 0; i < 20; ++i)
    v = *b.Add(OpKind::kTranspose, {v}, {{"perm", graph::Shape{1, 0}}}, "transpose");
  const FusedGraph fused = *graph::Fuse(*b.Build({{"y", v}}), {.enabled = false});
  machine::TargetInfo target = Small();
  target.graph_speed.l2_bytes = 128 << 10;
  target.graph_speed.l3_bytes = 0;
  EXPECT_NEAR(Costs(fused, target)[0], kFromL2, 1e-6);
  target.graph_speed.l2_bytes = 32 << 10;
  EXPECT_EQ(Costs(fused, target)[0], kCold);
}

TEST(Reuse, WhatBoundsAKernelBoundsWhatItSaves) {
  Chain chain;
  const ValueId w = chain.Weights();
  for (int step = 0; step < 3; ++step) chain.Multiply(w);
  const FusedGraph fused = chain.Make();
  // By arithmetic: nothing is saved.
  machine::TargetInfo slow = Small();
  slow.graph_speed.peak_gflops = 1;
  EXPECT_THAT(Costs(fused, slow), ::testing::Each(kCold));
  // No kernel takes less than to read its operands from the cache, unless it took less alone.
  const double least = (kWeights + 512) / 100;
  const std::vector<double> costs = ReuseModel(Small()).CostsNs(fused, {1, least, 2 * least});
  EXPECT_THAT(costs, ElementsAre(1, DoubleNear(least, 1e-9), DoubleNear(least, 1e-9)));
  // Several threads read as many times as fast, and save less. A kernel that is not worth waking them saves what one thread does.
  machine::TargetInfo four = Small();
  four.target.threads = 4;
  four.core.wake_ns = 0;
  EXPECT_THAT(Costs(fused, four), ::testing::Each(DoubleNear(kCold - (kCold - kFromL2) / 4, 1e-6)));
  four.core.wake_ns = 1000;
  EXPECT_THAT(Costs(fused, four), ::testing::Each(DoubleNear(kFromL2, 1e-6)));
  // A third-level cache that a timed kernel finds its weights in.
  machine::TargetInfo large = Small();
  large.graph_speed.l3_bytes = int64_t{1} << 30;
  const double from_l3 = kCold - kWeights * (1.0 / 50 - 1.0 / 100);
  EXPECT_THAT(Costs(fused, large), ::testing::Each(DoubleNear(from_l3, 1e-6)));
  // The caches of a GPU are unknown.
  machine::TargetInfo grid = Small();
  grid.execution = machine::Execution::kGrid;
  EXPECT_THAT(Costs(fused, grid), ::testing::Each(kCold));
}

// Of two operands and a result of 16 KiB each, or of one, a result in the place of an operand need not be moved.
TEST(Reuse, AResultTakesThePlaceOfAnOperandThatNobodyReadsLater) {
  const double saved = (16 << 10) / 100.0;
  // What the kernel of "r" saves, which reads values that transposes make. `add`: the nodes from "r" on; returns the outputs.
  using Values = std::vector<std::pair<std::string, ValueId>>;
  const auto saves = [&](const std::function<Values(GraphBuilder&, ValueId, ValueId)>& add) {
    GraphBuilder b;
    const graph::TensorType type{ir::DType::kF32, {64, 64}};
    const ValueId x = b.Input("x", type), y = b.Input("y", type);
    const graph::Attrs perm{{"perm", graph::Shape{1, 0}}};
    const ValueId one = *b.Add(OpKind::kTranspose, {x}, perm, "one");
    const ValueId two = *b.Add(OpKind::kTranspose, {y}, perm, "two");
    const Values outputs = add(b, one, two);
    const FusedGraph fused = *graph::Fuse(*b.Build(outputs), {.enabled = false});
    const ReuseModel model(Small());
    const std::vector<double> costs = Costs(fused);
    const std::vector<bool> may = model.MayReuse(fused);
    double sum = 0;
    for (size_t i = 0; i < costs.size(); ++i) {
      EXPECT_GE(costs[i], model.LeastNs(fused, fused.groups[i], kCold));
      EXPECT_TRUE(may[i] || costs[i] == kCold);
      sum += kCold - costs[i];
    }
    return sum;
  };
  const auto transposed = [](GraphBuilder& b, ValueId v) {
    return *b.Add(OpKind::kTranspose, {v}, {{"perm", graph::Shape{1, 0}}}, "transposed");
  };
  const auto relu = [](GraphBuilder& b, ValueId v) { return *b.Add(OpKind::kRelu, {v}, {}, "r"); };
  EXPECT_NEAR(saves([&](GraphBuilder& b, ValueId one, ValueId two) -> Values {
                return {{"out", transposed(b, relu(b, one))}, {"other", two}};
              }),
              saved, 1e-6);
  // Two operands are read, and one of them is overwritten.
  EXPECT_NEAR(saves([&](GraphBuilder& b, ValueId one, ValueId two) -> Values {
                return {{"out", transposed(b, *b.Add(OpKind::kAdd, {one, two}, {}, "r"))}};
              }),
              48 * 1024 / 100.0 - 32 * 1024 / 100.0, 1e-6);
  // Somebody reads the operand later.
  EXPECT_EQ(saves([&](GraphBuilder& b, ValueId one, ValueId two) -> Values {
              const ValueId r = relu(b, one);
              return {{"out", transposed(b, r)}, {"later", transposed(b, one)}, {"other", two}};
            }),
            0);
  // The result has a place of its own: it is one of the model.
  EXPECT_EQ(saves([&](GraphBuilder& b, ValueId one, ValueId two) -> Values {
              return {{"out", relu(b, one)}, {"other", two}};
            }),
            0);
  // So has the operand: it is one of the model.
  EXPECT_EQ(saves([&](GraphBuilder& b, ValueId one, ValueId two) -> Values {
              return {{"out", transposed(b, relu(b, one))}, {"one", one}, {"other", two}};
            }),
            0);
  // An element is read at another place.
  EXPECT_EQ(saves([&](GraphBuilder& b, ValueId one, ValueId two) -> Values {
              return {{"out", transposed(b, transposed(b, one))}, {"other", two}};
            }),
            0);
}

// A short kernel takes 2.4 us alone, 1.5 us of which it reads a table of 16 KiB from memory. If two threads were thought to read that,
// it would cost 1.7 us in a model, and a form of the same forest that has no table and takes 1 us would be chosen wrongly.
TEST(Reuse, ThreadsThatStayAsleepReadNothing) {
  for (const int threads : {1, 2, 8}) {
    Chain chain;
    chain.Multiply(chain.Weights());
    machine::TargetInfo target = Small();
    target.target.threads = threads;
    const double with_table = ReuseModel(target).CostsNs(chain.Make(), {2'400})[0];
    EXPECT_NEAR(with_table, 2'400 - kWeights * (1.0 / 10 - 1.0 / 100), 1e-6) << threads;
    EXPECT_LT(with_table, 1'000) << threads;
  }
}

// The costs as reuse.h defines them, from a list of everything that two inferences touch.
std::vector<double> Oracle(const FusedGraph& fused, const std::vector<double>& cold,
                           const machine::TargetInfo& target) {
  const machine::GraphSpeed& speed = target.graph_speed;
  const auto rate = [&](int64_t distance) {
    return distance <= speed.l2_bytes   ? speed.l2_read_bytes_per_ns
           : distance <= speed.l3_bytes ? speed.l3_read_bytes_per_ns
                                        : speed.memory_read_bytes_per_ns;
  };
  const auto size_of = [&](ValueId v) {
    return graph::NumElements(fused.graph.values[static_cast<size_t>(v)].type) * 4;
  };
  int64_t others_bytes = graph::PlanMemory(fused).arena_bytes;
  for (const ValueId v : fused.graph.inputs) others_bytes += size_of(v);
  for (const ValueId v : fused.graph.outputs) others_bytes += size_of(v);
  std::map<std::string, int> numbers;  // of constants
  struct Touched {
    std::map<int, int64_t> constants, others;
  };
  std::vector<Touched> calls;
  for (int inference = 0; inference < 2; ++inference) {
    for (const graph::Group& group : fused.groups) {
      Touched& call = calls.emplace_back();
      for (const auto* values : {&group.inputs, &group.outputs}) {
        for (const ValueId v : *values) {
          const ValueId memory = fused.MemoryOf(v);
          const auto data = fused.graph.constants.find(v);
          if (data == fused.graph.constants.end()) {
            call.others[memory] = size_of(v);
          } else {
            const std::string name = group.key + std::string(*data->second.bytes);
            const int number = static_cast<int>(numbers.size());
            call.constants[numbers.try_emplace(name, number).first->second] = size_of(v);
          }
        }
      }
    }
  }
  std::vector<double> costs;
  const size_t count = fused.groups.size();
  for (size_t now = count; now < 2 * count; ++now) {
    double activations = 0, cold_ns = 0, warm_ns = 0;
    for (const auto& [memory, bytes] : calls[now].others) activations += static_cast<double>(bytes);
    for (const auto& [number, bytes] : calls[now].constants) {
      size_t before = now - 1;
      while (!calls[before].constants.contains(number)) --before;
      std::map<int, int64_t> constants, others;
      for (size_t t = before; t <= now; ++t) {
        for (const auto& [other, size] : calls[t].constants) constants[other] = size;
        for (const auto& [other, size] : calls[t].others) others[other] = size;
      }
      int64_t sum = 0, sum_others = 0;
      for (const auto& [other, size] : constants) sum += size;
      for (const auto& [other, size] : others) sum_others += size;
      const auto size = static_cast<double>(bytes);
      cold_ns += size / speed.memory_read_bytes_per_ns;
      warm_ns += size / rate(sum + std::min(sum_others, others_bytes));
    }
    const double moved = activations / rate(static_cast<int64_t>(activations)),
                 computed = fused.groups[now - count].flops / speed.peak_gflops;
    const double before = std::max(computed, cold_ns + moved),
                 after = std::max(computed, warm_ns + moved), alone = cold[now - count];
    costs.push_back(std::min(alone, std::max(after, alone - (before - after))));
  }
  return costs;
}

TEST(Reuse, IsWhatTheDefinitionSays) {
  int cold = 0, warm = 0, never = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    graph::TestRng rng(seed);
    const auto pick = [&](size_t n) { return static_cast<size_t>(rng() % n); };
    // Square products of a few widths. Weights are shared at random, or have equal elements.
    GraphBuilder b;
    constexpr int64_t kWidths[] = {32, 64, 128};
    std::vector<ValueId> rows, outputs;
    for (const int64_t width : kWidths) rows.push_back(b.Input("x", {ir::DType::kF32, {2, width}}));
    std::map<size_t, std::vector<ValueId>> weights;  // by width
    const bool share = pick(3) > 0;
    bool shares = false;
    for (int i = 0; i < 12; ++i) {
      const size_t which = pick(3);
      const graph::TensorType type{ir::DType::kF32, {kWidths[which], kWidths[which]}};
      std::vector<ValueId>& known = weights[which];
      ValueId w = -1;
      if (share && !known.empty() && pick(2) == 0) {
        w = known[pick(known.size())];
        if (pick(2) == 0) {
          const graph::TensorData& data = *b.ConstantData(w);
          w = b.Constant("same", {data.type, SharedBytes::Copy(*data.bytes)});
        }
        shares = true;
      } else {
        w = known.emplace_back(b.Constant("w", graph::RandomTensor(rng, type)));
      }
      rows[which] = *b.Add(OpKind::kMatmul, {rows[which], w}, {}, "y");
    }
    std::vector<std::pair<std::string, ValueId>> named;
    for (const ValueId v : rows) named.emplace_back(absl::StrCat("y", named.size()), v);
    const FusedGraph fused = *graph::Fuse(*b.Build(named), {.enabled = pick(2) == 0});

    machine::TargetInfo target;
    machine::GraphSpeed& speed = target.graph_speed;
    speed.peak_gflops = pick(4) == 0 ? 20 : 1e5;
    speed.l2_bytes = int64_t{4096} << pick(7);
    speed.l3_bytes = pick(3) == 0 ? 0 : speed.l2_bytes << pick(5);
    std::vector<double> alone;
    int64_t constant_bytes = 0;
    std::set<std::string> counted;
    for (const graph::Group& group : fused.groups) {
      alone.push_back(1 + static_cast<double>(pick(8000)));
      for (const ValueId v : group.inputs) {
        const auto data = fused.graph.constants.find(v);
        if (data != fused.graph.constants.end() &&
            counted.insert(std::string(*data->second.bytes)).second)
          constant_bytes += static_cast<int64_t>(data->second.bytes->size());
      }
    }
    const std::vector<double> expected = Oracle(fused, alone, target);
    const ReuseModel model(target);
    const std::vector<double> found = model.CostsNs(fused, alone);
    const std::vector<bool> may = model.MayReuse(fused);
    ASSERT_EQ(found.size(), alone.size());
    for (size_t i = 0; i < found.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", call ", i));
      EXPECT_LE(found[i], alone[i]);
      EXPECT_GE(found[i], model.LeastNs(fused, fused.groups[i], alone[i]));
      EXPECT_GE(found[i], std::min(alone[i], fused.groups[i].flops / speed.peak_gflops));
      if (!may[i]) {
        EXPECT_EQ(found[i], alone[i]);
      }
      never += !may[i];
      (found[i] == alone[i] ? cold : warm) += 1;
    }
    if (!shares && constant_bytes > std::max(speed.l2_bytes, speed.l3_bytes)) {
      EXPECT_EQ(found, alone) << "seed " << seed;
    }
    EXPECT_THAT(found, ::testing::Pointwise(DoubleNear(1e-6), expected)) << "seed " << seed;
  }
  EXPECT_GT(cold, 300);
  EXPECT_GT(warm, 300);
  EXPECT_GT(never, 100);
}

}  // namespace
}  // namespace heddle::plan
