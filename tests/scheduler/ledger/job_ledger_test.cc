// What the scheduler knows of a job beyond what decisions need, and what users see of it.
#include "scheduler/ledger/job_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/vocabulary/job_limits.h"
#include "scheduler/ledger/stage_order.h"
#include "scheduler/ledger/why_waiting.h"
#include "scheduler/store/memory_record_store.h"
#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;

class DeadlineWarningTest : public ::testing::Test {
 protected:
  void SetUp() override {
    v1::JobSpec spec;
    spec.set_target("llvm -mcpu=a");
    spec.set_trials_per_task(1);
    spec.set_deadline_unix_ns(absl::ToUnixNanos(now_ + absl::Minutes(10)));
    JobSubmitted submitted{id_, *JobLedger::ParamsFrom(spec, now_, now_)};
    *submitted.description.mutable_spec() = spec;
    Feed(submitted);
  }
  void Feed(const Event& event) {
    const Decisions decisions = dispatcher_.Step(event, now_);
    ledger_.Absorb(dispatcher_, event, decisions.changes, now_, now_);
  }
  std::string Estimate(bool late, int minutes) {
    return DescribeEstimate(*dispatcher_.FindJob(id_), {id_, late, now_ + absl::Minutes(minutes)},
                            now_, now_);
  }
  std::vector<std::string> Warnings() {
    const v1::Job view = ledger_.View(dispatcher_, id_, now_);
    return {view.warnings().begin(), view.warnings().end()};
  }

  const JobId id_{1};
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  Dispatcher dispatcher_{*MakePolicy("round_robin")};
  JobLedger ledger_;
};

TEST_F(DeadlineWarningTest, IsOneAndTheLatest) {
  ledger_.AddWarnings(id_, {"a pass was left out"});
  ledger_.SetDeadlineWarning(id_, Estimate(true, 12));
  const std::string later = Estimate(true, 20);
  EXPECT_THAT(later, ::testing::HasSubstr("10m late"));
  ledger_.SetDeadlineWarning(id_, later);
  EXPECT_THAT(Warnings(), ElementsAre("a pass was left out", later));
}

TEST_F(DeadlineWarningTest, IsOneAfterARestart) {
  ledger_.SetDeadlineWarning(id_, Estimate(true, 12));
  StoredJob stored;
  stored.row = ledger_.data(id_).row;
  ledger_ = JobLedger();
  ledger_.Load(stored, now_, now_);
  const std::string now = Estimate(true, 15);
  ledger_.SetDeadlineWarning(id_, now);
  EXPECT_THAT(Warnings(), ElementsAre(now));
}

// What the job's line says about its deadline and what its warning says go by the same estimate.
TEST_F(DeadlineWarningTest, AgreesWithTheTimeThatIsLeft) {
  SlotInfo cpu, device;
  cpu.id = {"w", "c"};
  device.id = {"w", "d"};
  device.device = true;
  device.target = "llvm -mcpu=a";
  device.device_key = "key";
  device.cores = {1};
  Feed(SlotsChanged{{cpu, device}, ""});
  const AttemptId import = dispatcher_.live().begin()->first;
  Feed(StageFinished{import, {}, true, ImportOf({{"a"}}, "")});
  const absl::Time end = dispatcher_.ExpectedEnd(*dispatcher_.FindJob(id_), now_);
  ASSERT_LT(end, absl::InfiniteFuture());
  EXPECT_EQ(ledger_.View(dispatcher_, id_, now_).eta_ms(), absl::ToInt64Milliseconds(end - now_));
  // Nor is the view an estimate of its own: that is made at most every so often.
  Feed(SlotsChanged{{cpu}, ""});
  EXPECT_EQ(ledger_.View(dispatcher_, id_, now_).eta_ms(), absl::ToInt64Milliseconds(end - now_));
  now_ += absl::Seconds(10);
  Feed(Tick{});
  EXPECT_EQ(ledger_.View(dispatcher_, id_, now_).eta_ms(), 0) << "without a device nobody knows";
}

TEST_F(DeadlineWarningTest, AnImportIsCommittedUnderItsLease) {
  SlotInfo cpu;
  cpu.id = {"w", "c"};
  Feed(SlotsChanged{{cpu}, ""});
  StageFinished end{dispatcher_.live().begin()->first, {}, true, ImportOf({{"a"}}, "")};
  end.fence = {cpu.id, 6};
  const Batch batch =
      ledger_.Absorb(dispatcher_, end, dispatcher_.Step(end, now_).changes, now_, now_);
  ASSERT_FALSE(batch.empty());
  ASSERT_TRUE(std::holds_alternative<CheckFence>(batch[0]));
  EXPECT_EQ(std::get<CheckFence>(batch[0]).fence.token, 6u);
}

TEST_F(DeadlineWarningTest, GoesWhenItCanBeMetOrTheJobIsOver) {
  ledger_.SetDeadlineWarning(id_, Estimate(true, 12));
  ledger_.SetDeadlineWarning(id_, Estimate(false, 5));
  EXPECT_THAT(Warnings(), ElementsAre());
  ledger_.SetDeadlineWarning(id_, Estimate(true, 12));
  Feed(CancelRequested{id_, "enough"});
  EXPECT_THAT(Warnings(), ElementsAre());
}

