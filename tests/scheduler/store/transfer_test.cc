// What searches predicted, learned and taught, in all record stores.
#include <sqlite3.h>

#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "scheduler/store/sqlite_schema.h"
#include "scheduler/store/transfer.h"
#include "tests/scheduler/store/all_stores.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class LearnedTest : public RecordStoreTest {};

TEST_P(LearnedTest, PredictionsComeWithTheRecords) {
  AddJob(1, 1, 1);
  InsertCandidate predicted{MakeCandidate(1, 7, 0, "annealing")};
  predicted.prediction.emplace().set_score(-0.25);
  predicted.prediction->set_samples(32);
  ASSERT_TRUE(Apply({predicted, MakeRecord(1, 1, 0, 100), MakeRecord(1, 7, 0, 90)}).ok());
  const std::vector<v1::Record> records = Query({});
  ASSERT_THAT(records, SizeIs(2));
  EXPECT_EQ(records[0].origin(), "annealing");
  EXPECT_EQ(records[0].prediction().score(), -0.25);
  EXPECT_EQ(records[0].prediction().samples(), 32);
  EXPECT_EQ(records[1].origin(), "default");
  EXPECT_FALSE(records[1].has_prediction());
}

TEST_P(LearnedTest, KeepsWhatSearchesLearned) {
  AddJob(1, 3, 0);
  const auto learned = [](int task, const std::string& target, const std::string& samples,
                          int32_t at, int32_t version = 1) {
    PutLearned put{1, task, {}, {Key(task), target, "dev"}, {}, at};
    put.report.set_samples(at);
    put.transfer_samples.set_samples(samples);
    put.transfer_samples.set_measured(at);
    put.transfer_samples.set_version(version);
    return put;
  };
  const auto others = [&](int task, int64_t limit) {
    std::vector<std::string> samples;
    const auto found = store_->FindRelatedSamples({Key(task), "t", "dev"}, limit);
    for (const TransferSamples& other : found.value()) {
      EXPECT_EQ(other.workload.key, Key(other.learned.samples() == "one" ? 1 : 2));
      samples.push_back(other.learned.samples());
    }
    return samples;
  };
  EXPECT_FALSE(store_->Report(1, 0)->has_value());
  EXPECT_THAT(others(0, 9), SizeIs(0));
  ASSERT_TRUE(Apply({learned(0, "t", "zero", 1), learned(1, "t", "one", 3),
                     learned(2, "t", "two", 2), learned(2, "other target", "x", 9)})
                  .ok());
  EXPECT_THAT(others(0, 9), ElementsAre("one", "two")) << "the latest first, none of its own";
  EXPECT_THAT(others(0, 1), ElementsAre("one"));
  EXPECT_EQ((*store_->Report(1, 1))->samples(), 3);
  ASSERT_TRUE(Apply({learned(2, "t", "more of two", 5), learned(1, "t", "", 7)}).ok());
  EXPECT_THAT(others(0, 9), ElementsAre("more of two", "one")) << "nothing new of one";
  EXPECT_EQ((*store_->Report(1, 1))->samples(), 7);
  PutLearned shorter = learned(2, "t", "less of two", 4);
  shorter.made_unix_ns = 9;
  ASSERT_TRUE(Apply({shorter}).ok());
  EXPECT_THAT(others(0, 9), ElementsAre("more of two", "one")) << "a short search knows less";
  EXPECT_EQ(store_->FindRelatedSamples({Key(0), "t", "dev"}, 9)->front().learned.measured(), 5);
  ASSERT_TRUE(Apply({learned(2, "t", "another form of two", 4, 2)}).ok());
  EXPECT_THAT(others(0, 9), ElementsAre("another form of two", "one")) << "the old one is no use";
  ASSERT_TRUE(Apply({learned(2, "t", "the old form", 4, 1)}).ok());
  EXPECT_THAT(others(0, 9), ElementsAre("another form of two", "one")) << "of an older worker";
  ASSERT_TRUE(Apply({learned(2, "t", "the old form, longer", 6, 1)}).ok());
  EXPECT_THAT(others(0, 9), ElementsAre("the old form, longer", "one")) << "it learned more";
  ASSERT_TRUE(Apply({PutTask{MakeTask(1, 1)}}).ok());
  EXPECT_EQ((*store_->Report(1, 1))->samples(), 7) << "a task that changes keeps its report";
  EXPECT_FALSE(store_->Report(1, 8)->has_value());
}

