// Which stages get a parallel loop by default: those that save more time than waking other threads costs, whatever rule
// schedules them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "compiler/schedule/rules/stage.h"
#include "compiler/schedule/rules/stage_work.h"
#include "compiler/schedule/space.h"
#include "compiler/tensor/expression.h"
#include "tests/schedule/workloads.h"

namespace heddle::schedule {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

machine::TargetInfo Machine(double wake_ns, int threads = 2) {
  machine::TargetInfo target = Wide();
  target.target.threads = threads;
  target.core.wake_ns = wake_ns;
  return target;
}

std::string Default(const ir::Program& naive, const machine::TargetInfo& target) {
  return ToText(DefaultTrace(naive, target).value());
}

bool IsParallel(const ir::Program& naive, double wake_ns) {
  return Default(naive, Machine(wake_ns)).find("parallel ") != std::string::npos;
}

ir::Program Product(int64_t rows, int64_t columns, int64_t steps, bool constant = true) {
  tensor::Builder b("product");
  const tensor::Tensor x = b.Input("x", ir::DType::kF32, {rows, steps}),
                       w = b.Input("w", ir::DType::kF32, {steps, columns}, constant);
  const tensor::Tensor y =
      b.Reduce("product", {rows, columns}, {steps}, ir::ReduceOp::kSum,
               [&](tensor::Iters s, tensor::Iters r) { return x(s[0], r[0]) * w(r[0], s[1]); });
  return tensor::LowerToLoops(b.Build({y}).value()).value();
}

// max(x, 0), or exp(x).
ir::Program Elementwise(int64_t elements, bool special) {
  tensor::Builder b("elementwise");
  const tensor::Tensor x = b.Input("x", ir::DType::kF32, {elements});
  const tensor::Tensor y = b.Compute("y", {elements}, [&](tensor::Iters s) {
    return special ? ir::Make(ir::Op::kExp, {x(s[0])})
                   : ir::Make(ir::Op::kMax, x(s[0]), ir::Float(0));
  });
  return tensor::LowerToLoops(b.Build({y}).value()).value();
}

TEST(Threads, EveryRuleAsksWhatWakingCosts) {
  constexpr double kForever = 1e15;
  for (const std::string& name : WorkloadNames()) {
    const ir::Program naive = MakeWorkload(name).value();
    EXPECT_THAT(Default(naive, Machine(kForever)), Not(HasSubstr("parallel "))) << name;
    EXPECT_THAT(Default(naive, Machine(0)), HasSubstr("parallel ")) << name;
    EXPECT_THAT(Default(naive, Machine(0, 1)), Not(HasSubstr("parallel "))) << name;
  }
}

TEST(Threads, AreWokenForWhatTheySave) {
  struct Case {
    const char* what;
    ir::Program naive;
    bool at_1_us, at_100_us;
  };
  // The figures are those of the reference machine: 2.7 GHz, 32 multiply-adds or 24 bytes in a cycle.
  const Case cases[] = {
      {"115 k multiply-adds, but 0.5 MB: 7 us", Product(4096, 1, 28), true, false},
      {"115 k of few rows: 1.3 us, of which half is saved", Product(64, 64, 28), false, false},
      {"17 M multiply-adds: 194 us", Product(256, 256, 256), true, false},
      {"134 M multiply-adds: 1.6 ms", Product(512, 512, 512), true, true},
      {"2 K elements: 0.25 us", Elementwise(2 << 10, false), false, false},
      {"64 K elements: 8 us", Elementwise(64 << 10, false), true, false},
      {"2 K powers of e: 1 us", Elementwise(2 << 10, true), false, false},
      {"16 K powers of e: 8 us", Elementwise(16 << 10, true), true, false},
      // 2.6 k look-ups at two a cycle, and 230 k.
      {"32 trees, 9 steps, 1 record: 1 us", MakeWalk(1, 32, 9, 1, 1), false, false},
      {"32 trees, 9 steps, 256 records", MakeWalk(1, 32, 9, 1, 256), true, false},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(IsParallel(c.naive, 1'000), c.at_1_us) << c.what;
    EXPECT_EQ(IsParallel(c.naive, 100'000), c.at_100_us) << c.what;
  }
}

// What the work of a stage is made of.
TEST(Threads, TheWorkOfAStage) {
  const machine::TargetInfo target = Machine(1000);
  const auto work = [&](const ir::Program& naive) {
    const std::vector<Stage> stages = ReductionsOf(naive, {});
    return stages.empty() ? WorkOf(StagesLeft(naive, {})[0], target) : WorkOf(stages[0], target);
  };
  // A multiplication and an addition are one operation of 16 lanes; constants are no bytes.
  const machine::CoreWork product = work(Product(64, 64, 28));
  EXPECT_DOUBLE_EQ(product.cycles, 64 * 64 * 28 / 16.0 / 2);
  EXPECT_DOUBLE_EQ(product.bytes, 4 * (64 * 28 + 64 * 64));
  EXPECT_DOUBLE_EQ(work(Product(64, 64, 28, false)).bytes, 4 * (64 * 28 + 64 * 64 + 28 * 64));
  const machine::CoreWork exp = work(Elementwise(1600, true));
  EXPECT_DOUBLE_EQ(exp.cycles, 100 * target.code.prior.special_operations / 2);
  EXPECT_DOUBLE_EQ(exp.bytes, 2 * 4 * 1600);
  // The producer of a reduction counts, too, and what stands between them is no memory.
  tensor::Builder b("sum");
  const tensor::Tensor x = b.Input("x", ir::DType::kF32, {32, 64});
  const tensor::Tensor e = b.Compute(
      "e", {32, 64}, [&](tensor::Iters s) { return ir::Make(ir::Op::kExp, {x(s[0], s[1])}); });
  const tensor::Tensor sum =
      b.Reduce("sum", {32}, {64}, ir::ReduceOp::kSum,
               [&](tensor::Iters s, tensor::Iters r) { return e(s[0], r[0]); });
  const machine::CoreWork summed = work(tensor::LowerToLoops(b.Build({sum}).value()).value());
  EXPECT_DOUBLE_EQ(summed.cycles, 32 * 64 / 16.0 * (target.code.prior.special_operations + 1) / 2);
  EXPECT_DOUBLE_EQ(summed.bytes, 4 * (32 * 64 + 32));
}

}  // namespace
}  // namespace heddle::schedule