// A job takes the machine that its import was sent, and keeps it.
class JobMachineTest : public DispatcherTest {
 protected:
  static SlotInfo Device(const std::string& worker, const std::string& key,
                         const std::string& machine) {
    SlotInfo slot = DeviceSlot("p", {1}, worker);
    slot.device_key = key;
    slot.machine = machine;
    return slot;
  }
  Batch Feed(const Event& event) {
    return ledger_.Absorb(dispatcher_, event, Step(event).changes, now_, now_);
  }
  // The machines that become durable with the slots.
  std::map<std::string, std::string> Slots(std::vector<SlotInfo> slots) {
    std::map<std::string, std::string> put;
    for (const StoreChange& change : Feed(SlotsChanged{std::move(slots), ""})) {
      if (const auto* machine = std::get_if<PutMachine>(&change))
        put[machine->device_key] = machine->machine;
    }
    return put;
  }
  void SubmitJob(const std::string& device_key = "") {
    JobParams params;
    params.target = kTarget;
    params.trials_per_task = 4;
    params.batch = 4;
    params.device_key = device_key;
    v1::Job description;
    description.mutable_spec()->set_target(kTarget);
    description.set_created_unix_ns(1234);
    Feed(JobSubmitted{JobId{1}, params, description});
  }
  v1::StageStart Order(v1::StageKind kind) {
    return MakeOrder(dispatcher_, ledger_, Live(kind), v1::SCHEDULE_BEST).start;
  }
  void Import(const std::string& machine) {
    Imported imported = ImportOf({{"a"}}, "key");
    imported.model.add_inputs("x: f32[1]");
    imported.model.set_machine(machine);
    Feed(StageFinished{Live(v1::STAGE_IMPORT).attempt, {}, true, std::move(imported)});
  }

  using Machines = std::map<std::string, std::string>;
  JobLedger ledger_;
};

TEST_F(JobMachineTest, OfAKeyStaysWhileASlotReportsIt) {
  EXPECT_EQ(Slots({CpuSlot("c", {0}), Device("w", "key", "one"), Device("x", "other", "")}),
            Machines({{"key", "one"}}));
  EXPECT_EQ(ledger_.MachineOf("key"), "one");
  EXPECT_EQ(ledger_.MachineOf("other"), "");
  EXPECT_EQ(Slots({Device("v", "key", "two"), Device("w", "key", "one")}), Machines());
  EXPECT_EQ(ledger_.MachineOf("key"), "one");
  EXPECT_EQ(Slots({}), Machines());
  EXPECT_EQ(ledger_.MachineOf("key"), "one") << "its workers are away";
  EXPECT_EQ(Slots({Device("v", "key", "two")}), Machines({{"key", "two"}}));
  EXPECT_EQ(Slots({Device("v", "key", "two"), Device("w", "key", "one")}), Machines());
  EXPECT_EQ(ledger_.MachineOf("key"), "two");
  JobLedger restarted;
  restarted.LoadMachines({{"key", "two"}});
  EXPECT_EQ(restarted.MachineOf("key"), "two");
}

TEST_F(JobMachineTest, OfMoreKeysThanThereEverAreIsNotKept) {
  std::vector<SlotInfo> slots;
  for (size_t i = 0; i < JobLedger::kMostMachines; ++i)
    slots.push_back(Device(absl::StrCat("w", i), absl::StrCat("key", i), "one"));
  EXPECT_EQ(Slots(slots).size(), JobLedger::kMostMachines);
  EXPECT_EQ(Slots({Device("w", "another", "one")}), Machines());
  EXPECT_EQ(ledger_.MachineOf("another"), "");
  EXPECT_EQ(Slots({Device("w", "key7", "two")}), Machines({{"key7", "two"}}));
}

TEST_F(JobMachineTest, IsFixedByTheImport) {
  Slots({CpuSlot("c", {0}), Device("w", "key", "one")});
  SubmitJob();
  EXPECT_EQ(Order(v1::STAGE_IMPORT).machine(), "one");
  EXPECT_EQ(Order(v1::STAGE_IMPORT).job_created_unix_ns(), 1234);
  // The device is measured again while the import runs. The job keeps what its import was sent.
  Slots({CpuSlot("c", {0}), Device("w", "key", "two")});
  Import("one");
  EXPECT_EQ(Order(v1::STAGE_PROPOSE).machine(), "one");
  EXPECT_EQ(ledger_.data(JobId{1}).row.job.machine(), "one");
  StoredJob stored;
  stored.row = ledger_.data(JobId{1}).row;
  JobLedger restarted;
  restarted.Load(stored, now_, now_);
  EXPECT_EQ(restarted.data(JobId{1}).row.job.machine(), "one");
}

TEST_F(JobMachineTest, IsThatOfThePinnedKey) {
  Slots({CpuSlot("c", {0}), Device("w", "key", "one"), Device("x", "other", "two")});
  SubmitJob("other");
  EXPECT_EQ(Order(v1::STAGE_IMPORT).machine(), "two");
  Import("");  // the worker could not read it
  EXPECT_EQ(Order(v1::STAGE_PROPOSE).machine(), "");
}

