// The strategies on a space whose every point is known.
#include "cost_model/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "compiler/tensor/expression.h"
#include "cost_model/search/methods.h"
#include "cost_model/search/strategies.h"
#include "tests/cost_model/matmul_space.h"

namespace heddle::cost_model {
namespace {

using testing::AnalyticSeconds;
using ::testing::HasSubstr;
using testing::MatmulSpace;
using testing::MatmulTask;
using testing::Measure;
using testing::Traces;

std::unique_ptr<Search> MakeAnnealing(Task task, uint64_t seed) {
  return MakeModelSearch(std::move(task), *FindMethod("annealing"), seed);
}
std::unique_ptr<Search> MakeEvolutionary(Task task, uint64_t seed) {
  return MakeModelSearch(std::move(task), *FindMethod("evolutionary"), seed);
}
std::unique_ptr<Search> MakeEnsemble(Task task, uint64_t seed) {
  return MakeModelSearch(std::move(task), *FindMethod("ensemble-ei"), seed);
}

using Maker = std::unique_ptr<Search> (*)(Task, uint64_t);

class EveryStrategy : public ::testing::TestWithParam<Maker> {};
INSTANTIATE_TEST_SUITE_P(Strategies, EveryStrategy,
                         ::testing::Values(MakeRandomSearch, MakeAnnealing, MakeEvolutionary,
                                           MakeEnsemble, MakeGeneticSearch));

TEST_P(EveryStrategy, BeginsWithTheDefaultAndNeverRepeats) {
  const auto search = GetParam()(MatmulTask({}), 1);
  std::set<std::string> seen;
  for (int batch = 0; batch < 8; ++batch) {
    const auto proposed = search->Propose(16);
    ASSERT_TRUE(proposed.ok()) << proposed.status();
    ASSERT_EQ(proposed->size(), 16u);
    for (size_t i = 0; i < proposed->size(); ++i) {
      const Candidate& c = (*proposed)[i];
      EXPECT_TRUE(seen.insert(c.trace).second) << c.trace;
      EXPECT_EQ(c.origin == "default", batch == 0 && i == 0);
    }
    ASSERT_TRUE(search->Update(Measure(*proposed)).ok());
  }
}

// Saved and restored between all calls, a search proposes what one that lives on proposes.
TEST_P(EveryStrategy, RepeatsExactlyAlsoThroughItsState) {
  const auto living = GetParam()(MatmulTask({}), 5);
  const auto twin = GetParam()(MatmulTask({}), 5);
  std::string state = GetParam()(MatmulTask({}), 5)->Save();
  const auto revive = [&] {
    auto search = GetParam()(MatmulTask({}), 99);  // the seed of the state counts
    EXPECT_TRUE(search->Restore(state).ok());
    return search;
  };
  for (int batch = 0; batch < 6; ++batch) {
    const auto expected = living->Propose(12);
    ASSERT_TRUE(expected.ok());
    EXPECT_EQ(Traces(*twin->Propose(12)), Traces(*expected)) << batch;
    auto search = revive();
    EXPECT_EQ(Traces(*search->Propose(12)), Traces(*expected)) << batch;
    state = search->Save();
    std::vector<Result> results = Measure(*expected);
    results[3].valid = false;
    ASSERT_TRUE(living->Update(results).ok());
    ASSERT_TRUE(twin->Update(results).ok());
    search = revive();
    ASSERT_TRUE(search->Update(results).ok());
    state = search->Save();
    EXPECT_EQ(state, living->Save()) << batch;
  }
  EXPECT_NE(Traces(*GetParam()(MatmulTask({}), 6)->Propose(12)), Traces(*revive()->Propose(12)));
}

TEST_P(EveryStrategy, ASmallSpaceIsProposedToTheLastPoint) {
  const MatmulSpace::Shape shape = {
      .tiles = 3, .orders = 2, .inner = 2, .parallel = 1, .infeasible = 4};
  std::set<std::string> all = {""};  // the default trace of the test task
  const MatmulSpace space(shape);
  schedule::Point p(6);
  for (p[0] = 0; p[0] < 3; ++p[0])
    for (p[1] = 0; p[1] < 3; ++p[1])
      for (p[2] = 0; p[2] < 3; ++p[2])
        for (p[3] = 0; p[3] < 2; ++p[3])
          for (p[4] = 0; p[4] < 2; ++p[4])
            if (const auto t = space.Expand(p);
                t.ok() && schedule::Replay(*ir::Parse(testing::kMatmul), *t).ok())
              all.insert(schedule::ToText(*t));
  ASSERT_GT(all.size(), 50u);
  const auto search = GetParam()(MatmulTask(shape), 3);
  std::set<std::string> seen;
  for (int batch = 0; batch < 30; ++batch) {
    const auto proposed = search->Propose(7);
    ASSERT_TRUE(proposed.ok());
    for (const Candidate& c : *proposed) EXPECT_TRUE(seen.insert(c.trace).second);
    ASSERT_TRUE(search->Update(Measure(*proposed)).ok());
  }
  EXPECT_EQ(seen, all);
  EXPECT_TRUE(search->Propose(7)->empty());
}

// One by one, so that the last points come up while redraws nearly always hit others.
TEST_P(EveryStrategy, EveryCallFindsAPointWhileThereIsOne) {
  const MatmulSpace::Shape shape = {.tiles = 5, .orders = 2, .inner = 2, .parallel = 1};
  const auto search = GetParam()(MatmulTask(shape), 3);
  for (int i = 0; i < 1 + 5 * 5 * 5 * 2 * 2; ++i) ASSERT_EQ(search->Propose(1)->size(), 1u) << i;
  EXPECT_TRUE(search->Propose(1)->empty());
}

TEST_P(EveryStrategy, ASpaceOfOnePoint) {
  const auto search =
      GetParam()(MatmulTask({.tiles = 1, .orders = 1, .inner = 1, .parallel = 1}), 3);
  const auto first = search->Propose(4);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->size(), 2u);  // the default and the point
  ASSERT_TRUE(search->Update(Measure(*first)).ok());
  EXPECT_TRUE(search->Propose(4)->empty());
}

TEST_P(EveryStrategy, GivesUpAfterBoundedRedraws) {
  int expansions = 0;
  const auto search =
      GetParam()(MatmulTask({.infeasible = 1}, &expansions), 3);  // nothing is feasible
  ASSERT_EQ(search->Propose(16)->size(), 1u);
  EXPECT_LE(expansions, 256 + 64 * 16 + 32 * 16);
  std::vector<Result> records;
  for (int i = 0; i < 7; ++i) {
    const std::string trace =
        "split i " + std::to_string(64 >> i) + " " + std::to_string(1 << i) + "\n";
    records.push_back({trace, true, 1e-3 * (i + 1)});
    records.push_back({trace + "unroll i.1\n", true, 2e-3 * (i + 1)});
  }
  ASSERT_TRUE(search->Update(records).ok());
  expansions = 0;
  EXPECT_TRUE(search->Propose(16)->empty());
  EXPECT_LE(expansions, 64 * 16 + 256 + 64 * 16);  // starts of chains, and redraws
}

TEST_P(EveryStrategy, NeverProposesWhatRecordsMeasured) {
  const MatmulSpace::Shape small = {.tiles = 2, .orders = 1, .inner = 1, .parallel = 1};
  const auto other = MakeRandomSearch(MatmulTask(small), 1);
  const std::vector<Candidate> all = *other->Propose(100);
  ASSERT_EQ(all.size(), 9u);
  const auto search = GetParam()(MatmulTask(small), 2);
  ASSERT_TRUE(search->Update(Measure({all.begin() + 1, all.begin() + 5})).ok());
  const auto proposed = search->Propose(100);
  EXPECT_EQ(proposed->size(), 5u);
  for (const Candidate& c : *proposed) {
    for (int i = 1; i < 5; ++i) EXPECT_NE(c.trace, all[static_cast<size_t>(i)].trace);
  }
}

TEST_P(EveryStrategy, PassesOverForeignTraces) {
  const auto search = GetParam()(MatmulTask({}), 2);
  EXPECT_TRUE(
      search->Update({{"no such step", true, 1.0}, {"split nowhere 2 2\n", true, 1.0}}).ok());
  EXPECT_EQ(search->Propose(4)->size(), 4u);
}

TEST_P(EveryStrategy, RefusesDamagedAndForeignStates) {
  const auto search = GetParam()(MatmulTask({}), 2);
  ASSERT_TRUE(search->Update(Measure(*search->Propose(16))).ok());
  ASSERT_TRUE(search->Propose(4).ok());
  const std::string state = search->Save();
  const auto expect_data_loss = [&](std::string_view blob, std::string_view what) {
    const auto victim = GetParam()(MatmulTask({}), 3);
    const std::string before = victim->Save();
    const absl::Status status = victim->Restore(blob);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(what)));
    EXPECT_EQ(victim->Save(), before);
  };
  for (size_t i = 0; i < state.size(); i += 1 + state.size() / 97) {
    std::string damaged = state;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    expect_data_loss(damaged, "");
    expect_data_loss(state.substr(0, i), "");
  }
  Task foreign = MatmulTask({});
  foreign.identity = 43;
  expect_data_loss(GetParam()(std::move(foreign), 2)->Save(), "another workload");
  const Maker other = GetParam() == MakeRandomSearch ? MakeAnnealing : MakeRandomSearch;
  expect_data_loss(other(MatmulTask({}), 2)->Save(), "strategy");
}

