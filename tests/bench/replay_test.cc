// Replay tables and the spaces that searches see, on a table that is made here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <set>

#include "bench/search/compare.h"
#include "bench/search/replay_table.h"
#include "bench/search/variant.h"
#include "cost_model/features/features.h"
#include "cost_model/transfer/transfer.h"
#include "tests/cost_model/matmul_space.h"

namespace heddle::bench {
namespace {

using cost_model::testing::MatmulSpace;
using schedule::Point;
using ::testing::HasSubstr;

// The default, `random` points drawn at random and as many mutations of the fastest of them, with
// analytic times; every ninth fails.
// The matrices have `extent` rows and columns; times are those of the test's product.
ReplayTable MakeTable(int random, int extent = 64) {
  ReplayTable table;
  ReplayHeader& header = table.header;
  header.name = "mm";
  header.workload = cost_model::testing::Matmul(extent);
  header.target = cost_model::testing::TestTarget();
  header.target.target.cpu = "znver4";
  header.device_key = "made-up";
  header.command = "none";
  header.flops = 2.0 * extent * extent * extent;
  header.reference_ns = 1000;
  const MatmulSpace space({.extent = extent});
  for (int d = 0; d < space.NumDecisions(); ++d) {
    header.decisions.push_back({space.Describe(d), space.Choices(d)});
  }
  const ir::Program naive = *ir::Parse(header.workload);
  std::set<std::string> traces;
  schedule::Rng rng(1);
  const auto add = [&](const Point& point, ReplayOrigin origin) {
    const std::string trace = schedule::ToText(*space.Expand(point));
    if (!schedule::Replay(naive, *space.Expand(point)).ok()) return;
    if (!traces.insert(trace).second) return;
    const bool fails = table.rows.size() % 9 == 8;
    table.rows.push_back({point, trace, origin,
                          fails ? 0 : cost_model::testing::AnalyticSeconds(trace, header.workload),
                          fails ? "crashed" : ""});
  };
  add(space.Preferred(), ReplayOrigin::kDefault);
  while (static_cast<int>(table.rows.size()) < random) {
    add(space.Random(rng), ReplayOrigin::kRandom);
  }
  size_t best = 0;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    if (table.rows[i].seconds > 0 && table.rows[i].seconds < table.rows[best].seconds) best = i;
  }
  const Point parent = table.rows[best].point;
  for (int i = 0; i < 20 * random && static_cast<int>(table.rows.size()) < 2 * random; ++i) {
    add(space.Mutate(space.Mutate(parent, rng), rng), ReplayOrigin::kMutation);
  }
  return table;
}

std::string TempPath() { return ::testing::TempDir() + "/table.jsonl.gz"; }

TEST(ReplayTable, ReadsWhatWasWrittenInPortions) {
  const ReplayTable table = MakeTable(40);
  const std::string path = TempPath();
  ASSERT_TRUE(StartReplayTable(path, table.header).ok());
  const auto middle = table.rows.begin() + 17;
  ASSERT_TRUE(AppendRows(path, {table.rows.begin(), middle}).ok());
  ASSERT_TRUE(AppendRows(path, {middle, table.rows.end()}).ok());
  const absl::StatusOr<ReplayTable> read = ReadReplayTable(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->header.workload, table.header.workload);
  EXPECT_EQ(read->header.decisions, table.header.decisions);
  EXPECT_EQ(ToText(read->header.target.target), ToText(table.header.target.target));
  EXPECT_EQ(read->header.target.l1_bytes, table.header.target.l1_bytes);
  ASSERT_EQ(read->rows.size(), table.rows.size());
  for (size_t i = 0; i < table.rows.size(); ++i) {
    EXPECT_EQ(read->rows[i].point, table.rows[i].point);
    EXPECT_EQ(read->rows[i].trace, table.rows[i].trace);
    EXPECT_EQ(read->rows[i].origin, table.rows[i].origin);
    EXPECT_NEAR(read->rows[i].seconds, table.rows[i].seconds, 1e-10);
    EXPECT_EQ(read->rows[i].error, table.rows[i].error);
  }
}

TEST(ReplayTable, IsWrittenInPlaceOfAnother) {
  ReplayTable table = MakeTable(20);
  const std::string path = TempPath();
  ASSERT_TRUE(StartReplayTable(path, table.header).ok());
  table.rows[3].checked = true;
  table.rows[3].seconds = 5e-6;
  ASSERT_TRUE(WriteReplayTable(path, table).ok());
  const absl::StatusOr<ReplayTable> read = ReadReplayTable(path);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->rows.size(), table.rows.size());
  EXPECT_TRUE(read->rows[3].checked);
  EXPECT_FALSE(read->rows[4].checked);
  EXPECT_NEAR(read->rows[3].seconds, 5e-6, 1e-10);
  EXPECT_EQ(WriteReplayTable("/nowhere/table", table).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReplayTable, SaysWhatIsWrongWithAFile) {
  const std::string path = TempPath();
  EXPECT_EQ(ReadReplayTable(path + ".none").status().code(), absl::StatusCode::kNotFound);
  const auto expect_refused = [&](const std::vector<ReplayRow>& rows, const std::string& what) {
    ASSERT_TRUE(StartReplayTable(path, MakeTable(4).header).ok());
    ASSERT_TRUE(AppendRows(path, rows).ok());
    const absl::Status status = ReadReplayTable(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  };
  const ReplayRow row = MakeTable(4).rows[0];
  expect_refused({row, row}, ":3: a trace for the second time");
  ReplayRow outside = row;
  outside.point[0] = 1000;
  expect_refused({outside}, ":2: not a point of the table's space");
  std::ofstream(path) << "no table\n";
  EXPECT_THAT(std::string(ReadReplayTable(path).status().message()),
              HasSubstr("table.jsonl.gz:1:"));
  std::ofstream(path) << "";
  EXPECT_THAT(std::string(ReadReplayTable(path).status().message()), HasSubstr("empty"));
}

TEST(ReplaySpace, GivesNothingButTheTable) {
  const ReplayTable table = MakeTable(60);
  const auto neighbours = FindNeighbours(table);
  const auto space = MakeReplaySpace(table, neighbours);
  std::set<Point> all, random, reached;
  for (const ReplayRow& row : table.rows) {
    all.insert(row.point);
    if (row.origin == ReplayOrigin::kRandom) random.insert(row.point);
  }
  EXPECT_EQ(space->Size(), MatmulSpace({}).Size());
  schedule::Rng rng(1);
  Point at = space->Preferred();
  for (int i = 0; i < 20000; ++i) {
    EXPECT_TRUE(random.contains(space->Random(rng)));
    const Point next = space->Mutate(at, rng);
    ASSERT_TRUE(all.contains(next));
    const Point child = space->Cross(at, space->Random(rng), rng);
    ASSERT_TRUE(all.contains(child));
    at = next;
    reached.insert(at);
  }
  EXPECT_EQ(reached, all) << "mutations reach every candidate";
  // In order, from any point.
  std::vector<Point> walked;
  for (Point point(6, 0); space->Next(point);) walked.push_back(point);
  all.erase(Point(6, 0));
  EXPECT_EQ(walked, std::vector<Point>(all.begin(), all.end()));
  Point last(6, 100);
  EXPECT_FALSE(space->Next(last));
  for (const ReplayRow& row : table.rows) {
    EXPECT_EQ(schedule::ToText(*space->Expand(row.point)), row.trace);
  }
  EXPECT_FALSE(space->Expand({6, 6, 6, 5, 2, 1}).ok() && !all.contains({6, 6, 6, 5, 2, 1}));
}

// Points of two forms (decision 0) are never mixed.
TEST(ReplaySpace, FormsDoNotMix) {
  ReplayTable table = MakeTable(60);
  table.header.decisions[0].what = "form";
  const auto neighbours = FindNeighbours(table);
  const auto space = MakeReplaySpace(table, neighbours);
  schedule::Rng rng(1);
  int differ = 0;
  for (int i = 0; i < 1000; ++i) {
    const Point a = space->Random(rng), b = space->Random(rng);
    if (a[0] == b[0]) continue;
    ++differ;
    EXPECT_EQ(space->Cross(a, b, rng), a);
  }
  EXPECT_GT(differ, 100);
}

// The neighbours of a candidate are those with the fewest different decisions.
TEST(ReplaySpace, NeighboursAreNear) {
  const ReplayTable table = MakeTable(60);
  const auto neighbours = FindNeighbours(table);
  const auto distance = [&](size_t a, size_t b) {
    int differ = 0;
    for (size_t d = 0; d < table.rows[a].point.size(); ++d) {
      differ += table.rows[a].point[d] != table.rows[b].point[d];
    }
    return differ;
  };
  for (size_t i = 0; i < table.rows.size(); ++i) {
    ASSERT_GE(neighbours[i].size(), 16u);
    int nearest = 100;
    for (size_t j = 0; j < table.rows.size(); ++j) {
      if (j != i) nearest = std::min(nearest, distance(i, j));
    }
    EXPECT_EQ(distance(i, neighbours[i][0]), nearest);
    for (size_t k = 1; k < 16; ++k) {
      EXPECT_LE(distance(i, neighbours[i][k - 1]), distance(i, neighbours[i][k]));
    }
  }
}

TEST(ReplayProblem, LeavesOutWhatNoLongerReplays) {
  ReplayTable table = MakeTable(30);
  const size_t rows = table.rows.size();
  table.rows[5].trace = "split nowhere 2 2\n";
  const auto problem = ReplayProblem::Make(table);
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ((*problem)->left_out(), 1);
  EXPECT_EQ((*problem)->table().rows.size(), rows - 1);
  ReplayTable outdated = table;
  for (size_t i = 1; i <= rows / ReplayProblem::kMaxLeftOut + 1; ++i) {
    outdated.rows[i].trace = "split nowhere 2 2\n";
  }
  const absl::Status refused = ReplayProblem::Make(outdated).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("make the table again"));
  table.rows[0].trace = "split nowhere 2 2\n";
  EXPECT_EQ(ReplayProblem::Make(table).status().code(), absl::StatusCode::kFailedPrecondition);
}

// A candidate's choices as features, in columns that tables share by the names of decisions.
// Choices of other forms than its own are absent.
TEST(ReplayProblem, ShowsKnobsInsteadOfFeatures) {
  ReplayTable table = MakeTable(30);
  auto& decisions = table.header.decisions;
  decisions[0].what = "form";
  decisions[1].what = "direct: rows";
  decisions[2].what = "direct: columns";
  decisions[3].what = "other: rows";
  const auto problem = ReplayProblem::Make(table);
  ASSERT_TRUE(problem.ok());
  std::map<std::string, size_t> columns = {{"columns", 0}};
  (*problem)->SeeKnobs(&columns);
  EXPECT_EQ(columns.at("form"), 1u);
  EXPECT_EQ(columns.at("rows"), 2u);
  EXPECT_EQ(columns.at("other: rows"), 3u);
  int forms[2] = {0, 0};
  for (size_t i = 0; i < (*problem)->table().rows.size(); ++i) {
    const Point& point = (*problem)->table().rows[i].point;
    const std::vector<float>& knobs = (*problem)->FeaturesOf(i);
    ASSERT_EQ(knobs.size(), cost_model::FeatureTable().size());
    EXPECT_EQ(knobs[1], point[0]);
    EXPECT_EQ(knobs[0], point[0] == 0 ? point[2] : -1);
    EXPECT_EQ(knobs[2], point[0] == 0 ? point[1] : -1);
    EXPECT_EQ(knobs[3], point[0] == 1 ? point[3] : -1);
    EXPECT_EQ(knobs.back(), -1);
    if (point[0] < 2) ++forms[point[0]];
  }
  EXPECT_GT(forms[0], 0);
  EXPECT_GT(forms[1], 0);
}

// A table may hold traces that are spelled differently from those of searches.
TEST(ReplayProblem, KnowsTracesInAnyForm) {
  ReplayTable table = MakeTable(30);
  for (ReplayRow& row : table.rows) row.trace = "\n" + row.trace;
  const size_t rows = table.rows.size();
  table.rows.push_back(table.rows[3]);
  table.rows.back().trace += "\n";
  const auto problem = ReplayProblem::Make(table);
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ((*problem)->table().rows.size(), rows) << "one and the same only once";
  const auto run = RunSearch(**problem, {.strategy = "random", .trials = 20});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->best.size(), 20u);
  EXPECT_EQ((*problem)->Seconds("no trace").status().code(), absl::StatusCode::kNotFound);
}