TEST_F(JobMachineTest, IsNoneWithoutADevice) {
  Slots({CpuSlot("c", {0})});
  SubmitJob();
  EXPECT_EQ(Order(v1::STAGE_IMPORT).machine(), "");
  Import(std::string(100'000, 'x'));
  EXPECT_EQ(ledger_.data(JobId{1}).row.job.machine(), "") << "longer than any";
}

class TransferSamplesTest : public DispatcherTest {
 protected:
  void Feed(const Event& event) {
    ledger_.Absorb(dispatcher_, event, Step(event).changes, now_, now_);
  }
  // The live stage of the first task, or of none.
  StartStage First(v1::StageKind kind) {
    for (const StartStage& start : started_) {
      const bool live = dispatcher_.live().count(start.attempt) > 0;
      if (start.kind == kind && live && (!start.task || start.task->value == 0)) return start;
    }
    ADD_FAILURE() << "no live " << v1::StageKind_Name(kind);
    return {};
  }
  void Finish(v1::StageKind kind, decltype(StageFinished::result) result) {
    Feed(StageFinished{First(kind).attempt, {}, true, std::move(result)});
  }
  // A job that tunes one candidate at a time, as far as its import.
  void SubmitJob() {
    Step(SlotsChanged{{CpuSlot("cpu0", {0}), CpuSlot("cpu1", {1}), DeviceSlot("p2", {2})}, ""});
    JobSubmitted submitted{JobId{1}, {}};
    v1::JobSpec& spec = *submitted.description.mutable_spec();
    spec.set_target(kTarget);
    spec.set_trials_per_task(64);
    spec.set_plan_search("off");
    spec.set_batch(1);
    submitted.params = *JobLedger::ParamsFrom(spec, now_, now_);
    Feed(submitted);
  }
  // One candidate of the first of two tasks, "a" and "b", up to its update.
  void TuneOne() {
    SubmitJob();
    Finish(v1::STAGE_IMPORT, ImportOf({{"a"}, {"b"}}, "key"));
    Round();
  }
  // The next candidate of the first task, up to its update.
  void Round() {
    Finish(v1::STAGE_PROPOSE, Proposed{1, false, std::vector<v1::Candidate>(1), state_});
    const CandidateId candidate = First(v1::STAGE_BUILD).candidates.at(0);
    const AttemptId build = First(v1::STAGE_BUILD).attempt;
    Feed(CandidateBuilt{build, candidate, v1::OUTCOME_OK, ""});
    Feed(StageFinished{build, {}, true, {}});
    auto measured = std::make_shared<Measured>();
    measured->measurement.add_samples_ns(100);
    Feed(CandidateProfiled{First(v1::STAGE_PROFILE).attempt, candidate, v1::OUTCOME_OK, "", 100, 0,
                           measured});
    Finish(v1::STAGE_PROFILE, {});
  }
  void Learn(const std::string& samples) {
    Updated learned{state_};
    learned.transfer_samples = Of(samples, 2);
    Finish(v1::STAGE_UPDATE, learned);
  }
  static v1::TransferSamples Of(const std::string& samples, int measured) {
    v1::TransferSamples transfer_samples;
    transfer_samples.set_samples(samples);
    transfer_samples.set_measured(measured);
    return transfer_samples;
  }
  StageOrder Unfinished(int task) {
    StartStage start = Live(v1::STAGE_PROPOSE);
    start.task = TaskIndex{task};
    return MakeOrder(dispatcher_, ledger_, start, v1::SCHEDULE_BEST);
  }
  StageOrder Order(int task) {
    StageOrder order = Unfinished(task);
    CompleteOrder(FetchInputs(store_.get(), order.reads), &order);
    return order;
  }
  // What a new search of the task is told.
  std::vector<std::string> Others(int task) {
    const StageOrder order = Order(task);
    std::vector<std::string> told;
    for (const v1::RelatedSamples& other : order.start.propose().search().others())
      told.push_back(absl::StrCat(other.samples(), ", ", other.weight()));
    return told;
  }
  std::string state_;  // of searches; empty: each stage begins one
  JobLedger ledger_;
  std::unique_ptr<RecordStore> store_ = MakeMemoryRecordStore();
};

class KeptLoopsTest : public TransferSamplesTest {
 protected:
  // The loops that the record of the task's next trial keeps.
  std::string Trial(const std::string& origin, double ns) {
    std::vector<v1::Candidate> proposed(1);
    proposed[0].set_origin(origin);
    Finish(v1::STAGE_PROPOSE, Proposed{1, false, proposed, "state"});
    const StartStage build = First(v1::STAGE_BUILD);
    const CandidateId candidate = build.candidates.at(0);
    Feed(CandidateBuilt{build.attempt, candidate, v1::OUTCOME_OK, ""});
    Feed(StageFinished{build.attempt, {}, true, {}});
    auto measured = std::make_shared<Measured>();
    measured->measurement.set_loops("loops");
    if (ns > 0) measured->measurement.add_samples_ns(ns);
    const CandidateProfiled profiled{First(v1::STAGE_PROFILE).attempt,
                                     candidate,
                                     ns > 0 ? v1::OUTCOME_OK : v1::OUTCOME_RUN_CRASH,
                                     "",
                                     ns,
                                     0,
                                     measured};
    std::string kept = "no record";
    for (const StoreChange& change :
         ledger_.Absorb(dispatcher_, profiled, Step(profiled).changes, now_, now_)) {
      if (const auto* made = std::get_if<InsertRecord>(&change))
        kept = made->record.measurement().loops();
    }
    Finish(v1::STAGE_PROFILE, {});
    Finish(v1::STAGE_UPDATE, Updated{"state"});
    return kept;
  }
};

TEST_F(KeptLoopsTest, AreThoseThatPeopleLookAt) {
  SubmitJob();
  Finish(v1::STAGE_IMPORT, ImportOf({{"a"}}, "key"));
  EXPECT_EQ(Trial("random", 0), "") << "it crashed";
  EXPECT_EQ(Trial("random", 100), "loops");
  EXPECT_EQ(Trial("random", 100), "") << "no faster";
  EXPECT_EQ(Trial("default", 200), "loops") << "what the best is compared with";
  EXPECT_EQ(Trial("default", 0), "");
  EXPECT_EQ(Trial("random", 50), "loops");
}

TEST_F(TransferSamplesTest, IsToldBeforeTheStoreHasIt) {
  TuneOne();
  EXPECT_THAT(Others(1), ElementsAre());
  Learn("newest of a");
  EXPECT_THAT(Others(1), ElementsAre("newest of a, 1"));
  EXPECT_THAT(Others(0), ElementsAre()) << "nothing of its own";
  Batch stored;
  for (const char* key : {"a", "c"}) {
    TaskRow row;
    row.job = 1;
    row.index = *key;
    row.info.set_key(key);
    stored.push_back(PutJob{ledger_.data(JobId{1}).row});
    stored.push_back(PutTask{row});
    stored.push_back(
        PutLearned{1, *key, {}, {key, kTarget, "key"}, Of("older of " + row.info.key(), 1), 1});
  }
  ASSERT_TRUE(store_->Apply({stored}).ok());
  EXPECT_THAT(Others(1), ElementsAre("newest of a, 1", "older of c, 1")) << "of each the newest";
  EXPECT_THAT(Others(0), ElementsAre("older of c, 1"));
  const Batch longer = {PutLearned{1, 'a', {}, {"a", kTarget, "key"}, Of("long of a", 3), 1}};
  ASSERT_TRUE(store_->Apply({longer}).ok());
  EXPECT_THAT(Others(1), ElementsAre("long of a, 1", "older of c, 1")) << "unless that was shorter";
  const std::string more_threads = absl::StrCat(kTarget, " -threads=2");
  const auto learned = [&](const std::string& key, const std::string& target,
                           const std::string& device, const std::string& samples) {
    return PutLearned{1, 'c', {}, {key, target, device}, Of(samples, 1), 9};
  };
  const Batch farther = {learned("c", kTarget, "another key", "far"),
                         learned("c", more_threads, "key", "c of two threads"),
                         learned("c", "cuda -arch=sm_90", "key", "of another world")};
  ASSERT_TRUE(store_->Apply({farther}).ok());
  EXPECT_THAT(Others(1),
              ElementsAre("long of a, 1", "older of c, 1", "c of two threads, 0.5", "far, 0.25"))
      << "what is farther counts less";
  ASSERT_TRUE(store_->Apply({{learned("a", more_threads, "key", "two threads")}}).ok());
  EXPECT_THAT(Others(0), ElementsAre("two threads, 0.5", "older of c, 1", "c of two threads, 0.5",
                                     "far, 0.25"))
      << "what it learned itself comes first";
}

// A survey begins all searches before any of them has learned. So they begin anew, with the surveyed trial.
TEST_F(TransferSamplesTest, IsToldToASurveyedTaskOnceItIsTuned) {
  state_ = "state";
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("p2", {2})}, ""});
  JobSubmitted submitted{JobId{1}, {}};
  v1::JobSpec& spec = *submitted.description.mutable_spec();
  spec.set_target(kTarget);
  spec.set_trials_per_task(64);
  spec.set_plan_search("joint");
  submitted.params = *JobLedger::ParamsFrom(spec, now_, now_);
  Feed(submitted);
  Finish(v1::STAGE_IMPORT, ImportOf({{"a"}}, "key"));
  Round();
  TaskRow row;
  row.job = 1;
  row.index = 9;
  row.info.set_key("c");
  ASSERT_TRUE(store_
                  ->Apply({{PutJob{ledger_.data(JobId{1}).row}, PutTask{row},
                            PutLearned{1, 9, {}, {"c", kTarget, "key"}, Of("of c", 1), 1}}})
                  .ok());
  Planned planned;
  planned.plan.set_plan("chosen");
  v1::TaskInfo& task = *planned.plan.add_tasks();
  task.set_key("a");
  task.set_weight(1);
  Finish(v1::STAGE_PLAN, planned);
  const auto update = [&] {
    StageOrder order = MakeOrder(dispatcher_, ledger_, First(v1::STAGE_UPDATE), v1::SCHEDULE_BEST);
    CompleteOrder(FetchInputs(store_.get(), order.reads), &order);
    return order;
  };
  const StageOrder first = update();
  EXPECT_EQ(first.search_state, "");
  EXPECT_EQ(first.start.update().results_size(), 1) << "it is not to propose that one again";
  ASSERT_EQ(first.start.update().search().others_size(), 1);
  EXPECT_EQ(first.start.update().search().others(0).samples(), "of c");
  Learn("of a");
  Round();
  const StageOrder second = update();
  EXPECT_EQ(second.search_state, "state");
  EXPECT_EQ(second.start.update().search().others_size(), 0);
}