// What a task of job 1 taught, by the time `at`.
PutLearned Learned(int task, const std::string& target, const std::string& device,
                   const std::string& samples, int64_t at) {
  PutLearned put{1, task, {}, {Key(task), target, device}, {}, at};
  put.transfer_samples.set_samples(samples);
  return put;
}

TEST_P(LearnedTest, TellsWhatIsNearerFirst) {
  AddJob(1, 3, 0);
  ASSERT_TRUE(
      Apply({Learned(2, "t", "dev", "same", 1), Learned(1, "t -threads=2", "dev", "two", 5),
             Learned(0, "t -threads=2", "dev", "itself with two", 4),
             Learned(1, "t", "dev2", "another device", 9),
             Learned(1, "u", "dev", "another kind", 10),
             Learned(1, "tt", "dev", "another kind", 10), Learned(0, "t", "dev", "itself", 11)})
          .ok());
  const auto others = [&](int64_t limit) {
    std::vector<std::string> samples;
    const auto found = store_->FindRelatedSamples({Key(0), "t", "dev"}, limit);
    for (const TransferSamples& other : found.value()) samples.push_back(other.learned.samples());
    return samples;
  };
  EXPECT_THAT(others(9), ElementsAre("itself with two", "same", "two", "another device"));
  EXPECT_THAT(others(2), ElementsAre("itself with two", "same"));
}

// A network has more other tasks than a search is told.
TEST_P(LearnedTest, TellsOfTheWorkloadItselfBeforeManyOthers) {
  AddJob(1, 8, 0);
  Batch batch = {Learned(0, "t", "dev2", "elsewhere", 1),
                 Learned(0, "t -threads=2", "dev", "two", 2),
                 Learned(0, "t -threads=4", "dev", "four", 3)};
  for (int task = 1; task < 8; ++task) batch.push_back(Learned(task, "t", "dev", "other", 10));
  ASSERT_TRUE(Apply(batch).ok());
  std::vector<std::string> told;
  const auto found = store_->FindRelatedSamples({Key(0), "t", "dev"}, 5);
  for (const TransferSamples& e : found.value()) told.push_back(e.learned.samples());
  EXPECT_THAT(told, ElementsAre("four", "two", "elsewhere", "other", "other"));
}

// All samples of a kind of target are read page by page, each once.
TEST_P(LearnedTest, ReadsAllSamplesInPages) {
  AddJob(1, 8, 0);
  Batch batch = {Learned(0, "t", "dev2", "0 t dev2", 1), Learned(0, "u", "dev", "another kind", 2)};
  std::set<std::string> all = {"0 t dev2"};
  for (int task = 0; task < 8; ++task) {
    for (const std::string target : {"t", "t -threads=2"}) {
      batch.push_back(Learned(task, target, "dev", absl::StrCat(task, " ", target, " dev"), 3));
      all.insert(absl::StrCat(task, " ", target, " dev"));
    }
  }
  ASSERT_TRUE(Apply(batch).ok());
  for (const int64_t limit : {1, 3, 17, 100}) {
    std::multiset<std::string> read;
    std::optional<WorkloadId> after;
    while (true) {
      const auto page = store_->SamplesAfter("t", after, limit);
      ASSERT_TRUE(page.ok()) << page.status();
      EXPECT_LE(page->size(), static_cast<size_t>(limit));
      for (const TransferSamples& one : *page) read.insert(one.learned.samples());
      if (page->empty()) break;
      after = page->back().workload;
    }
    EXPECT_EQ(read, std::multiset<std::string>(all.begin(), all.end())) << "pages of " << limit;
  }
  EXPECT_THAT(*store_->SamplesAfter("none", std::nullopt, 9), SizeIs(0));
}

v1::TransferModel Model(const std::string& bytes, int64_t made) {
  v1::TransferModel model;
  model.set_model(bytes);
  model.set_samples(7);
  model.set_made_unix_ns(made);
  return model;
}

