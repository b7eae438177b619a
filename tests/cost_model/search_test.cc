// The strategies on a space whose every point is known.
#include "cost_model/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "compiler/tensor/expression.h"
#include "cost_model/methods.h"
#include "cost_model/samples.h"
#include "cost_model/shortlist.h"
#include "cost_model/strategies.h"
#include "tests/cost_model/matmul_space.h"

namespace heddle::cost_model {
namespace {

using testing::AnalyticSeconds;
using ::testing::HasSubstr;
using testing::MatmulSpace;
using testing::MatmulTask;

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

std::vector<Result> Measure(const std::vector<Candidate>& candidates) {
  std::vector<Result> results;
  for (const Candidate& c : candidates)
    results.push_back({c.trace, true, AnalyticSeconds(c.trace)});
  return results;
}

std::vector<std::string> Traces(const std::vector<Candidate>& candidates) {
  std::vector<std::string> traces;
  for (const Candidate& c : candidates) traces.push_back(c.trace);
  return traces;
}

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
  EXPECT_LE(expansions, 256 + 64 * 16);
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

TEST(AnnealingSearch, RefusesAStateOfAnotherSpace) {
  const auto search = MakeAnnealing(MatmulTask({}), 2);
  ASSERT_TRUE(search->Update(Measure(*search->Propose(32))).ok());
  const auto smaller = MakeAnnealing(MatmulTask({.tiles = 2}), 2);
  EXPECT_EQ(smaller->Restore(search->Save()).code(), absl::StatusCode::kDataLoss);
}

TEST(AnnealingSearch, RefusesAStateWhoseModelSeesOtherFeatures) {
  const auto search = MakeAnnealing(MatmulTask({}), 2);
  ASSERT_TRUE(search->Update(Measure(*search->Propose(32))).ok());
  Method all = *FindMethod("annealing");
  all.without_alone = {};
  const auto other = MakeModelSearch(MatmulTask({}), all, 2);
  const absl::Status status = other->Restore(search->Save());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("other features"));
}

TEST(AnnealingSearch, RefusesValidResultsWithoutATime) {
  const auto search = MakeAnnealing(MatmulTask({}), 2);
  for (double seconds : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_EQ(search->Update({{"", true, seconds}}).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(search->Update({{"", false, 0}}).ok());
}

TEST(AnnealingSearch, ProposesByTheModelOnceThereIsOne) {
  const auto search = MakeAnnealing(MatmulTask({}), 2);
  const auto first = search->Propose(16);
  EXPECT_TRUE(std::all_of(first->begin() + 1, first->end(),
                          [](const Candidate& c) { return c.origin == "random"; }));
  ASSERT_TRUE(search->Update(Measure(*first)).ok());
  int annealed = 0, random = 0;
  for (int batch = 0; batch < 6; ++batch) {
    const auto proposed = search->Propose(16);
    for (const Candidate& c : *proposed) ++(c.origin == "annealing" ? annealed : random);
    ASSERT_TRUE(search->Update(Measure(*proposed)).ok());
  }
  EXPECT_GE(annealed, 6 * 14);
  EXPECT_GE(random, 1);  // epsilon
}

TEST(AnnealingSearch, WorkOfAProposalIsBounded) {
  int expansions = 0;
  const auto search = MakeAnnealing(MatmulTask({}, &expansions), 2);
  ASSERT_TRUE(search->Update(Measure(*search->Propose(64))).ok());
  expansions = 0;
  ASSERT_EQ(search->Propose(64)->size(), 64u);
  EXPECT_LE(expansions, 1536 + 64 + 64 * 16 + 2 * 64);
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

double BestOf(const std::unique_ptr<Search>& search, int batches, int batch_size) {
  double best = HUGE_VAL;
  for (int batch = 0; batch < batches; ++batch) {
    const auto results = Measure(*search->Propose(batch_size));
    for (const Result& r : results) best = std::min(best, r.seconds);
    EXPECT_TRUE(search->Update(results).ok());
  }
  return best;
}

class BetterThanRandom : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Methods, BetterThanRandom,
                         ::testing::Values("annealing", "evolutionary", "regression"));

TEST_P(BetterThanRandom, FindsBetterCandidates) {
  double log_ratio = 0;
  int wins = 0;
  constexpr int kSeeds = 10;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const double annealed =
        BestOf(MakeModelSearch(MatmulTask({}), *FindMethod(GetParam()), seed), 6, 16);
    const double random = BestOf(MakeRandomSearch(MatmulTask({}), seed), 6, 16);
    log_ratio += std::log(random / annealed);
    wins += annealed < random;
  }
  std::printf("random / annealing: %.3f, wins %d of %d\n", std::exp(log_ratio / kSeeds), wins,
              kSeeds);
  EXPECT_GT(std::exp(log_ratio / kSeeds), 1.4);
  EXPECT_GE(wins, 9);
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

TEST(MakeSearch, EveryStrategyWorksOnAGeneratedSpace) {
  const std::string workload = Convolution();
  const ir::TargetInfo target = testing::TestTarget();
  const ir::Program naive = *ir::Parse(workload);
  const std::string default_trace = schedule::ToText(*schedule::DefaultTrace(naive, target));
  EXPECT_THAT(StrategyNames(), ::testing::UnorderedElementsAre(
                                   "annealing", "regression", "evolutionary", "ensemble-ei",
                                   "ensemble-ucb", "published", "genetic", "grid", "random"));
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
  const ir::TargetInfo target = testing::TestTarget();
  const absl::Status unknown = MakeSearch(testing::kMatmul, target, {"magic", 1}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("'magic'; there are: annealing, "));
  for (const char* workload :
       {"", "nonsense", "program p(A: f32[4]) -> (B: f32[4]) { B[0] = A[9] }"}) {
    EXPECT_EQ(MakeSearch(workload, target, {}).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(MakeSearch, StatesOfOtherTasksAreRefused) {
  const ir::TargetInfo target = testing::TestTarget();
  ir::TargetInfo other = target;
  other.target.threads = 3;
  const std::string state = (*MakeSearch(testing::kMatmul, target, {}))->Save();
  EXPECT_TRUE((*MakeSearch(testing::kMatmul, target, {}))->Restore(state).ok());
  EXPECT_EQ((*MakeSearch(testing::kMatmul, other, {}))->Restore(state).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ((*MakeSearch(Convolution(), target, {}))->Restore(state).code(),
            absl::StatusCode::kDataLoss);
}

TEST(Shortlist, HoldsTheBestOncePerTrace) {
  Shortlist list(3);
  EXPECT_TRUE(list.Offer({0}, 10, 1.0f));
  EXPECT_FALSE(list.Offer({1}, 10, 5.0f)) << "another point of the same trace";
  EXPECT_TRUE(list.Offer({2}, 12, 3.0f));
  EXPECT_TRUE(list.Offer({3}, 13, 2.0f));
  EXPECT_FALSE(list.Offer({4}, 14, 0.5f)) << "worse than all of a full list";
  EXPECT_TRUE(list.Offer({5}, 15, 2.5f));
  std::vector<uint64_t> hashes;
  for (const Shortlist::Entry& e : list.entries()) hashes.push_back(e.hash);
  EXPECT_EQ(hashes, (std::vector<uint64_t>{12, 15, 13}));
  EXPECT_TRUE(list.Offer({0}, 10, 4.0f)) << "what fell off may come back";
  EXPECT_FALSE(Shortlist(0).Offer({0}, 1, 1.0f));
}

// The greedy choice against the best of all batches: for a monotone submodular sum of scores that
// are not negative and covered choices it is within 1 - 1/e.
TEST(Shortlist, DiverseOrderIsWithinTheBoundOfTheBestBatch) {
  std::mt19937_64 rng(7);
  constexpr size_t kEntries = 9, kBatch = 4;
  double worst = 1;
  for (int round = 0; round < 50; ++round) {
    Shortlist list(kEntries);
    while (list.entries().size() < kEntries) {
      list.Offer({static_cast<int32_t>(rng() % 3), static_cast<int32_t>(rng() % 3),
                  static_cast<int32_t>(rng() % 3)},
                 rng(), static_cast<float>(rng() % 100) / 50);
    }
    std::vector<float> scores;
    for (const auto& e : list.entries()) scores.push_back(e.score);
    const double unit = Spread(scores);
    const auto value = [&](const std::vector<size_t>& batch) {
      double sum = 0;
      std::set<std::pair<size_t, int32_t>> covered;
      for (size_t i : batch) {
        const auto& e = list.entries()[i];
        sum += e.score / unit;
        for (size_t d = 0; d < e.point.size(); ++d) covered.insert({d, e.point[d]});
      }
      return sum + 2 * static_cast<double>(covered.size()) / 3;
    };
    double best = 0;
    for (unsigned mask = 0; mask < 1u << kEntries; ++mask) {
      if (__builtin_popcount(mask) != kBatch) continue;
      std::vector<size_t> batch;
      for (size_t i = 0; i < kEntries; ++i) {
        if (mask >> i & 1) batch.push_back(i);
      }
      best = std::max(best, value(batch));
    }
    std::vector<size_t> greedy = list.DiverseOrder(2);
    greedy.resize(kBatch);
    worst = std::min(worst, value(greedy) / best);
  }
  EXPECT_GE(worst, 1 - 1 / std::exp(1));
  EXPECT_LE(worst, 1);
}

TEST(Shortlist, PrefersChoicesThatNoEarlierEntryMade) {
  Shortlist list(4);
  list.Offer({1, 1}, 1, 1.00f);
  list.Offer({1, 1}, 2, 0.99f);
  list.Offer({2, 2}, 3, 0.98f);
  list.Offer({3, 1}, 4, -5.0f);
  EXPECT_EQ(list.DiverseOrder(2), (std::vector<size_t>{0, 2, 1, 3}));
}

std::vector<size_t> AllColumns() { return *ColumnsWithout({}); }

Measured MakeMeasured(uint64_t hash, double seconds, uint64_t seed) {
  Measured m;
  m.hash = hash;
  m.seconds = seconds;
  m.point = {1, 2, 3, 4, 5, 6};
  std::mt19937_64 rng(seed);
  for (size_t k = 0; k < FeatureTable().size(); ++k) {
    m.features.push_back(k % 3 == 0 ? static_cast<float>(rng() % 8192) / 256 : 7.5f);
  }
  return m;
}

TEST(SampleSet, KeepsTheBestAndTheLatestInAModestState) {
  SampleSet samples;
  constexpr int kAll = 2500;
  for (int i = 0; i < kAll; ++i) {
    // The first 600 are the best ones.
    samples.Add(MakeMeasured(static_cast<uint64_t>(i), i < 600 ? 1e-3 + i * 1e-6 : 1.0 + i % 7,
                             static_cast<uint64_t>(i)));
  }
  std::set<uint64_t> kept;
  for (const Measured& m : samples.all()) kept.insert(m.hash);
  EXPECT_EQ(kept.size(), SampleSet::kMaxBest + SampleSet::kMaxRecent);
  for (uint64_t i = 0; i < 600; ++i) EXPECT_TRUE(kept.contains(i)) << i;
  for (uint64_t i = kAll - 900; i < kAll; ++i) EXPECT_TRUE(kept.contains(i)) << i;

  BlobWriter w;
  samples.Save(w);
  const std::string bytes = std::move(w).Take();
  EXPECT_LT(bytes.size(), size_t{1} << 20);
  SampleSet copy;
  BlobReader r(bytes);
  ASSERT_TRUE(copy.Load(r).ok());
  EXPECT_TRUE(r.AtEnd());
  ASSERT_EQ(copy.all().size(), samples.all().size());
  for (size_t i = 0; i < copy.all().size(); ++i) {
    EXPECT_EQ(copy.all()[i].features, samples.all()[i].features);
    EXPECT_EQ(copy.all()[i].seconds, samples.all()[i].seconds);
    EXPECT_EQ(copy.all()[i].point, samples.all()[i].point);
  }
}

TEST(SampleSet, ScoresAreRelativeToTheBestAndARepeatKeepsTheBetter) {
  SampleSet samples;
  samples.Add(MakeMeasured(1, 4e-3, 1));
  samples.Add(MakeMeasured(2, 0, 2));
  EXPECT_TRUE(samples.Rankable());
  samples.Add(MakeMeasured(3, 1e-3, 3));
  samples.Add(MakeMeasured(1, 2e-3, 1));
  samples.Add(MakeMeasured(3, 0, 3));
  const std::vector<Sample> training = samples.Training(32, AllColumns());
  ASSERT_EQ(training.size(), 3u);
  EXPECT_FLOAT_EQ(training[0].score, 0.5f);
  EXPECT_FLOAT_EQ(training[1].score, 0.0f);
  EXPECT_FLOAT_EQ(training[2].score, 1.0f);
  samples.Add(MakeMeasured(4, 1.01e-3, 4));
  EXPECT_FLOAT_EQ(samples.Training(32, AllColumns())[3].score, 1.0f) << "a difference of noise";
  EXPECT_EQ(samples.BestPoints(5).size(), 3u);  // failures are no place to start
}

}  // namespace
}  // namespace heddle::cost_model