// Who goes on with a state has what it needs.
TEST_F(TransferSamplesTest, IsToldToThoseWhoBegin) {
  state_ = "state";
  TuneOne();
  Learn("of a");
  const auto of_c = Batch{PutJob{ledger_.data(JobId{1}).row}, PutTask{[] {
                            TaskRow row;
                            row.job = 1;
                            row.info.set_key("c");
                            return row;
                          }()},
                          PutLearned{1, 0, {}, {"c", kTarget, "key"}, Of("of c", 1), 1}};
  ASSERT_TRUE(store_->Apply({of_c}).ok());
  EXPECT_THAT(Others(1), ElementsAre("of a, 1", "of c, 1"));
  EXPECT_THAT(Others(0), ElementsAre());
}

// An answer that was made under an old lease is refused as a whole.
TEST_F(TransferSamplesTest, IsCommittedUnderItsLease) {
  TuneOne();
  const StartStage update = First(v1::STAGE_UPDATE);
  StageFinished end{update.attempt, {}, true, Updated{"older state"}};
  end.fence = {update.slot, 6};
  const Batch batch = ledger_.Absorb(dispatcher_, end, Step(end).changes, now_, now_);
  ASSERT_FALSE(batch.empty());
  EXPECT_EQ(std::get<CheckFence>(batch[0]).fence.token, 6u);
  ASSERT_TRUE(store_->Apply({Batch{CheckFence{{update.slot, 7}}}})->front().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->Apply({batch})->front()));
}