TEST(GridSearch, GoesThroughASmallSpaceInOrder) {
  const MatmulSpace::Shape shape = {.tiles = 3, .orders = 2, .inner = 2, .parallel = 1};
  auto search = MakeGridSearch(MatmulTask(shape), 1);
  std::vector<std::string> in_order = {""};  // the default trace of the test task
  const MatmulSpace space(shape);
  schedule::Point point(6, 0);
  do {
    const auto trace = space.Expand(point);
    if (schedule::Replay(*ir::Parse(testing::kMatmul), *trace).ok()) {
      in_order.push_back(schedule::ToText(*trace));
    }
  } while (space.Next(point));
  std::vector<std::string> seen;
  while (true) {
    const auto batch = search->Propose(7);
    if (batch->empty()) break;
    for (const std::string& trace : Traces(*batch)) seen.push_back(trace);
    const std::string state = search->Save();
    search = MakeGridSearch(MatmulTask(shape), 9);
    ASSERT_TRUE(search->Restore(state).ok());
  }
  EXPECT_EQ(seen, in_order);
}

// A convolution with padding, bias and activation, as the graph makes it.
std::string Convolution() {
  tensor::Builder b("conv");
  const auto x = b.Input("x", ir::DType::kF32, {1, 8, 14, 14});
  const auto w = b.Input("w", ir::DType::kF32, {16, 8, 3, 3});
  const auto bias = b.Input("bias", ir::DType::kF32, {16});
  const auto pad = b.Compute("pad", {1, 8, 16, 16}, [&](tensor::Iters i) {
    const auto inside = [](const ir::Expr& e) {
      return ir::And(ir::Le(ir::Int(1), e), ir::Lt(e, ir::Int(15)));
    };
    return ir::Select(ir::And(inside(i[2]), inside(i[3])),
                      x(i[0], i[1], i[2] - ir::Int(1), i[3] - ir::Int(1)), ir::Float(0));
  });
  const auto conv =
      b.Reduce("conv", {1, 16, 14, 14}, {8, 3, 3}, ir::ReduceOp::kSum,
               [&](tensor::Iters i, tensor::Iters r) {
                 return pad(i[0], r[0], i[2] + r[1], i[3] + r[2]) * w(i[1], r[0], r[1], r[2]);
               });
  const auto relu = b.Compute("relu", {1, 16, 14, 14}, [&](tensor::Iters i) {
    return ir::Make(ir::Op::kMax, {conv(i[0], i[1], i[2], i[3]) + bias(i[1]), ir::Float(0)});
  });
  const auto program = b.Build({relu});
  EXPECT_TRUE(program.ok()) << program.status();
  const auto loops = tensor::LowerToLoops(*program);
  EXPECT_TRUE(loops.ok()) << loops.status();
  return ir::Print(*loops);
}

