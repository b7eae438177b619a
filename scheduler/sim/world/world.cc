#include "scheduler/sim/world/world.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/core/machines/trial_budget.h"
#include "scheduler/sim/chance.h"
#include "scheduler/sim/decision_text.h"
#include "scheduler/sim/world/agenda.h"
#include "scheduler/sim/world/chaos.h"
#include "scheduler/sim/world/machines.h"
#include "scheduler/sim/world/promises.h"
#include "scheduler/sim/world/scheduler_process.h"
#include "scheduler/sim/world/searches.h"
#include "scheduler/sim/world/stage_work.h"
#include "scheduler/sim/world/wait_meter.h"
#include "scheduler/sim/world/workers.h"
#include "scheduler/store/memory_record_store.h"

namespace heddle::sim {
namespace {

// Without coordination: attempts of different dispatchers have different ids.
constexpr int64_t kAttemptsPerProcess = 1'000'000'000;
// A world that reaches one of these is stuck.
constexpr absl::Duration kLimit = absl::Hours(24 * 365);
constexpr absl::Duration kLimitChecked = absl::Hours(48);
constexpr int64_t kMaxSteps = 200'000'000;
constexpr int64_t kMaxStepsChecked = 400'000;

// Whether the job goes on with a plan after a contest in which other tasks have used more than half of its pool.
bool IsRelieved(const Job& job) {
  int others = 0;
  for (const Task& task : job.tasks) others += task.weight > 0 ? 0 : std::max(0, task.budget - 1);
  return std::holds_alternative<Tuning>(job.phase) && !Contending(job) &&
         2 * others > PoolTotal(job) + 1;
}

// Wires the parts, submits the jobs and gathers the result.
class World {
 public:
  World(const Scenario& scenario, const std::string& policy, const WorldOptions& options);
  WorldResult Run();

 private:
  // ---- the scheduler's processes; only kUncoordinated has more than one ----
  void Boot();
  void Restart();
  void FailOver(absl::Duration gap, absl::Duration stopped);
  void Tell(int process, Event event);
  std::optional<JobId> CountContest(const Dispatcher& dispatcher, const Event& event);
  void Note(int process, const Event& event, const Change& change);
  void Perform(int process, const Order& order);
  void Start(int process, const StartStage& start);
  void FetchWork(int process, const StageOrder& made, StageWork* work);
  void PlanTick(int process);
  void AnswerFind(int process, const FindRecords& find);
  int ProcessOf(JobId job) const { return processes_.size() > 1 ? IndexOf(job) : 0; }
  SchedulerProcess& At(int process) { return processes_[static_cast<size_t>(process)]; }

  // ---- users and tracker ----
  void SubmitJob(int index);
  void ReportSlots();

  // ---- what is observed ----
  void Violation(const std::string& what);
  void CountWaiting();
  void NoteEnd(const Job& job);
  void Collect();

  absl::Time now() const { return agenda_.now(); }
  static int IndexOf(JobId id) { return static_cast<int>(id.value) - 1; }
  JobOutcome& OutcomeOf(JobId id) { return result_.jobs[static_cast<size_t>(IndexOf(id))]; }
  Workers::Hooks WorkerHooks();
  Chaos::Hooks ChaosHooks();