// The model that one search fitted serves the others until a good part of what is known is new.
TEST_F(TransferSamplesTest, IsFittedOnceForManySearches) {
  TuneOne();
  Learn("newest of a");
  StageOrder order = Order(1);
  ASSERT_TRUE(order.transfer_model.has_value());
  const TransferModelId id{kTarget, "key", "annealing"};
  EXPECT_EQ(order.transfer_model->id, id);
  ASSERT_EQ(order.transfer_model->model.teachers_size(), 1);
  EXPECT_EQ(order.transfer_model->model.teachers(0).workload_key(), "a");
  EXPECT_EQ(order.transfer_model->model.teachers(0).measured(), 2);
  // The ledger's changes if the dispatcher takes the result, or does not: the stage was over.
  const auto finish = [&](const std::string& model, int64_t since, bool taken = true) {
    FittedModel fitted{order.transfer_model->id, order.transfer_model->model};
    fitted.model.set_model(model);
    fitted.model.set_since(order.transfer_model->model.since() - since);
    Proposed proposed;
    proposed.fitted = fitted;
    const StageFinished end{AttemptId{999}, {}, true, proposed};
    std::vector<Change> changes;
    if (taken) changes.push_back(AddCandidates{JobId{1}, TaskIndex{1}, CandidateId{1}, 0});
    return ledger_.Absorb(dispatcher_, end, changes, now_, now_);
  };
  EXPECT_THAT(finish("late", 0, false), ::testing::IsEmpty());
  const Batch batch = finish("fitted", 0);
  ASSERT_EQ(batch.size(), 2u);  // and the search state
  const v1::TransferModel& put = std::get<PutTransferModel>(batch[0]).model;
  EXPECT_EQ(put.model(), "fitted");
  EXPECT_EQ(put.made_unix_ns(), absl::ToUnixNanos(now_));
  EXPECT_EQ(put.since(), 0);
  EXPECT_EQ(finish("of less", 3).size(), 1u) << "it was ordered before the other";

  const auto told = [&](int task) { return Order(task).start.propose().search().transfer_model(); };
  EXPECT_EQ(told(1), "fitted");
  EXPECT_THAT(Others(1), ElementsAre("newest of a, 1")) << "for a worker that cannot use the model";
  EXPECT_TRUE(Order(1).transfer_model.has_value()) << "which hands on another one";
  EXPECT_EQ(told(0), "") << "it was taught by itself";
  EXPECT_FALSE(Order(0).transfer_model.has_value())
      << "what it fits without itself is for it alone";

  // After a restart.
  ASSERT_TRUE(store_->Apply({batch}).ok());
  JobLedger restarted;
  restarted.LoadTransferModels(*store_->AllTransferModels());
  EXPECT_EQ(restarted.transfer_models().Find(id)->model(), "fitted");

  // Fifteen trials change nothing, the sixteenth one does.
  finish("older", -1);
  EXPECT_EQ(told(1), "older") << "and newer than the other";
  for (int trial = 0; trial < 15; ++trial) {
    EXPECT_EQ(told(1), "older") << trial;
    Round();
    Learn("still newer of a");
  }
  EXPECT_EQ(ledger_.transfer_models().Find(id)->since(), 14);
  Round();
  Learn("the newest of a");
  Round();
  Learn("the very newest of a");
  EXPECT_EQ(told(1), "");
  EXPECT_THAT(Others(1), ElementsAre("the very newest of a, 1"));
  order = Order(1);
  ASSERT_TRUE(order.transfer_model.has_value());
  finish("new", 0);
  EXPECT_EQ(told(1), "new");
}