TEST_P(LearnedTest, KeepsTheModelsThatSearchesBeginWith) {
  AddJob(1, 2, 0);
  const auto models = [&] {
    std::vector<std::string> found;
    const auto all = store_->AllTransferModels();
    for (const auto& [id, model] : all.value()) {
      found.push_back(absl::StrCat(id.target, " ", id.device_key, " ", id.strategy, ": ",
                                   model.model(), " ", model.samples(), " ", model.made_unix_ns(),
                                   " ", model.since()));
    }
    return found;
  };
  EXPECT_THAT(models(), ElementsAre());
  const TransferModelId id{"t", "dev", "annealing"};
  ASSERT_TRUE(Apply({PutTransferModel{id, Model("a", 5)},
                     PutTransferModel{{"t", "dev2", "annealing"}, Model("b", 6)},
                     PutTransferModel{{"t", "dev", "regression"}, Model("c", 7)}})
                  .ok());
  PutLearned learned = Learned(1, "t -threads=2", "dev", "samples", 9);
  learned.results = 15;
  ASSERT_TRUE(Apply({learned}).ok());
  learned.transfer_samples.clear_samples();
  learned.results = 1;
  ASSERT_TRUE(Apply({learned}).ok());
  EXPECT_THAT(models(), ElementsAre("t dev annealing: a 7 5 16", "t dev regression: c 7 7 16",
                                    "t dev2 annealing: b 7 6 0"))
      << "what was measured on a device counts for its models";
  ASSERT_TRUE(Apply({PutTransferModel{id, Model("newer", 8)}}).ok());
  ASSERT_TRUE(Apply({PutTransferModel{{"t", "dev", "regression"}, {}}}).ok());
  EXPECT_THAT(models(), ElementsAre("t dev annealing: newer 7 8 0", "t dev2 annealing: b 7 6 0"));
  const Batch refused = {PutTransferModel{id, Model("never", 9)},
                         InsertCandidate{MakeCandidate(9, 1, 0, "no such job")}};
  EXPECT_FALSE(Apply(refused).ok());
  EXPECT_THAT(models(), ElementsAre("t dev annealing: newer 7 8 0", "t dev2 annealing: b 7 6 0"));
  for (size_t i = 0; i < TransferModels::kMost - 1; ++i) {
    const TransferModelId more{"t", absl::StrCat("dev1", i), "annealing"};
    ASSERT_TRUE(Apply({PutTransferModel{more, Model("m", 20 + static_cast<int64_t>(i))}}).ok());
  }
  EXPECT_THAT(models(), SizeIs(TransferModels::kMost));
  EXPECT_THAT(models(), ::testing::Not(::testing::Contains("t dev2 annealing: b 7 6 0")))
      << "the oldest one goes";
}