  const Scenario& scenario_;
  const WorldOptions options_;
  WorldResult result_;
  Agenda agenda_;
  Dice dice_;
  Plant plant_;
  Machines machines_;
  const std::unique_ptr<RecordStore> store_;  // null: the world is not durable
  Searches searches_;
  ProposedCounts proposed_;  // used where it is not
  Workers workers_;
  Promises promises_;
  Chaos chaos_;
  std::vector<SchedulerProcess> processes_;
  bool leaderless_ = false;                // between a fail-over's two ends
  std::vector<Event> waiting_for_leader_;  // what users and the tracker tell meanwhile
  WaitMeter waiting_;
  std::set<JobId> ended_;
};

World::World(const Scenario& scenario, const std::string& policy, const WorldOptions& options)
    : scenario_(scenario),
      options_(options),
      dice_(scenario.seed),
      plant_(options.planted),
      machines_(scenario_),
      store_(options.durable ? MakeMemoryRecordStore() : nullptr),
      searches_(scenario_, &dice_, options.durable),
      workers_(scenario_, {policy == kUncoordinated, options.durable, options.spans}, &agenda_,
               &dice_, machines_, &searches_, &promises_, &result_, WorkerHooks()),
      promises_(scenario_, policy, agenda_, machines_, workers_.running(),
                [this](const std::string& what) { Violation(what); }),
      chaos_(scenario_, &agenda_, &dice_, &machines_, &workers_, ChaosHooks()) {
  result_.busy.resize(scenario_.slots.size());
  result_.held.resize(scenario_.slots.size());
  result_.jobs.resize(scenario_.jobs.size());
  const bool alone = policy == kUncoordinated;
  const size_t processes = alone ? scenario_.jobs.size() : 1;
  for (size_t i = 0; i < processes; ++i) {
    processes_.emplace_back(alone ? "round_robin" : policy,
                            AttemptId{static_cast<int64_t>(i) * kAttemptsPerProcess + 1}, agenda_,
                            store_.get(), &dice_, &plant_,
                            [this](const std::string& what) { Violation(what); });
  }
  Boot();
  for (size_t i = 0; i < scenario_.jobs.size(); ++i) {
    agenda_.At(absl::Seconds(scenario_.jobs[i].arrival),
               [this, i] { SubmitJob(static_cast<int>(i)); });
  }
  chaos_.Begin();
}

Workers::Hooks World::WorkerHooks() {
  Workers::Hooks hooks;
  hooks.tell = [this](int process, Event event) { Tell(process, std::move(event)); };
  hooks.tell_late = [this](int process, const StartStage& start, Event event) {
    plant_.MutateLate(At(process).dispatcher(), workers_.running(), start, &event);
    ++result_.stale_answers;
    Tell(process, std::move(event));
  };
  hooks.lied = [this](const SlotId& slot) { chaos_.Lied(slot); };
  return hooks;
}

Chaos::Hooks World::ChaosHooks() {
  Chaos::Hooks hooks;
  hooks.tell = [this](JobId job, Event event) { Tell(ProcessOf(job), std::move(event)); };
  hooks.tell_all = [this](const Event& event) {
    for (size_t i = 0; i < processes_.size(); ++i) Tell(static_cast<int>(i), event);
  };
  hooks.was_submitted = [this](JobId job) {
    return At(ProcessOf(job)).dispatcher().FindJob(job) != nullptr;
  };
  hooks.report_slots = [this] { ReportSlots(); };
  if (store_ != nullptr) hooks.restart = [this] { Restart(); };
  if (store_ != nullptr) {
    hooks.fail_over = [this](absl::Duration gap, absl::Duration stopped) {
      FailOver(gap, stopped);
    };
  }
  return hooks;
}

WorldResult World::Run() {
  const absl::Duration limit = options_.checks ? kLimitChecked : kLimit;
  const int64_t max_steps = options_.max_steps > 0 ? options_.max_steps
                            : options_.checks      ? kMaxStepsChecked
                                                   : kMaxSteps;
  while (result_.violation.empty() && !agenda_.empty()) {
    const Agenda::Action action = agenda_.Next();
    if (now() - agenda_.start() > limit || result_.steps > max_steps) break;
    action();
  }
  if (options_.checks && result_.violation.empty()) {
    for (SchedulerProcess& process : processes_) process.Flush();
    promises_.CheckEnd(processes_.front().dispatcher(), store_.get());
  }
  Collect();
  return std::move(result_);
}

// ---- the scheduler's processes ----

void World::Boot() {
  promises_.BeginLife();
  for (SchedulerProcess& process : processes_)
    process.Boot([this](const StoredJob& job) { promises_.Loaded(job); });
  ReportSlots();
}

void World::Restart() {
  if (leaderless_) return;
  ++result_.restarts;
  workers_.EndLife();
  agenda_.BeginLife();
  for (SchedulerProcess& process : processes_) process.Crash();
  Boot();
}

// The scheduler that leads is stopped, and another takes over after a time. Later the first one goes on: it
// may try to write what it had not written. Users and tracker come again to the new one.
void World::FailOver(absl::Duration gap, absl::Duration stopped) {
  if (leaderless_) return;
  ++result_.fail_overs;
  workers_.EndLife();
  agenda_.BeginLife();
  leaderless_ = true;
  SchedulerProcess& process = processes_.front();
  agenda_.At(stopped, [this, &process, late = process.Stop()] {
    result_.late_writes += process.WriteLate(late);
  });
  agenda_.At(gap, [this] {
    leaderless_ = false;
    Boot();
    for (Event& event : std::exchange(waiting_for_leader_, {})) Tell(0, std::move(event));
  });
}

// One event, as SchedulerLoop::Handle treats it: decide, take it into the ledger, perform.
void World::Tell(int index, Event event) {
  if (!result_.violation.empty()) return;
  if (leaderless_) return waiting_for_leader_.push_back(std::move(event));
  ++result_.steps;
  SchedulerProcess& process = At(index);
  plant_.Mutate(&event);
  process.AddKnownRecords(&event);
  if (options_.checks) promises_.BeforeStep(process.dispatcher());
  const std::optional<JobId> contender = CountContest(process.dispatcher(), event);
  Decisions decisions = process.Step(event);
  if (contender) result_.relieved += IsRelieved(*process.dispatcher().FindJob(*contender));
  if (options_.checks) promises_.AfterStep(process.dispatcher(), decisions.changes, event);
  result_.fingerprint = HashText(ToText(decisions), result_.fingerprint);
  plant_.Mutate(
      workers_.running(),
      [this](AttemptId id) {
        agenda_.AtInThisLife(absl::Milliseconds(200), [this, id] {
          Tell(0, StageFinished{id, {v1::FAULT_INFRASTRUCTURE, "taken for ended"}, true, {}, true});
        });
      },
      &decisions);
  process.Keep(event, decisions.changes);
  for (const Change& change : decisions.changes) Note(index, event, change);
  for (const Order& order : decisions.orders) Perform(index, order);
  if (options_.checks) promises_.CheckStep(process.dispatcher());
  if (options_.waiting) CountWaiting();
  PlanTick(index);
  for (const Change& change : decisions.changes) {
    if (const auto* find = std::get_if<FindRecords>(&change)) AnswerFind(index, *find);
  }
}

// The job of which the event may end a contest.
std::optional<JobId> World::CountContest(const Dispatcher& dispatcher, const Event& event) {
  const auto* end = std::get_if<StageFinished>(&event);
  const auto stage =
      end == nullptr ? dispatcher.live().end() : dispatcher.live().find(end->attempt);
  if (stage == dispatcher.live().end()) return std::nullopt;
  const Job& job = *dispatcher.FindJob(stage->second.job);
  if (!Contending(job) || job.final()) return std::nullopt;
  const bool planned = std::holds_alternative<Planned>(end->result);
  const bool compared = std::holds_alternative<Compared>(end->result);
  result_.contests += planned;
  result_.judged += compared;
  if (!planned && !compared) return std::nullopt;
  return job.id;
}

void World::Note(int index, const Event& event, const Change& change) {
  if (const auto* add = std::get_if<AddCandidates>(&change)) {
    if (store_ == nullptr) proposed_.Added(*add);
  } else if (std::holds_alternative<SetAttempts>(change)) {
    if (!scenario_.faults.any()) Violation("an attempt is counted in a world without faults");
  } else if (const auto* done = std::get_if<FinishCandidate>(&change)) {
    ++result_.trials;
    ++OutcomeOf(done->job).trials;
    result_.lost += done->outcome == v1::OUTCOME_LOST;
    if (store_ == nullptr) proposed_.Finished(*done);
    if (options_.checks) promises_.CheckRecord(*done, event);
  } else if (const auto* changed = std::get_if<JobChanged>(&change)) {
    const Job& job = *At(index).dispatcher().FindJob(changed->job);
    if (job.final()) NoteEnd(job);
  }
}

void World::Perform(int index, const Order& order) {
  if (const auto* start = std::get_if<StartStage>(&order)) {
    Start(index, *start);
  } else if (const auto* feed = std::get_if<FeedProfile>(&order)) {
    CandidateWork candidate;
    if (store_ == nullptr) {
      candidate = proposed_.WorkOf(feed->job, feed->candidate);
    } else {
      v1::StageInput input = At(index).ProfileInput(*feed);
      plant_.MutateInput(&input);
      if (options_.checks) promises_.CheckFed(*feed, input);
      candidate = WorkOf(input);
    }
    if (!workers_.Feed(feed->attempt, std::move(candidate)))
      Violation("fed a profile stage whose input is closed");
  } else if (const auto* close = std::get_if<CloseProfile>(&order)) {
    workers_.CloseInput(close->attempt);
  } else if (const auto* cancel = std::get_if<CancelStage>(&order)) {
    workers_.Cancel(cancel->attempt);
  }
}

// As in production the order is made in the step that starts the stage, and the store is read when
// the stage's runner comes to it: other batches may have become durable by then.
void World::Start(int index, const StartStage& start) {
  const Dispatcher& dispatcher = At(index).dispatcher();
  if (options_.checks) promises_.CheckStart(dispatcher, start);
  if (!result_.violation.empty()) return;
  if (store_ == nullptr) return workers_.Begin(index, start, proposed_.WorkOf(start), nullptr);
  StartStage planted = start;
  plant_.MutateStart(&planted);
  StageOrder order = At(index).BeginOrder(planted);
  plant_.MutateOrder(start, &order);
  if (options_.checks) promises_.CheckOrder(dispatcher, start, order);
  StageWork work = WorkOf(order);
  order.inputs.clear();
  workers_.Begin(index, start, std::move(work),
                 [this, index, order = std::move(order)](StageWork* fetched) {
                   FetchWork(index, order, fetched);
                 });
}

void World::FetchWork(int index, const StageOrder& made, StageWork* work) {
  StageOrder completed = made;
  At(index).CompleteOrder(&completed);
  plant_.MutateCompleted(made.reads, &completed);
  if (options_.checks) promises_.CheckCompleted(made, completed, store_.get());
  AddFetched(completed, work);
  ++result_.orders;
  result_.warm_orders += made.reads.warm.has_value();
  result_.transfer_orders += work->transferred;
}

void World::PlanTick(int index) {
  const absl::Time wake = At(index).NextWake();
  if (wake == absl::InfiniteFuture()) return;
  agenda_.AtInThisLife(wake - now(), [this, index] { Tell(index, Tick{}); });
}

void World::AnswerFind(int index, const FindRecords& find) {
  if (!scenario_.faults.any()) return Tell(index, At(index).Find(find));
  agenda_.AtInThisLife(absl::Seconds(dice_.Between(0, 3)),
                       [this, index, find] { Tell(index, At(index).Find(find)); });
}

// ---- users and tracker ----

void World::ReportSlots() {
  const SlotsChanged event = machines_.Report();
  for (size_t i = 0; i < processes_.size(); ++i) Tell(static_cast<int>(i), event);
}

void World::SubmitJob(int index) {
  if (leaderless_) return agenda_.At(absl::Seconds(1), [this, index] { SubmitJob(index); });
  const SimJob& job = scenario_.jobs[static_cast<size_t>(index)];
  const JobId id{index + 1};
  v1::JobSpec spec;
  spec.set_name(job.name);
  spec.set_target(job.threads == 0 ? job.target
                                   : absl::StrCat(job.target, " -threads=", job.threads));
  spec.set_device_key(job.device_key);
  spec.set_trials_per_task(job.trials);
  spec.set_batch(job.batch);
  spec.set_pipeline_depth(job.pipeline_depth);
  spec.set_force(job.force);
  spec.set_no_transfer(!job.transfer);
  spec.set_user(job.user);
  spec.set_priority(job.priority);
  if (job.deadline > 0)
    spec.set_deadline_unix_ns(absl::ToUnixNanos(now() + absl::Seconds(job.deadline)));
  spec.set_time_limit_ms(static_cast<int64_t>(job.time_limit * 1e3));
  spec.set_plateau_trials(job.plateau);
  spec.set_allocation(job.gradient ? "gradient" : "uniform");
  spec.set_max_devices(job.max_devices);
  spec.set_no_comparison(job.comparisons == 0);
  spec.set_plan_search(job.plan ? "joint" : "off");
  absl::StatusOr<JobParams> params = JobLedger::ParamsFrom(spec, now(), now());
  if (!params.ok())
    return Violation(absl::StrCat("job ", job.name, ": ", params.status().message()));
  OutcomeOf(id).arrival = agenda_.Since(now());
  JobSubmitted submitted{id, *params};
  submitted.description.set_id(JobName(id.value));
  submitted.description.set_state(v1::JOB_IMPORTING);
  *submitted.description.mutable_spec() = std::move(spec);
  Tell(ProcessOf(id), std::move(submitted));
  At(ProcessOf(id)).Flush();  // the user gets an answer once the job is durable
  promises_.Acknowledged(id);
}

// ---- what is observed ----

void World::Violation(const std::string& what) {
  if (!result_.violation.empty()) return;
  result_.violation =
      absl::StrCat("seed ", scenario_.seed, " step ", result_.steps,
                   " t=", absl::FormatDuration(now() - agenda_.start()), ": ", what);
}

void World::CountWaiting() {
  bool cpu_slot_free = false;
  for (const SimSlot& slot : scenario_.slots)
    cpu_slot_free |=
        !slot.info.device && promises_.Free(processes_.front().dispatcher(), slot.info);
  waiting_.Pass(now());
  for (const SchedulerProcess& process : processes_)
    waiting_.See(process.dispatcher(), cpu_slot_free, now());
}

// A job may end again if a crash took its first end.
void World::NoteEnd(const Job& job) {
  workers_.JobOver(job.id);
  if (!ended_.insert(job.id).second) return;
  JobOutcome& outcome = OutcomeOf(job.id);
  outcome.end = agenda_.Since(now());
  outcome.done = std::holds_alternative<Done>(job.phase);
  result_.done_jobs += outcome.done;
  result_.seconds = std::max(result_.seconds, outcome.end);
}

void World::Collect() {
  result_.waiting = waiting_.total();
  for (size_t i = 0; i < result_.jobs.size(); ++i) {
    if (result_.jobs[i].end < 0 && result_.violation.empty() && !options_.checks)
      Violation(absl::StrCat(
          "job ", scenario_.jobs[i].name,
          " never ended: no slot suits it, or the limits of the simulation were reached"));
  }
  if (store_ == nullptr) return;
  for (SchedulerProcess& process : processes_) process.Flush();
  v1::RecordQuery query;
  query.set_limit(kMaxQueryLimit);
  const auto records = store_->Query(query);
  for (const v1::Record& record : *records) {
    result_.records.push_back(
        absl::StrCat(record.job(), " ", record.workload_key(), " ", record.trace(), " ",
                     static_cast<int>(record.measurement().outcome()), " ", record.median_ns()));
  }
  std::sort(result_.records.begin(), result_.records.end());
}

}  // namespace

absl::StatusOr<WorldResult> RunWorld(const Scenario& scenario, const std::string& policy,
                                     const WorldOptions& options) {
  if (policy != kUncoordinated) {
    absl::StatusOr<std::unique_ptr<Policy>> made = MakePolicy(policy);
    if (!made.ok())
      return absl::InvalidArgumentError(
          absl::StrCat(made.status().message(), ", ", kUncoordinated));
  }
  if (options.checks && !options.durable)
    return absl::InvalidArgumentError("a world is checked only if it is durable");
  WorldResult result = World(scenario, policy, options).Run();
  if (!options.checks && !result.violation.empty())
    return absl::FailedPreconditionError(result.violation);
  return result;
}

}  // namespace heddle::sim