// With more tasks than the message holds, a search fits a model to all of them. From then on only another such
// model replaces it.
TEST_F(TransferSamplesTest, IsLearnedFromAllOfManyTasks) {
  TuneOne();
  Batch batch = {PutJob{ledger_.data(JobId{1}).row}};
  const auto add = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      TaskRow row;
      row.job = 1;
      row.index = 100 + i;
      row.info.set_key(absl::StrCat("many ", i));
      batch.push_back(PutTask{row});
      batch.push_back(PutLearned{
          1, row.index, {}, {row.info.key(), kTarget, "key"}, Of(row.info.key(), 100), i});
    }
    ASSERT_TRUE(store_->Apply({std::exchange(batch, {})}).ok());
  };
  add(0, 31);
  EXPECT_FALSE(Order(1).learns_from_all.has_value()) << "the message holds them all";
  add(31, 40);
  const StageOrder first = Order(1);
  ASSERT_TRUE(first.learns_from_all.has_value());
  EXPECT_EQ(first.learns_from_all->key, "b");
  EXPECT_EQ(first.start.propose().search().others_size(), 32) << "for a worker that cannot";
  ASSERT_TRUE(first.transfer_model.has_value());
  // While one stage does that, others fit models as always.
  const auto order = [&](bool measured, bool under_way) {
    StageOrder made = Unfinished(1);
    OrderInputs inputs = FetchInputs(store_.get(), made.reads);
    inputs.measured = measured;
    inputs.fit_under_way = under_way;
    CompleteOrder(inputs, &made);
    return made;
  };
  EXPECT_FALSE(order(false, true).learns_from_all.has_value());
  EXPECT_FALSE(order(true, false).learns_from_all.has_value()) << "it would learn from itself";

  const auto finish = [&](const std::string& model, int64_t measured, int64_t since) {
    FittedModel fitted{first.transfer_model->id, first.transfer_model->model};
    fitted.model.set_model(model);
    fitted.model.set_since(first.transfer_model->model.since() - since);
    if (measured > 0) fitted.model.clear_teachers();
    fitted.model.set_measured(measured);
    Proposed proposed;
    proposed.fitted = fitted;
    const StageFinished end{AttemptId{999}, {}, true, proposed};
    (void)ledger_.Absorb(dispatcher_, end,
                         {AddCandidates{JobId{1}, TaskIndex{1}, CandidateId{1}, 0}}, now_, now_);
  };
  const auto kept = [&] {
    return ledger_.transfer_models().Find(first.transfer_model->id)->model();
  };
  finish("of 32", 0, 0);
  finish("of all", 4000, 10);
  EXPECT_EQ(kept(), "of all") << "it took longer, and knows more";
  finish("of 32 again", 0, 0);
  EXPECT_EQ(kept(), "of all");
  EXPECT_EQ(order(false, false).start.propose().search().transfer_model(), "of all");
  EXPECT_FALSE(order(false, false).learns_from_all.has_value());
  const StageOrder itself = order(true, false);
  EXPECT_EQ(itself.start.propose().search().transfer_model(), "") << "it was among all";
  EXPECT_FALSE(itself.transfer_model.has_value()) << "what it fits is for it alone";
  finish("of all, ordered earlier", 4000, 11);
  EXPECT_EQ(kept(), "of all");
  finish("of all again", 4000, 10);
  EXPECT_EQ(kept(), "of all again");
}

// A job whose tasks are all on record, so that it only plans. Of "b" nobody knows the default schedule's time.
class BuiltCodeTest : public TransferSamplesTest {};

TEST_F(BuiltCodeTest, IsGoneOnceItIsDropped) {
  TuneOne();
  Learn("of a");
  Finish(v1::STAGE_PROPOSE, Proposed{1, false, std::vector<v1::Candidate>(1), state_});
  const StartStage build = First(v1::STAGE_BUILD);
  const CandidateId candidate = build.candidates.at(0);
  Feed(CandidateBuilt{build.attempt, candidate, v1::OUTCOME_OK, "",
                      std::make_shared<v1::Artifact>()});
  EXPECT_NE(ledger_.data(JobId{1}).ArtifactOf(candidate), nullptr);
  ledger_.Absorb(dispatcher_, Tick{}, {DropArtifacts{JobId{1}, {candidate}}}, now_, now_);
  EXPECT_EQ(ledger_.data(JobId{1}).ArtifactOf(candidate), nullptr);
}

class ExperienceTest : public DispatcherTest {
 protected:
  void Plan(bool no_transfer = false) {
    Step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("p2", {2})}, ""});
    JobSubmitted submitted{JobId{1}, {}};
    v1::JobSpec& spec = *submitted.description.mutable_spec();
    spec.set_target(kTarget);
    spec.set_trials_per_task(1);
    spec.set_plan_search("joint");
    spec.set_no_comparison(true);
    spec.set_no_transfer(no_transfer);
    submitted.params = *JobLedger::ParamsFrom(spec, now_, now_);
    Feed(submitted);
    Imported imported = ImportOf({{"a", 1, {3, 3, 900, 1000}}, {"b", 1, {3, 3, 900, 0}}}, "key");
    imported.model.add_inputs("x: f32[1]");
    imported.model.set_plan("estimated");
    Feed(StageFinished{Live(v1::STAGE_IMPORT).attempt, {}, true, std::move(imported)});
  }
  Batch Feed(const Event& event) {
    return ledger_.Absorb(dispatcher_, event, Step(event).changes, now_, now_);
  }
  static v1::KernelFactor Factor(const std::string& key, double log_factor) {
    v1::KernelFactor factor;
    factor.set_workload_key(key);
    factor.set_log_factor(log_factor);
    return factor;
  }
  static Planned PlanWith(const std::vector<v1::KernelFactor>& found, int experience_kernels = 0) {
    Planned planned;
    planned.plan.set_plan("chosen");
    v1::TaskInfo& task = *planned.plan.add_tasks();
    task.set_key("a");
    task.set_weight(1);
    *planned.plan.mutable_experience() = {found.begin(), found.end()};
    planned.plan.mutable_report()->set_experience_kernels(experience_kernels);
    planned.known = {{3, 3, 900, 1000}};
    return planned;
  }
  StageOrder Order(const absl::StatusOr<Experience>& found) {
    StageOrder order = MakeOrder(dispatcher_, ledger_, Live(v1::STAGE_PLAN), v1::SCHEDULE_BEST);
    OrderInputs inputs;
    inputs.experience = found;
    CompleteOrder(inputs, &order);
    return order;
  }
  const v1::Job& Row() const { return ledger_.data(JobId{1}).row.job; }

  JobLedger ledger_;
};