// One that has Winograd forms.
std::string ChannelsLast() {
  tensor::Builder b("conv");
  const auto x = b.Input("x", ir::DType::kF32, {1, 14, 14, 8});
  const auto w = b.Input("w", ir::DType::kF32, {3, 3, 8, 16}, true);
  const auto conv =
      b.Reduce("conv", {1, 12, 12, 16}, {3, 3, 8}, ir::ReduceOp::kSum,
               [&](tensor::Iters i, tensor::Iters r) {
                 return x(i[0], i[1] + r[0], i[2] + r[1], r[2]) * w(r[0], r[1], r[2], i[3]);
               });
  return ir::Print(*tensor::LowerToLoops(*b.Build({conv})));
}

// What points have in common is evaluated once for all; that changes nothing.
TEST(CandidateSpace, EvaluatesEachPointAsIfItWereTheFirst) {
  for (const std::string& workload : {Convolution(), ChannelsLast()}) {
    absl::StatusOr<Task> task = MakeTask(workload, testing::TestTarget());
    ASSERT_TRUE(task.ok()) << task.status();
    const ir::Program naive = task->naive;
    CandidateSpace candidates(*std::move(task), 1);
    EXPECT_EQ(candidates.space().Describe(0) == "form", workload == ChannelsLast());
    schedule::Rng rng = candidates.NextRng();
    schedule::Point point = candidates.space().Preferred();
    int feasible = 0;
    for (int k = 0; k < 120; ++k, point = candidates.space().Mutate(point, rng)) {
      if (k % 15 == 7) point = candidates.space().Random(rng);
      if (k == 60) candidates.ForgetEvaluations();
      const Evaluated* found = candidates.Evaluate(point);
      const auto trace = candidates.space().Expand(point);
      const auto expected =
          trace.ok() ? EvaluateTrace(naive, testing::TestTarget(), schedule::ToText(*trace))
                     : trace.status();
      ASSERT_EQ(found != nullptr, expected.ok()) << expected.status();
      if (found == nullptr) continue;
      ++feasible;
      EXPECT_EQ(found->hash, expected->hash);
      ASSERT_EQ(found->features, expected->features) << schedule::ToText(*trace);
      EXPECT_EQ(candidates.EvaluateTrace(schedule::ToText(*trace))->features, expected->features);
    }
    EXPECT_GT(feasible, 40);
    EXPECT_EQ(candidates.EvaluateTrace("unroll nothing\n").status(),
              EvaluateTrace(naive, testing::TestTarget(), "unroll nothing\n").status());
  }
}