// It can be made again; whatever else is in the database cannot.
TEST(LearnedModels, OneThatIsNotReadableIsLeftOut) {
  const std::string path = TempDirectory() + "/damaged.db";
  const auto opened = OpenSqliteRecordStore(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const Batch batch = {PutTransferModel{{"t", "dev", "annealing"}, Model("a", 5)},
                       PutTransferModel{{"t", "dev", "regression"}, Model("b", 6)}};
  const auto applied = (*opened)->Apply({batch});
  ASSERT_TRUE(applied.ok() && applied->front().ok());
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  constexpr char kDamage[] = "UPDATE others_models SET model=x'ff' WHERE strategy='annealing'";
  ASSERT_EQ(sqlite3_exec(db, kDamage, nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  const auto models = (*opened)->AllTransferModels();
  ASSERT_TRUE(models.ok()) << models.status();
  ASSERT_THAT(*models, SizeIs(1));
  EXPECT_EQ(models->begin()->second.model(), "b");
}

TEST(TransferModels, AreStaleOnceAQuarterIsNew) {
  v1::TransferModel model = Model("m", 1);
  const auto stale_at = [&] {
    for (int64_t since = 0;; ++since) {
      model.set_since(since);
      if (IsStale(model)) return since;
    }
  };
  EXPECT_EQ(stale_at(), 16);
  v1::TransferModel::Teacher& one = *model.add_teachers();
  one.set_measured(100);
  model.add_teachers()->set_measured(300);
  EXPECT_EQ(stale_at(), 100);
  one.set_measured(1'000'000);
  EXPECT_EQ(stale_at(), kRefresh);
  model.clear_teachers();
  model.set_measured(40'000);
  EXPECT_EQ(stale_at(), 10'000) << "it learned from all tasks";
  model.set_measured(1'000'000);
  EXPECT_EQ(stale_at(), kRefreshOfAll);
}

TEST(TransferModels, CountWhatTheirDeviceKeyLearned) {
  TransferModels models;
  v1::TransferModel model;
  model.set_model("m");
  models.Put({"t", "dev", "annealing"}, model);
  models.Put({"t", "other", "annealing"}, model);
  models.Count("dev", 16);
  models.Count("other", 512);
  models.Count("dev", 3);
  EXPECT_EQ(models.counted("dev"), 19);
  EXPECT_EQ(models.counted("other"), 512);
  EXPECT_EQ(models.counted("none"), 0);
  EXPECT_EQ(models.Find({"t", "dev", "annealing"})->since(), 19);
}

TEST(TransferModels, SuitWhomTheirTeachersDo) {
  v1::TransferModel model = Model("m", 1);
  const auto taught = [&](const WorkloadId& id) {
    v1::TransferModel::Teacher& teacher = *model.add_teachers();
    teacher.set_workload_key(id.key);
    teacher.set_target(id.target);
    teacher.set_device_key(id.device_key);
  };
  taught({"a", "t", "dev"});
  taught({"b", "t -threads=2", "dev"});
  EXPECT_TRUE(MayStartFrom(model, {"c", "t", "dev"}, false, nullptr));
  EXPECT_FALSE(MayStartFrom(model, {"a", "t", "dev"}, false, nullptr)) << "it taught itself";
  const TransferSamples a{{"a", "t", "dev"}, {}}, b{{"b", "t -threads=2", "dev"}, {}},
      elsewhere{{"c", "t", "dev2"}, {}};
  EXPECT_TRUE(MayStartFrom(model, {"b", "t", "dev"}, false, &b))
      << "what it learned with two threads";
  EXPECT_TRUE(MayStartFrom(model, {"c", "t", "dev"}, false, &a));
  EXPECT_FALSE(MayStartFrom(model, {"c", "t", "dev"}, false, &elsewhere))
      << "the best teacher is not among them";
  EXPECT_TRUE(MayStartFrom(model, {"d", "t", "dev"}, false, &elsewhere))
      << "it is no better than others";
  v1::TransferModel of_all = Model("m", 1);
  of_all.set_measured(5000);
  EXPECT_TRUE(MayStartFrom(of_all, {"c", "t", "dev"}, false, &elsewhere));
  EXPECT_FALSE(MayStartFrom(of_all, {"c", "t", "dev"}, true, nullptr)) << "it was among all";
}

// ---- what plan stages found about kernels' costs ----

v1::KernelFactor Factor(int task, double log_factor) {
  v1::KernelFactor factor;
  factor.set_workload_key(Key(task));
  factor.set_op("conv2d");
  factor.set_layout("channels_last");
  factor.set_window(absl::StrCat("[1, 1] ", task));
  factor.set_log_factor(log_factor);
  factor.set_version(3);
  return factor;
}
std::vector<std::string> Texts(const std::vector<v1::KernelFactor>& factors) {
  std::vector<std::string> texts;
  for (const v1::KernelFactor& factor : factors) {
    texts.push_back(absl::StrCat(factor.workload_key().substr(15), " ", factor.log_factor()));
    EXPECT_EQ(factor.op(), "conv2d");
    EXPECT_EQ(factor.layout(), "channels_last");
    EXPECT_EQ(factor.window(), "[1, 1] " + factor.workload_key().substr(15));
    EXPECT_EQ(factor.version(), 3);
  }
  return texts;
}

TEST_P(LearnedTest, KeepsWhatPlanStagesFound) {
  AddJob(1, 4, 0);
  EXPECT_THAT(store_->FindExperience("llvm -mcpu=x", "dev", 9)->device, SizeIs(0));
  const auto put = [&](const std::string& target, const std::string& device, int64_t at,
                       std::vector<v1::KernelFactor> factors) {
    return Apply({PutExperience{target, device, at, std::move(factors)}});
  };
  ASSERT_TRUE(put("llvm -mcpu=x", "dev", 10, {Factor(2, 0.5), Factor(1, 0.25)}).ok());
  ASSERT_TRUE(put("llvm -mcpu=x", "dev", 20, {Factor(3, -1), Factor(7, 9)}).ok());
  ASSERT_TRUE(put("llvm -mcpu=x -threads=2", "dev", 15, {Factor(1, 2)}).ok());
  ASSERT_TRUE(put("llvm -mcpu=y", "other", 25, {Factor(1, 3)}).ok());
  ASSERT_TRUE(put("cuda -arch=sm_90", "gpu", 30, {Factor(1, 4)}).ok());
  auto found = *store_->FindExperience("llvm -mcpu=x", "dev", 9);
  EXPECT_THAT(Texts(found.device), ElementsAre("3 -1", "1 0.25", "2 0.5"))
      << "newest first, without the workload that no task has";
  EXPECT_THAT(Texts(found.others), ElementsAre("1 3", "1 2"))
      << "of other devices and other targets, but of the same kind";
  found = *store_->FindExperience("llvm -mcpu=x", "dev", 1);
  EXPECT_THAT(Texts(found.device), ElementsAre("3 -1"));
  EXPECT_THAT(Texts(found.others), ElementsAre("1 3"));
  // A new job on an unknown device has only the others.
  found = *store_->FindExperience("llvm -mcpu=z", "new", 9);
  EXPECT_THAT(found.device, SizeIs(0));
  EXPECT_THAT(Texts(found.others), ElementsAre("1 3", "3 -1", "1 2", "1 0.25", "2 0.5"));
  // What is newer replaces what is known.
  ASSERT_TRUE(put("llvm -mcpu=x", "dev", 40, {Factor(2, 0.75)}).ok());
  found = *store_->FindExperience("llvm -mcpu=x", "dev", 9);
  EXPECT_THAT(Texts(found.device), ElementsAre("2 0.75", "3 -1", "1 0.25"));
  // A batch that is refused changes none.
  ASSERT_TRUE(Apply({CheckFence{{{"w1", "cpu0"}, 7}}}).ok());
  EXPECT_FALSE(Apply({PutExperience{"llvm -mcpu=x", "dev", 50, {Factor(2, 8), Factor(0, 8)}},
                      CheckFence{{{"w1", "cpu0"}, 6}}})
                   .ok());
  found = *store_->FindExperience("llvm -mcpu=x", "dev", 9);
  EXPECT_THAT(Texts(found.device), ElementsAre("2 0.75", "3 -1", "1 0.25"));
}

TEST_P(LearnedTest, KeepsTheNewestFactorsOfADeviceKey) {
  constexpr int kMore = 10;
  constexpr auto kMost = static_cast<int>(kMaxExperience);
  const auto key = [](int i) { return absl::StrCat(1'000'000'000'000'000 + i); };
  Batch batch = {PutJob{MakeJob(1)}};
  std::vector<v1::KernelFactor> factors;
  for (int i = 0; i < kMost + kMore; ++i) {
    TaskRow task = MakeTask(1, i);
    task.info.set_key(key(i));
    batch.push_back(PutTask{task});
    factors.push_back(Factor(1, i));
    factors.back().set_workload_key(key(i));
  }
  ASSERT_TRUE(Apply(std::move(batch)).ok());
  const std::vector<v1::KernelFactor> first(factors.begin(), factors.begin() + kMost);
  ASSERT_TRUE(Apply({PutExperience{"llvm", "dev", 10, first}}).ok());
  ASSERT_TRUE(Apply({PutExperience{"llvm", "other", 5, {factors[0]}}}).ok());
  const std::vector<v1::KernelFactor> more(factors.begin() + kMost, factors.end());
  // A batch that is refused brings back what it displaced.
  ASSERT_TRUE(Apply({CheckFence{{{"w1", "cpu0"}, 7}}}).ok());
  EXPECT_FALSE(
      Apply({PutExperience{"llvm -threads=2", "dev", 20, more}, CheckFence{{{"w1", "cpu0"}, 6}}})
          .ok());
  EXPECT_THAT(store_->FindExperience("llvm", "dev", 2 * kMost)->device, SizeIs(kMost));
  ASSERT_TRUE(Apply({PutExperience{"llvm -threads=2", "dev", 20, more}}).ok());
  const Experience found = *store_->FindExperience("llvm", "dev", 2 * kMost);
  ASSERT_THAT(found.device, SizeIs(kMost - kMore)) << "all targets of a device key together";
  EXPECT_EQ(found.device.front().workload_key(), key(0));
  EXPECT_EQ(found.device.back().workload_key(), key(kMost - kMore - 1));
  EXPECT_THAT(found.others, SizeIs(kMore + 1)) << "other device keys keep theirs";
}

// Whatever is put, in whatever order: the newest of each workload is found, newest first.
TEST_P(LearnedTest, FindsTheNewestOfEachKernelWhateverIsPut) {
  AddJob(1, 8, 0);
  std::mt19937 random(7);
  const std::vector<std::string> targets = {"llvm", "llvm -threads=2", "cuda"},
                                 devices = {"a", "b"};
  std::map<WorkloadId, std::pair<int64_t, double>> known;
  for (int step = 0; step < 200; ++step) {
    const std::string &target = targets[random() % 3], &device = devices[random() % 2];
    const int64_t at = step / 3;  // several at the same time
    PutExperience put{target, device, at, {}};
    std::set<int> tasks;
    for (size_t i = random() % 5; i > 0; --i) tasks.insert(static_cast<int>(random() % 8));
    for (const int task : tasks) {
      put.factors.push_back(Factor(task, static_cast<double>(step)));
      known[{Key(task), target, device}] = {at, step};
    }
    ASSERT_TRUE(Apply({put}).ok());
    const std::string &of = targets[random() % 3], &on = devices[random() % 2];
    const size_t limit = 1 + random() % 6;
    using Sorted = std::map<std::pair<int64_t, WorkloadId>, double>;  // by minus the time
    Sorted own, others;
    for (const auto& [id, made] : known) {
      const bool same = id.target == of && id.device_key == on;
      if (same || (of == "cuda") == (id.target == "cuda"))
        (same ? own : others)[{-made.first, id}] = made.second;
    }
    const auto texts = [&](const Sorted& sorted) {
      std::vector<std::string> wanted;
      for (const auto& [id, factor] : sorted) {
        if (wanted.size() < limit)
          wanted.push_back(absl::StrCat(id.second.key.substr(15), " ", factor));
      }
      return wanted;
    };
    const Experience found = *store_->FindExperience(of, on, static_cast<int64_t>(limit));
    ASSERT_EQ(Texts(found.device), texts(own)) << step;
    ASSERT_EQ(Texts(found.others), texts(others)) << step;
  }
}

TEST(LearnedMigration, ADatabaseOfVersionSixKeepsItsTasks) {
  const std::string path = TempDirectory() + "/old.db";
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  ASSERT_TRUE(Migrate(db, 6).ok());
  const std::string rows =
      absl::StrCat("INSERT INTO workloads VALUES(1,'", Key(1), "','workload 1','conv',1);",
                   "INSERT INTO jobs VALUES(1,x'',4,0,'',0,'','dev','','',1,2,3,x'');",
                   "INSERT INTO tasks VALUES(1,0,1,5,64,0,0,1,0,0,0,0,x'',x'');");
  ASSERT_EQ(sqlite3_exec(db, rows.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
      << sqlite3_errmsg(db);
  sqlite3_close(db);
  const auto opened = OpenSqliteRecordStore(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto jobs = (*opened)->LoadJobs();
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  ASSERT_THAT(*jobs, SizeIs(1));
  EXPECT_EQ(jobs->front().tasks[0].info.weight(), 5);
  EXPECT_EQ(jobs->front().tasks[0].estimated_weight, 5);
  EXPECT_EQ(jobs->front().tasks[0].rival_weight, 0);
  const auto applied = (*opened)->Apply({Batch{PutExperience{"llvm", "dev", 1, {Factor(1, 0.5)}}}});
  ASSERT_TRUE(applied.ok() && applied->front().ok());
  EXPECT_THAT(Texts((*opened)->FindExperience("llvm", "dev", 9)->device), ElementsAre("1 0.5"));
}

TEST(RecordMigration, ADatabaseOfVersionSevenTellsWhoMeasured) {
  const std::string path = TempDirectory() + "/old.db";
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  ASSERT_TRUE(Migrate(db, 7).ok());
  const std::string measured = MakeRecord(1, 1, 1, 100).record.measurement().SerializeAsString();
  std::string hex;
  for (const char c : measured)
    absl::StrAppend(&hex, absl::Hex(static_cast<uint8_t>(c), absl::kZeroPad2));
  const auto row = [&](int id, const std::string& of) {
    return absl::StrCat("INSERT INTO records VALUES(", id, ",1,1,1,'trace',1,100,", id, ",", of,
                        ",'',x'", hex, "',x'", id, id, "');");
  };
  const std::string rows = absl::StrCat(
      "INSERT INTO workloads VALUES(1,'", Key(1), "','workload 1','conv',1);",
      "INSERT INTO targets VALUES(1,'t'); INSERT INTO devices(id,key) VALUES(1,'dev');",
      row(1, "1,1,1"), row(2, "NULL,NULL,NULL"));
  ASSERT_EQ(sqlite3_exec(db, rows.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
      << sqlite3_errmsg(db);
  sqlite3_close(db);
  const auto opened = OpenSqliteRecordStore(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  v1::RecordQuery query;
  query.set_worker("w1");
  ASSERT_THAT(*(*opened)->Query(query), SizeIs(1));
  EXPECT_EQ((*opened)->Query(query)->front().id(), 1);
  query.Clear();
  query.set_imported_by("unknown");
  ASSERT_THAT(*(*opened)->Query(query), SizeIs(1));
  EXPECT_EQ((*opened)->Query(query)->front().id(), 2);
}

// Its rows say neither of how many measurements they are nor of which version.
TEST(LearnedMigration, ADatabaseOfVersionThreeKeepsItsTransferSamples) {
  const std::string path = TempDirectory() + "/old.db";
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  ASSERT_TRUE(Migrate(db, 3).ok());
  const std::string rows =
      absl::StrCat("INSERT INTO workloads VALUES(1,'", Key(1),
                   "','workload 1','conv',1);"
                   "INSERT INTO workloads VALUES(2,'",
                   Key(2),
                   "','workload 2','conv',1);"
                   "INSERT INTO targets VALUES(1,'t'); INSERT INTO devices VALUES(1,'dev');"
                   "INSERT INTO experience VALUES(1,1,1,7,x'6f6e65'); INSERT INTO experience "
                   "VALUES(2,1,1,8,x'74776f');");
  ASSERT_EQ(sqlite3_exec(db, rows.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  const auto opened = OpenSqliteRecordStore(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  RecordStore& store = **opened;
  const auto others = [&] {
    std::vector<std::string> found;
    const auto transfer_samples = store.FindRelatedSamples({Key(0), "t", "dev"}, 9);
    for (const TransferSamples& e : transfer_samples.value()) {
      found.push_back(
          absl::StrCat(e.learned.samples(), " ", e.learned.measured(), " ", e.learned.version()));
    }
    return found;
  };
  EXPECT_THAT(others(), ElementsAre("two 0 0", "one 0 0"));
  Batch batch = {PutJob{MakeJob(1)}, PutTask{MakeTask(1, 1)}};
  PutLearned put{1, 1, {}, {Key(1), "t", "dev"}, {}, 9};
  put.transfer_samples.set_samples("newer");
  put.transfer_samples.set_measured(16);
  put.transfer_samples.set_version(1);
  batch.push_back(put);
  const auto applied = store.Apply({batch});
  ASSERT_TRUE(applied.ok() && applied->front().ok());
  EXPECT_THAT(others(), ElementsAre("newer 16 1", "two 0 0"));
}

INSTANTIATE_TEST_SUITE_P(All, LearnedTest, kStores, StoreName);

}  // namespace
}  // namespace heddle::scheduler