TEST_F(ExperienceTest, IsToldToStagesThatJudgeDefaultSchedules) {
  Plan();
  const StageOrder asked = MakeOrder(dispatcher_, ledger_, Live(v1::STAGE_PLAN), v1::SCHEDULE_BEST);
  ASSERT_TRUE(asked.reads.experience.has_value());
  EXPECT_EQ(asked.reads.experience->target, kTarget);
  EXPECT_EQ(asked.reads.experience->device_key, "key");
  const Experience found = {{Factor("c", 1)}, {Factor("d", 2), Factor("e", 3)}};
  const v1::PlanSpec told = Order(found).start.plan();
  ASSERT_EQ(told.experience_size(), 1);
  EXPECT_EQ(told.experience(0).workload_key(), "c");
  ASSERT_EQ(told.other_experience_size(), 2);
  EXPECT_EQ(told.other_experience(1).log_factor(), 3);
  const StageOrder unread = Order(absl::InternalError("no disk"));
  EXPECT_EQ(unread.start.plan().experience_size(), 0);
  EXPECT_THAT(unread.warnings, ElementsAre(::testing::HasSubstr("no disk")));
  Feed(StageFinished{Live(v1::STAGE_PLAN).attempt, {}, true, PlanWith({})});
  const StageOrder last = MakeOrder(dispatcher_, ledger_, Live(v1::STAGE_PLAN), v1::SCHEDULE_BEST);
  EXPECT_TRUE(last.start.plan().last());
  EXPECT_FALSE(last.reads.experience.has_value()) << "it judges tuned kernels";
}

TEST_F(ExperienceTest, IsNotToldToAJobThatLearnsFromNoOther) {
  Plan(true);
  EXPECT_FALSE(MakeOrder(dispatcher_, ledger_, Live(v1::STAGE_PLAN), v1::SCHEDULE_BEST)
                   .reads.experience.has_value());
}

TEST_F(ExperienceTest, FitsAMessage) {
  Plan();
  v1::KernelFactor longest = Factor("0123456789abcdef", 1);
  longest.set_window(std::string(450, 'x'));
  const std::vector<v1::KernelFactor> many(kMaxExperience, longest);
  const v1::PlanSpec told = Order(Experience{many, many}).start.plan();
  EXPECT_GT(told.experience_size(), 2000);
  EXPECT_EQ(told.experience_size(), told.other_experience_size());
  EXPECT_LT(told.ByteSizeLong(), size_t{2} << 20);
}