TEST(MakeSearch, EveryStrategyWorksOnAGeneratedSpace) {
  const std::string workload = Convolution();
  const machine::TargetInfo target = testing::TestTarget();
  const ir::Program naive = *ir::Parse(workload);
  const std::string default_trace = schedule::ToText(*schedule::DefaultTrace(naive, target));
  for (const std::string_view strategy : kStrategies) {
    EXPECT_TRUE(MakeSearch(workload, target, {std::string(strategy), 7}).ok()) << strategy;
  }
  for (const std::string strategy : {"annealing", "evolutionary", "genetic", "grid", "random"}) {
    SCOPED_TRACE(strategy);
    auto search = MakeSearch(workload, target, {strategy, 7});
    ASSERT_TRUE(search.ok()) << search.status();
    std::set<std::string> seen;
    for (int batch = 0; batch < 4; ++batch) {
      const auto proposed = (*search)->Propose(16);
      ASSERT_TRUE(proposed.ok()) << proposed.status();
      ASSERT_EQ(proposed->size(), 16u);
      if (batch == 0) {
        EXPECT_EQ((*proposed)[0].trace, default_trace);
      }
      std::vector<Result> results;
      for (const Candidate& c : *proposed) {
        EXPECT_TRUE(seen.insert(c.trace).second);
        const auto trace = schedule::ParseTrace(c.trace);
        ASSERT_TRUE(trace.ok()) << trace.status();
        const auto program = schedule::Replay(naive, *trace);
        ASSERT_TRUE(program.ok()) << program.status();
        results.push_back({c.trace, seen.size() % 5 != 0, 1e-3 / static_cast<double>(seen.size())});
      }
      ASSERT_TRUE((*search)->Update(results).ok());
      const std::string state = (*search)->Save();
      EXPECT_LT(state.size(), size_t{1} << 20);
      search = MakeSearch(workload, target, {strategy, 8});
      ASSERT_TRUE((*search)->Restore(state).ok());
    }
  }
}

TEST(MakeSearch, SaysWhatIsWrong) {
  const machine::TargetInfo target = testing::TestTarget();
  const absl::Status unknown = MakeSearch(testing::kMatmul, target, {"magic", 1}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("'magic'; it must be annealing, "));
  for (const char* workload :
       {"", "nonsense", "program p(A: f32[4]) -> (B: f32[4]) { B[0] = A[9] }"}) {
    EXPECT_EQ(MakeSearch(workload, target, {}).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(MakeSearch, StatesOfOtherTasksAreRefused) {
  const machine::TargetInfo target = testing::TestTarget();
  machine::TargetInfo other = target;
  other.target.threads = 3;
  const std::string state = (*MakeSearch(testing::kMatmul, target, {}))->Save();
  EXPECT_TRUE((*MakeSearch(testing::kMatmul, target, {}))->Restore(state).ok());
  EXPECT_EQ((*MakeSearch(testing::kMatmul, other, {}))->Restore(state).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ((*MakeSearch(Convolution(), target, {}))->Restore(state).code(),
            absl::StatusCode::kDataLoss);
}

// The default schedule is a point to start from once it is measured, where the space has it.
TEST(CandidateSpace, KnowsThePointOfTheDefaultSchedule) {
  EXPECT_FALSE(CandidateSpace(MatmulTask({}), 1).DefaultPoint().has_value());
  Task task = MatmulTask({});
  task.default_trace = *task.space->Expand(task.space->Preferred());
  const schedule::Point preferred = task.space->Preferred();
  CandidateSpace space(std::move(task), 1);
  EXPECT_EQ(space.DefaultPoint(), preferred);
  const std::optional<Candidate> first = space.TakeDefault();
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(space.IsDefault(HashBytes(first->trace)));
  EXPECT_FALSE(space.IsDefault(HashBytes(first->trace + " ")));
}

}  // namespace
}  // namespace heddle::cost_model