class EveryMethod : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Methods, EveryMethod,
                         ::testing::Values("annealing", "evolutionary", "regression", "ensemble-ei",
                                           "ensemble-ucb", "attention", "genetic", "grid", "random",
                                           "published"));

TEST_P(EveryMethod, ARunRepeatsExactlyAndEndsWithTheTable) {
  const auto problem = ReplayProblem::Make(MakeTable(60));
  ASSERT_TRUE(problem.ok());
  const RunOptions options{.strategy = GetParam(), .seed = 3, .trials = 500};
  const auto run = RunSearch(**problem, options);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->best, RunSearch(**problem, options)->best);
  EXPECT_LE(run->best.size(), (*problem)->table().rows.size());
  EXPECT_GE(run->best.size(), 60u);
  EXPECT_TRUE(std::is_sorted(run->best.begin(), run->best.end()));
  const size_t rows = (*problem)->table().rows.size();
  if (GetParam() == "grid") {
    EXPECT_EQ(run->best.size(), rows);
  }
  // Random draws give only rows that were drawn at random, and the default.
  if (GetParam() == "random") {
    EXPECT_EQ(run->best.size(), 60u);
  } else if (GetParam() != "genetic") {  // its children have few parents
    EXPECT_EQ(run->best.back(), 1.0) << "a table that was searched whole";
  }
}