TEST_F(ExperienceTest, IsKeptOfKernelsWhoseDefaultScheduleIsKnown) {
  Plan();
  v1::KernelFactor longest = Factor("a", 1);
  longest.set_window(std::string(10'000, 'x'));
  const Batch batch = Feed(StageFinished{
      Live(v1::STAGE_PLAN).attempt,
      {},
      true,
      PlanWith({longest, Factor("a", NAN), Factor("a", 0.5), Factor("b", 1), Factor("z", 1)})});
  std::vector<PutExperience> puts;
  for (const StoreChange& change : batch) {
    if (const auto* put = std::get_if<PutExperience>(&change)) puts.push_back(*put);
  }
  ASSERT_EQ(puts.size(), 1u);
  EXPECT_EQ(puts[0].target, kTarget);
  EXPECT_EQ(puts[0].device_key, "key");
  EXPECT_EQ(puts[0].made_unix_ns, absl::ToUnixNanos(now_));
  ASSERT_EQ(puts[0].factors.size(), 1u);
  EXPECT_EQ(puts[0].factors[0].workload_key(), "a");
  EXPECT_EQ(puts[0].factors[0].log_factor(), 0.5);
}

// The first plan stage alone is told nothing of the job itself.
TEST_F(ExperienceTest, IsReportedAsTheFirstPlanStageFoundIt) {
  Plan();
  Feed(StageFinished{Live(v1::STAGE_PLAN).attempt, {}, true, PlanWith({}, 12)});
  EXPECT_EQ(Row().plan_report().experience_kernels(), 12);
  Feed(StageFinished{Live(v1::STAGE_PLAN).attempt, {}, true, PlanWith({}, 99)});
  EXPECT_EQ(Row().plan_report().experience_kernels(), 12);
}

// Two plans may have the same kernels, as often. The row has the text of the chosen one, also after a restart, until the job goes back.
TEST_F(ExperienceTest, APlanWithTheKernelsOfTheEstimatedOneIsKept) {
  Plan();
  Planned same = PlanWith({});
  v1::TaskInfo& other = *same.plan.add_tasks();
  other.set_key("b");
  other.set_weight(1);
  Feed(StageFinished{Live(v1::STAGE_PLAN).attempt, {}, true, same});
  ASSERT_TRUE(HasEstimatedTasks(*dispatcher_.FindJob(JobId{1})));
  EXPECT_EQ(Row().plan(), "chosen");
  EXPECT_EQ(Row().estimated_plan(), "estimated");
  Job loaded = JobLedger().Load({ledger_.data(JobId{1}).row, {}, {}, {}}, now_, now_);
  EXPECT_FALSE(loaded.has_estimated_plan);
  same.plan.set_plan("estimated");
  Feed(StageFinished{Live(v1::STAGE_PLAN).attempt, {}, true, same});
  EXPECT_EQ(Row().plan(), "estimated");
  EXPECT_EQ(Row().estimated_plan(), "");
  loaded = JobLedger().Load({ledger_.data(JobId{1}).row, {}, {}, {}}, now_, now_);
  EXPECT_TRUE(loaded.has_estimated_plan);
}

// A step may change several jobs. A result belongs to the one that waits for it.
TEST_F(ExperienceTest, AJobTakesNoResultOfAnother) {
  Plan();
  Feed(StageFinished{Live(v1::STAGE_PLAN).attempt, {}, true, PlanWith({})});
  Feed(StageFinished{Live(v1::STAGE_PLAN).attempt, {}, true, PlanWith({})});
  ASSERT_EQ(Row().state(), v1::JOB_COMPILING);
  Planned other = PlanWith({Factor("a", 7)});
  other.plan.set_plan("of another job");
  Compared compared;
  compared.result.set_ns(7);
  for (const StageFinished& end : {StageFinished{AttemptId{99}, {}, true, other},
                                   StageFinished{AttemptId{99}, {}, true, compared}})
    ledger_.Absorb(dispatcher_, end, {JobChanged{JobId{1}}}, now_, now_);
  EXPECT_EQ(Row().plan(), "chosen");
  EXPECT_FALSE(Row().has_comparison());
}

// A survey pays only where enough is tuned after it.
TEST(JobParamsTest, SmallJobsArePlannedOnlyIfTheyAskForIt) {
  const auto plans = [](int trials, int64_t minutes, const std::string& search = "",
                        const std::string& target = "llvm -mcpu=x") {
    v1::JobSpec spec;
    spec.set_target(target);
    spec.set_trials_per_task(trials);
    spec.set_time_limit_ms(minutes * 60'000);
    spec.set_plan_search(search);
    return JobLedger::ParamsFrom(spec, absl::Now(), absl::Now())->plan;
  };
  EXPECT_TRUE(plans(32, 0));
  EXPECT_TRUE(plans(32, 10));
  EXPECT_FALSE(plans(31, 0));
  EXPECT_TRUE(plans(2000, 2));
  EXPECT_TRUE(plans(2000, 2, "joint"));
  EXPECT_FALSE(plans(2000, 0, "off"));
  EXPECT_TRUE(plans(2000, 0, "", "cuda -arch=sm_90"));
}

// What base/vocabulary/limits.h promises to clients is what the intake of jobs takes, and no more.
TEST(JobParamsTest, TheIntakeKeepsTheLimitsThatClientsKnow) {
  using Set = std::function<void(v1::JobSpec*, int64_t)>;
  const auto taken = [](const Set& set, int64_t value) {
    v1::JobSpec spec;
    spec.set_target("llvm -mcpu=x");
    spec.set_trials_per_task(1);
    set(&spec, value);
    return JobLedger::ParamsFrom(spec, absl::Now(), absl::Now()).ok();
  };
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  const struct {
    const char* what;
    Set set;
    int64_t least, most;
  } fields[] = {
      {"trials", [&](auto* spec, int64_t v) { spec->set_trials_per_task(number(v)); }, 1,
       kMaxTrialsPerTask},
      {"plateau", [&](auto* spec, int64_t v) { spec->set_plateau_trials(number(v)); }, 0,
       kMaxTrialsPerTask},
      {"batch", [&](auto* spec, int64_t v) { spec->set_batch(number(v)); }, 0, kMaxBatch},
      {"depth", [&](auto* spec, int64_t v) { spec->set_pipeline_depth(number(v)); }, 0,
       kMaxPipelineDepth},
      {"priority", [&](auto* spec, int64_t v) { spec->set_priority(number(v)); }, kMinPriority,
       kMaxPriority},
      {"devices", [&](auto* spec, int64_t v) { spec->set_max_devices(number(v)); }, 0,
       kMaxJobDevices},
      {"repeats", [&](auto* spec, int64_t v) { spec->set_repeats(number(v)); }, 0, kMaxRepeats},
      {"repeat time", [&](auto* spec, int64_t v) { spec->set_min_repeat_us(v); }, 0,
       kMaxMinRepeatUs},
  };
  for (const auto& field : fields) {
    EXPECT_TRUE(taken(field.set, field.least)) << field.what;
    EXPECT_TRUE(taken(field.set, field.most)) << field.what;
    EXPECT_FALSE(taken(field.set, field.least - 1)) << field.what;
    EXPECT_FALSE(taken(field.set, field.most + 1)) << field.what;
  }
  v1::JobSpec spec;
  spec.set_target("llvm -mcpu=x");
  spec.set_trials_per_task(1);
  EXPECT_EQ(JobLedger::ParamsFrom(spec, absl::Now(), absl::Now())->batch, kDefaultBatch);
  EXPECT_EQ(JobParams().batch, kDefaultBatch);
}

}  // namespace
}  // namespace heddle::scheduler
