// Searches with a model: what they learn, from their own task and from others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>

#include "cost_model/model/samples.h"
#include "cost_model/search/methods.h"
#include "cost_model/search/strategies.h"
#include "cost_model/transfer/transfer.h"
#include "cost_model/transfer/transfer_samples.h"
#include "tests/cost_model/matmul_space.h"

namespace heddle::cost_model {
namespace {

using testing::MatmulSpace;
using testing::MatmulTask;
using testing::Measure;
using testing::Traces;

std::unique_ptr<Search> MakeAnnealing(Task task, uint64_t seed) {
  return MakeModelSearch(std::move(task), *FindMethod("annealing"), seed);
}

TEST(AnnealingSearch, RefusesAStateOfAnotherSpace) {
  const auto search = MakeAnnealing(MatmulTask({}), 2);
  ASSERT_TRUE(search->Update(Measure(*search->Propose(32))).ok());
  const auto smaller = MakeAnnealing(MatmulTask({.tiles = 2}), 2);
  EXPECT_EQ(smaller->Restore(search->Save()).code(), absl::StatusCode::kDataLoss);
}

// What was measured is kept, and the model is fitted anew.
TEST(AnnealingSearch, FitsAgainAfterAStateWhoseModelSeesOtherFeatures) {
  const auto search = MakeAnnealing(MatmulTask({}), 2);
  const std::vector<Candidate> measured = *search->Propose(32);
  ASSERT_TRUE(search->Update(Measure(measured)).ok());
  Method method = *FindMethod("annealing");
  method.epsilon = 0;
  method.without = {"side"};
  ASSERT_NE(*ColumnsWithout(method.without), *ColumnsWithout(FindMethod("annealing")->without));
  const auto other = MakeModelSearch(MatmulTask({}), method, 2);
  const absl::Status status = other->Restore(search->Save());
  ASSERT_TRUE(status.ok()) << status;
  const auto proposed = other->Propose(16);
  ASSERT_TRUE(proposed.ok()) << proposed.status();
  for (const Candidate& c : *proposed) {
    EXPECT_EQ(c.origin, "annealing");
    for (const Candidate& before : measured) EXPECT_NE(c.trace, before.trace);
  }
}

std::shared_ptr<OtherTasks> MakeOthers(int samples) {
  auto others = std::make_shared<OtherTasks>();
  std::mt19937_64 rng(3);
  for (int i = 0; i < samples; ++i) {
    Sample sample{std::vector<float>(FeatureTable().size()), static_cast<float>(i % 32) / 32, 1};
    for (float& f : sample.features) f = static_cast<float>(rng() % 64);
    others->push_back(std::move(sample));
  }
  return others;
}

// Failures say nothing about what others know, until they are too many to listen to others still;
// then the model of the others goes.
TEST(AnnealingSearch, ForgetsOthersWhenTheyCountNoMore) {
  Method method = *FindMethod("annealing");
  method.epsilon = 0;
  Task task = MatmulTask({});
  task.others = MakeOthers(64);
  const auto search = MakeModelSearch(std::move(task), method, 2);
  const auto fail = [&](int n) {
    const auto proposed = search->Propose(n);
    std::vector<Result> results;
    for (const Candidate& c : *proposed) results.push_back({c.trace, false, 0});
    EXPECT_TRUE(search->Update(results).ok());
    return proposed->at(proposed->size() / 2).origin;
  };
  EXPECT_EQ(fail(16), "others");
  EXPECT_EQ(fail(16), "others") << "after 16 failures";
  EXPECT_EQ(fail(288), "others");
  EXPECT_EQ(fail(16), "roofline") << "nothing to fit a model to";
}

// No others at all and an empty list of them are the same.
TEST(AnnealingSearch, AnEmptyListOfOthersIsNone) {
  const auto search = MakeAnnealing(MatmulTask({}), 2);
  Task task = MatmulTask({});
  task.others = std::make_shared<OtherTasks>();
  const auto other = MakeAnnealing(std::move(task), 2);
  for (int batch = 0; batch < 3; ++batch) {
    const std::vector<Candidate> proposed = *search->Propose(16);
    EXPECT_EQ(Traces(proposed), Traces(*other->Propose(16)));
    ASSERT_TRUE(search->Update(Measure(proposed)).ok());
    ASSERT_TRUE(other->Update(Measure(proposed)).ok());
  }
  EXPECT_EQ(search->Save(), other->Save());
}

// Whoever goes on with a state needs no others: those it began with are in it.
TEST(AnnealingSearch, KeepsWhatOthersTaughtInItsState) {
  const auto teacher = MakeAnnealing(MatmulTask({.tiles = 2}), 1);
  ASSERT_TRUE(teacher->Update(Measure(*teacher->Propose(48))).ok());
  const std::vector<RelatedSamples> transfer_samples = {{teacher->TransferSamples(), 0.5}};
  Task task = MatmulTask({});
  task.others = std::make_shared<const OtherTasks>(JoinTransferSamples(transfer_samples));
  const auto search = MakeAnnealing(std::move(task), 2);
  const std::vector<Candidate> first = *search->Propose(16);
  EXPECT_EQ(first[1].origin, "others") << "the first batch comes from what the others taught";
  const auto resumed = MakeAnnealing(MatmulTask({}), 2);
  const absl::Status status = resumed->Restore(search->Save());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(resumed->Save(), search->Save());
  ASSERT_TRUE(search->Update(Measure(first)).ok());
  ASSERT_TRUE(resumed->Update(Measure(first)).ok());
  EXPECT_EQ(Traces(*resumed->Propose(16)), Traces(*search->Propose(16)));
  const SearchReport report = resumed->Report();
  EXPECT_EQ(report.samples, 16);
  EXPECT_EQ(report.other_tasks, 1);
  EXPECT_EQ(report.other_samples, 48);
  const double weight = report.transfer_misleads ? 0 : std::exp2(-16 / Transfer::kHalving);
  EXPECT_NEAR(report.other_weight, weight, 1e-9);
}

TEST(AnnealingSearch, ReportsAndPredicts) {
  const auto search = MakeAnnealing(MatmulTask({}), 2);
  EXPECT_EQ(search->TransferSamples(), "");
  EXPECT_TRUE(search->Report().features.empty());
  const std::vector<Candidate> first = *search->Propose(32);
  for (const Candidate& c : first) EXPECT_FALSE(c.prediction.has_value()) << "there is no model";
  ASSERT_TRUE(search->Update(Measure(first)).ok());
  const SearchReport report = search->Report();
  ASSERT_FALSE(report.features.empty());
  double sum = 0, last = 1;
  for (const SearchReport::Feature& f : report.features) {
    EXPECT_LE(f.importance, last) << f.name;
    EXPECT_NE(f.meaning, "");
    sum += last = f.importance;
  }
  EXPECT_GT(sum, 0.5);
  EXPECT_LE(sum, 1 + 1e-6);
  const std::vector<Candidate> second = *search->Propose(32);
  bool differ = false;
  for (const Candidate& c : second) {
    ASSERT_TRUE(c.prediction.has_value()) << c.origin;
    EXPECT_EQ(c.prediction->samples, 32);
    differ |= c.prediction->score != second[0].prediction->score;
  }
  EXPECT_TRUE(differ);
}

// What the model of a prediction had learned is told apart when the set is full, too.
TEST(SampleSet, CountsWhatItForgets) {
  SampleSet samples;
  EXPECT_EQ(samples.learned(), 0);
  for (uint64_t i = 0; i < 2100; ++i) {
    samples.Add({i / 2, {}, std::vector<float>(FeatureTable().size()), 1.0 / (1 + i)});
  }
  EXPECT_EQ(samples.all().size(), 1050u);
  EXPECT_EQ(samples.learned(), 2100);
  BlobWriter w;
  samples.Save(w);
  const std::string bytes = std::move(w).Take();
  BlobReader r(bytes);
  SampleSet copy;
  ASSERT_TRUE(copy.Load(r).ok());
  EXPECT_EQ(copy.learned(), 2100);
}

// A state that came back from a stranger may hold anything.
TEST(SampleSet, RefusesNumbersThatNoSampleHas) {
  const auto load = [](double seconds, float feature) {
    SampleSet samples;
    samples.Add({1, {}, std::vector<float>(FeatureTable().size(), feature), seconds});
    BlobWriter w;
    samples.Save(w);
    const std::string bytes = std::move(w).Take();
    BlobReader r(bytes);
    return SampleSet().Load(r);
  };
  EXPECT_TRUE(load(0, 0).ok());
  EXPECT_TRUE(load(1e-3, 60).ok());
  for (const double seconds : {-1.0, std::nan(""), HUGE_VAL})
    EXPECT_EQ(load(seconds, 0).code(), absl::StatusCode::kDataLoss) << seconds;
  for (const float feature : {1e13F, -1e13F})
    EXPECT_EQ(load(1e-3, feature).code(), absl::StatusCode::kDataLoss) << feature;
  BlobWriter w;
  w.Unsigned(uint64_t{1} << 40);  // measurements
  w.Unsigned(0);
  const std::string bytes = std::move(w).Take();
  BlobReader r(bytes);
  EXPECT_EQ(SampleSet().Load(r).code(), absl::StatusCode::kDataLoss);
}

TEST(TransferSamples, KeepsSamplesSpreadOverAllOfThem) {
  std::vector<Sample> samples = *MakeOthers(1000);
  const std::string packed = PackTransferSamples(samples);
  EXPECT_LE(packed.size(), size_t{64} << 10);
  const std::string two = PackTransferSamples(*MakeOthers(2));
  const std::vector<RelatedSamples> both = {
      {packed}, {"damaged"}, {packed, 0}, {packed, 2}, {packed, std::nan("")}, {two, 0.25}};
  const OtherTasks joined = JoinTransferSamples(both);
  ASSERT_EQ(joined.size(), kMaxTransferSamples + 2);
  EXPECT_EQ(joined[0].features, samples[0].features);
  EXPECT_EQ(joined[0].score, samples[0].score);
  EXPECT_EQ(joined[kMaxTransferSamples - 1].features, samples[999].features);
  EXPECT_EQ(joined[0].group, 1);
  EXPECT_EQ(joined[0].weight, 1);
  EXPECT_EQ(joined[kMaxTransferSamples].group, 2) << "what is damaged takes no group";
  EXPECT_EQ(joined[kMaxTransferSamples].weight, 0.25);
  EXPECT_EQ(PackTransferSamples(*MakeOthers(1)), "");
}

TEST(Transfer, TakesNoMoreThanItMayAndNoTaskOfOneSample) {
  EXPECT_TRUE(Transfer::Choose(*MakeOthers(1)).empty());
  OtherTasks others = *MakeOthers(5000);
  for (const int tasks : {1, 3, 600, 2500}) {
    for (size_t i = 0; i < others.size(); ++i) others[i].group = 1 + static_cast<int>(i) % tasks;
    const std::vector<Sample> chosen = Transfer::Choose(others);
    EXPECT_LE(chosen.size(), Transfer::kMaxSamples);
    EXPECT_GT(chosen.size(), Transfer::kMaxSamples / 2);
    std::map<int, int> of;
    for (const Sample& s : chosen) ++of[s.group];
    for (const auto& [group, n] : of) EXPECT_GE(n, 2) << group;
  }
}

// A search finds its best candidates late.
TEST(Transfer, TakesSamplesOverAllOfASearch) {
  constexpr int kTasks = 32, kEach = 400;
  OtherTasks others = *MakeOthers(kTasks * kEach);
  for (int i = 0; i < kTasks * kEach; ++i) {
    others[static_cast<size_t>(i)].group = 1 + i / kEach;
    others[static_cast<size_t>(i)].score = static_cast<float>(i % kEach) / (kEach - 1);
  }
  std::map<int, std::vector<float>> scores;
  for (const Sample& s : Transfer::Choose(others)) scores[s.group].push_back(s.score);
  EXPECT_EQ(scores.size(), kTasks);
  for (const auto& [group, of] : scores) {
    ASSERT_EQ(of.size(), Transfer::kMaxSamples / kTasks);
    EXPECT_EQ(of.front(), 0);
    EXPECT_EQ(of.back(), 1);
    EXPECT_NEAR(of[of.size() / 2], 0.5, 0.05);
  }
}

// Lies that come to light with more samples of one's own: what is right about the first 16 may
// mislead about the next.
TEST(Transfer, IsValidatedAgain) {
  const auto others = MakeOthers(64);
  Transfer transfer({}, 1);
  EXPECT_FALSE(transfer.Active()) << "it knows nothing yet";
  ASSERT_TRUE(transfer.Learn(*others).ok());
  EXPECT_TRUE(transfer.Active());
  std::vector<Sample> own(others->begin(), others->begin() + 16);
  std::vector<Sample> failures = own;
  for (Sample& s : failures) s.score = 0;
  ASSERT_TRUE(transfer.Validate(failures).ok());
  EXPECT_FALSE(transfer.misleads()) << "no pair to compare";
  ASSERT_TRUE(transfer.Validate(own).ok());
  EXPECT_FALSE(transfer.misleads());
  std::vector<Sample> lies(others->begin(), others->begin() + 31);
  for (Sample& s : lies) s.score = 1 - s.score;
  ASSERT_TRUE(transfer.Validate(lies).ok());
  EXPECT_FALSE(transfer.misleads()) << "not validated between 16 and 32";
  lies.push_back(own[0]);
  ASSERT_TRUE(transfer.Validate(lies).ok());
  EXPECT_TRUE(transfer.misleads());
  EXPECT_FALSE(transfer.Active());
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
                          [](const Candidate& c) { return c.origin == "roofline"; }));
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

// Traces of points that differ from the preferred decisions, which are all zero here, in at most so
// many.
std::set<std::string> BesideDefault(size_t most) {
  const MatmulSpace space({});
  std::set<std::string> beside;
  schedule::Point point = space.Preferred();
  do {
    const auto same = std::count(point.begin(), point.end(), 0);
    if (point.size() - static_cast<size_t>(same) <= most) {
      beside.insert(schedule::ToText(*space.Expand(point)));
    }
  } while (space.Next(point));
  return beside;
}

// A draft is up to three mutations away from the preferred decisions: the estimate's, and those
// that a model of other tasks judges.
TEST(AnnealingSearch, DraftsBesideTheDefaultSchedule) {
  const std::set<std::string> beside = BesideDefault(3);
  Method method = *FindMethod("annealing");
  method.hedge = method.epsilon = 0;
  for (const bool others : {false, true}) {
    for (const double share : {1.0, 0.0}) {
      (others ? method.others_beside : method.beside_default) = share;
      Task task = MatmulTask({});
      if (others) task.others = MakeOthers(64);
      const auto search = MakeModelSearch(std::move(task), method, 3);
      int near = 0, drafted = 0;
      const std::vector<Candidate> proposed = *search->Propose(40);
      for (const Candidate& c : proposed) {
        if (c.origin != (others ? "others" : "roofline")) continue;
        ++drafted;
        near += beside.contains(c.trace);
      }
      EXPECT_EQ(drafted, 39);
      EXPECT_EQ(near == drafted, share == 1) << near;
    }
  }
}

// On a GPU there is no estimate to hedge with: some drafts come from anywhere then.
TEST(AnnealingSearch, WithoutAnEstimateNotAllDraftsAreBesideTheDefault) {
  const std::set<std::string> beside = BesideDefault(3);
  Method method = *FindMethod("annealing");
  method.epsilon = 0;
  for (const double cold_start : {0.0, 1.0}) {
    method.cold_start = cold_start;
    Task task = MatmulTask({});
    task.others = MakeOthers(64);
    const auto search = MakeModelSearch(std::move(task), method, 3);
    int far = 0;
    const std::vector<Candidate> proposed = *search->Propose(16);
    for (const Candidate& c : proposed) far += c.origin == "others" && !beside.contains(c.trace);
    EXPECT_EQ(far == 0, cold_start == 1) << far;
  }
}

// A large batch that only others know about is their model's and the estimate's, as far as the
// space goes; and what it costs is bounded.
TEST(AnnealingSearch, FillsALargeBatchThatOnlyOthersKnowAbout) {
  int expansions = 0;
  Method method = *FindMethod("annealing");
  method.epsilon = 0;
  method.beside_steps = 1;  // few are to be found beside the default schedule then
  for (const int n : {64, 128}) {
    Task task = MatmulTask({}, &expansions);
    task.others = MakeOthers(64);
    const auto search = MakeModelSearch(std::move(task), method, 3);
    expansions = 0;
    std::map<std::string, int> from;
    const std::vector<Candidate> proposed = *search->Propose(n);
    for (const Candidate& c : proposed) ++from[c.origin];
    EXPECT_EQ(from["random"], 0);
    EXPECT_EQ(from["roofline"], std::lround((n - 1) * method.hedge));
    EXPECT_EQ(from["others"], n - 1 - from["roofline"]);
    EXPECT_LE(expansions, 2 * method.evaluations + 2 * n);
  }
}

TEST(AnnealingSearch, WorkOfAProposalIsBounded) {
  int expansions = 0;
  const auto search = MakeAnnealing(MatmulTask({}, &expansions), 2);
  ASSERT_TRUE(search->Update(Measure(*search->Propose(64))).ok());
  expansions = 0;
  ASSERT_EQ(search->Propose(64)->size(), 64u);
  EXPECT_LE(expansions, 1536 + 64 + 64 * 16 + 2 * 64);
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

}  // namespace
}  // namespace heddle::cost_model