TEST(Variant, ChangesAMethodByName) {
  const auto variant = ParseVariant("annealing:diversity=0.5:without=loop:without=main:rounds=7");
  ASSERT_TRUE(variant.ok()) << variant.status();
  EXPECT_EQ(variant->diversity, 0.5);
  EXPECT_EQ(variant->model.rounds, 7);
  EXPECT_EQ(variant->without, (std::vector<std::string>{"reuse", "loop", "main"}));
  EXPECT_TRUE(ParseVariant("annealing:with=reuse")->without.empty());
  EXPECT_FALSE(ParseVariant("annealing:relative=0")->relative);
  const auto beside = ParseVariant(
      "annealing:beside=0.1:beside_steps=2:hedge=0.5:others_drafts=3:others_beside=0.5");
  ASSERT_TRUE(beside.ok()) << beside.status();
  EXPECT_EQ(beside->beside_default, 0.1);
  EXPECT_EQ(beside->beside_steps, 2);
  EXPECT_EQ(beside->hedge, 0.5);
  EXPECT_EQ(beside->others_drafts, 3);
  EXPECT_EQ(beside->others_beside, 0.5);
  EXPECT_EQ(variant->chains, cost_model::FindMethod("annealing")->chains);
  for (const char* wrong :
       {"magic", "annealing:magic=1", "annealing:diversity", "annealing:rounds=x",
        "annealing:without=magic", "annealing:rounds=-1", "annealing:rounds=1.5",
        "annealing:relative=2", "annealing:relative=0.5", "annealing:beside=1.1",
        "annealing:beside_steps=0"}) {
    EXPECT_EQ(ParseVariant(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

// As the service does.
TEST(Transfer, OthersOfAnotherTargetCountLess) {
  std::vector<std::unique_ptr<ReplayProblem>> problems;
  for (const int threads : {1, 2, 3}) {
    ReplayTable table = MakeTable(20);
    table.header.target.target.threads = threads;
    if (threads == 3) table.header.device_key = "elsewhere";
    problems.push_back(*ReplayProblem::Make(std::move(table)));
  }
  ReplayTable other = MakeTable(20, 128);
  other.header.target.target.threads = 1;
  problems.push_back(*ReplayProblem::Make(std::move(other)));
  std::map<int, float> weights;
  for (const auto& sample : *TakeOthers(problems, *problems[0], 5, 1))
    weights[sample.group] = sample.weight;
  EXPECT_EQ(weights, (std::map<int, float>{{2, 0.5f}, {3, 0.25f}, {4, 1.0f}}));
}

// Transfer saves trials; a transfer model that misleads is no longer used.
TEST(Transfer, HelpsOrIsSwitchedOff) {
  std::vector<std::unique_ptr<ReplayProblem>> problems;
  problems.push_back(*ReplayProblem::Make(MakeTable(300)));
  problems.push_back(*ReplayProblem::Make(MakeTable(300, 128)));
  const auto others = TakeOthers(problems, *problems[0], 400, 1);
  EXPECT_EQ(others->size(), 400u);
  for (const cost_model::Sample& s : *others) EXPECT_EQ(s.group, 2) << "none of its own";
  auto lies = std::make_shared<cost_model::OtherTasks>(*others);
  for (cost_model::Sample& s : *lies) s.score = 1 - s.score;
  struct Found {
    double area = 0, end = 0;
  };
  cost_model::Method method = *cost_model::FindMethod("annealing");
  method.cold_start = 0;  // the table's times come from the same numbers as the estimate
  const auto search = [&](std::shared_ptr<const cost_model::OtherTasks> known) {
    Found found;
    for (uint64_t seed = 0; seed < 12; ++seed) {
      const RunOptions options{
          .strategy = "", .method = &method, .others = known, .seed = seed, .trials = 192};
      const auto run = RunSearch(*problems[0], options);
      EXPECT_TRUE(run.ok()) << run.status();
      for (double share : run->best) found.area += share / 192 / 12;
      found.end += run->best.back() / 12;
    }
    return found;
  };
  const Found scratch = search(nullptr), helped = search(others), lied_to = search(lies);
  EXPECT_GT(helped.area, scratch.area);
  EXPECT_GE(lied_to.end, 0.95 * scratch.end);
  using Known = std::shared_ptr<const cost_model::OtherTasks>;
  for (const auto& [taught, misleads] :
       {std::pair<Known, bool>(lies, true), std::pair<Known, bool>(others, false)}) {
    cost_model::Transfer transfer({}, 1);
    ASSERT_TRUE(transfer.Learn(*taught).ok());
    EXPECT_TRUE(transfer.Active());
    ASSERT_TRUE(transfer.Validate({others->begin(), others->begin() + 100}).ok());
    EXPECT_EQ(transfer.misleads(), misleads);
  }
}

TEST(Rank, LearnsFromItsOwnTable) {
  const auto problem = ReplayProblem::Make(MakeTable(400));
  ASSERT_TRUE(problem.ok());
  const auto few = RankWithin(**problem, {.records = 32});
  const auto many = RankWithin(**problem, {.records = 500});
  ASSERT_TRUE(few.ok() && many.ok());
  EXPECT_GT(many->pairs, 0.78);  // failures do not depend on features
  EXPECT_GT(many->pairs, few->pairs);
  EXPECT_GT(few->pairs, 0.5);
  EXPECT_EQ(RankWithin(**problem, {.without = {"nothing"}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

std::vector<std::unique_ptr<ReplayProblem>> ThreeTables() {
  std::vector<std::unique_ptr<ReplayProblem>> problems;
  for (const int extent : {64, 128, 192}) {
    problems.push_back(*ReplayProblem::Make(MakeTable(200, extent)));
  }
  return problems;
}

// Pages are what a worker fits to; a sample of the records is what a search was told of before.
TEST(Fit, PagesOfAllRecordsRankAsAllRecordsInMemoryDo) {
  const auto problems = ThreeTables();
  FitOptions options;
  options.model = cost_model::Methods()[0].others;
  const size_t others =
      problems[1]->table().rows.size() + problems[2]->table().rows.size();  // of the first
  const auto memory = FitAndRank(problems, *problems[0], options);
  options.paged = true;
  const auto paged = FitAndRank(problems, *problems[0], options);
  options.paged = false;
  options.records = 60;
  const auto sample = FitAndRank(problems, *problems[0], options);
  ASSERT_TRUE(memory.ok() && paged.ok() && sample.ok()) << paged.status();
  EXPECT_EQ(memory->samples, static_cast<int64_t>(others)) << "none of the table's own";
  EXPECT_EQ(paged->samples, memory->samples);
  EXPECT_EQ(sample->samples, 60);
  EXPECT_EQ(paged->tasks, 2);
  EXPECT_NEAR(paged->quality.pairs, memory->quality.pairs, 0.05);
  EXPECT_GT(paged->quality.pairs, 0.6);
  EXPECT_GT(paged->quality.correlation, 0.2);
  EXPECT_LE(paged->quality.correlation, 1);
  const auto again = FitAndRank(problems, *problems[0], options);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->quality.pairs, sample->quality.pairs) << "it repeats exactly";
}

}  // namespace
}  // namespace heddle::bench
