#include "scheduler/sim/world/world.h"

#include <algorithm>
#include <chrono>
#include <deque>
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
#include "scheduler/sim/world/pools.h"
#include "scheduler/sim/world/promises.h"
#include "scheduler/sim/world/scheduler_process.h"
#include "scheduler/sim/world/searches.h"
#include "scheduler/sim/world/stage_work.h"
#include "scheduler/sim/world/supply.h"
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

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

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
  // ---- the scheduler's processes: one leads each pool; kUncoordinated has one for each job ----
  void Boot(int process);
  void Restart();
  void FailOver(int process, absl::Duration gap, absl::Duration stopped);
  void FailScheduler();
  void Tell(int process, Event event);
  void Handle(int process, Event event);
  Decisions Decide(int process, const Event& event);
  std::optional<JobId> CountContest(const Dispatcher& dispatcher, const Event& event);
  void Note(int process, const Event& event, const Change& change);
  void Perform(int process, const Order& order);
  void Start(int process, const StartStage& start);
  void FetchWork(int process, const StageOrder& made, StageWork* work);
  void PlanTick(int process);
  void AnswerFind(int process, const FindRecords& find);
  int ProcessOf(JobId job) const {
    return alone_ ? IndexOf(job) : std::max(0, pools_.PoolOfJob(IndexOf(job)));
  }
  // The scheduler that runs the process.
  int SchedulerOf(int process) const { return alone_ ? process : pools_.LeaderOf(process); }
  SchedulerProcess& At(int process) { return processes_[static_cast<size_t>(process)]; }

  // ---- users and tracker ----
  void SubmitJob(int index);
  void ReportSlots(int process);
  void ReportSlots();
  bool Over() const;

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
  Supply::Hooks SupplyHooks();

  const Scenario& scenario_;
  const WorldOptions options_;
  const bool alone_;  // kUncoordinated
  WorldResult result_;
  Agenda agenda_;
  Dice dice_;
  Plant plant_;
  Machines machines_;
  Pools pools_;
  const std::unique_ptr<RecordStore> store_;  // null: the world is not durable
  Searches searches_;
  ProposedCounts proposed_;  // used where it is not
  Workers workers_;
  Chaos chaos_;
  Supply supply_;
  std::deque<Promises> promises_;  // by process
  std::vector<SchedulerProcess> processes_;
  // By process: whether nobody leads, between a fail-over's two ends, and what is told meanwhile.
  std::vector<bool> leaderless_;
  std::vector<std::vector<Event>> waiting_for_leader_;
  std::vector<absl::Time> free_at_;  // by scheduler: when it has taken all events so far
  WaitMeter waiting_;
  std::set<JobId> ended_;
};

World::World(const Scenario& scenario, const std::string& policy, const WorldOptions& options)
    : scenario_(scenario),
      options_(options),
      alone_(policy == kUncoordinated),
      dice_(scenario.seed),
      plant_(options.planted),
      machines_(scenario_),
      pools_(scenario_),
      store_(options.durable ? MakeMemoryRecordStore() : nullptr),
      searches_(scenario_, &dice_, options.durable),
      workers_(
          scenario_, {alone_, options.durable, options.spans}, &agenda_, &dice_, machines_,
          &searches_,
          [this](int process) -> Promises& { return promises_[static_cast<size_t>(process)]; },
          &result_, WorkerHooks()),
      chaos_(scenario_, &agenda_, &dice_, &machines_, &workers_, ChaosHooks()),
      supply_(scenario_, &agenda_, &machines_, &workers_, &result_, SupplyHooks()) {
  result_.busy.resize(scenario_.slots.size());
  result_.held.resize(scenario_.slots.size());
  result_.jobs.resize(scenario_.jobs.size());
  const size_t processes = alone_ ? scenario_.jobs.size() : static_cast<size_t>(pools_.count());
  const auto schedulers = std::max(processes, static_cast<size_t>(scenario_.schedulers.count));
  leaderless_.resize(processes);
  waiting_for_leader_.resize(processes);
  free_at_.resize(schedulers, agenda_.start());
  result_.deciding.resize(schedulers);
  const auto taught = std::make_shared<Taught>();
  const auto report = [this](const std::string& what) { Violation(what); };
  for (size_t i = 0; i < processes; ++i) {
    promises_.emplace_back(scenario_, policy, agenda_, machines_, workers_.running(), report,
                           taught);
    processes_.emplace_back(alone_ ? "round_robin" : policy,
                            AttemptId{static_cast<int64_t>(i) * kAttemptsPerProcess + 1}, agenda_,
                            store_.get(), &dice_, &plant_, report, scenario_.code_room);
  }
  for (size_t i = 0; i < processes; ++i) Boot(static_cast<int>(i));
  for (size_t i = 0; i < scenario_.jobs.size(); ++i) {
    agenda_.At(absl::Seconds(scenario_.jobs[i].arrival),
               [this, i] { SubmitJob(static_cast<int>(i)); });
  }
  for (const double time : scenario_.schedulers.fail_at)
    agenda_.At(absl::Seconds(time), [this] { FailScheduler(); });
  chaos_.Begin();
  supply_.Begin();
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
      // Each pool in turn.
      FailOver(static_cast<int>(result_.fail_overs % std::ssize(processes_)), gap, stopped);
    };
  }
  return hooks;
}

Supply::Hooks World::SupplyHooks() {
  Supply::Hooks hooks;
  hooks.report = [this](const std::string& worker) {
    if (alone_) return ReportSlots();
    ReportSlots(pools_.PoolOf(worker));
  };
  hooks.for_each_waiting = [this](const Supply::Look& look) {
    for (const SchedulerProcess& process : processes_) {
      const Dispatcher& dispatcher = process.dispatcher();
      dispatcher.ForEachWaiting([&](const WorkItem& work, absl::Time since) {
        look(*dispatcher.FindJob(work.job), work, since);
      });
    }
  };
  hooks.over = [this] { return Over(); };
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
    for (size_t i = 0; i < processes_.size(); ++i)
      promises_[i].CheckEnd(processes_[i].dispatcher(), store_.get());
  }
  Collect();
  return std::move(result_);
}

// ---- the scheduler's processes ----

void World::Boot(int process) {
  Promises& promises = promises_[static_cast<size_t>(process)];
  promises.BeginLife();
  At(process).Boot([&](JobId job) { return ProcessOf(job) == process; },
                   [&](const StoredJob& job) { promises.Loaded(job); });
  ReportSlots(process);
}

void World::Restart() {
  if (std::count(leaderless_.begin(), leaderless_.end(), true) > 0) return;
  ++result_.restarts;
  for (int i = 0; i < static_cast<int>(processes_.size()); ++i) {
    workers_.EndLife(i);
    agenda_.BeginLife(i);
    At(i).Crash();
  }
  for (int i = 0; i < static_cast<int>(processes_.size()); ++i) Boot(i);
}

// The scheduler that leads is stopped, and another takes over after a time. Later the first one goes on: it
// may try to write what it had not written. Users and tracker come again to the new one.
void World::FailOver(int index, absl::Duration gap, absl::Duration stopped) {
  const auto at = static_cast<size_t>(index);
  if (leaderless_[at]) return;
  ++result_.fail_overs;
  workers_.EndLife(index);
  agenda_.BeginLife(index);
  leaderless_[at] = true;
  agenda_.At(stopped, [this, index, late = At(index).Stop()] {
    result_.late_writes += At(index).WriteLate(late);
  });
  agenda_.At(gap, [this, index, at] {
    if (!alone_) pools_.TakeOver(index);
    leaderless_[at] = false;
    const auto begin = std::chrono::steady_clock::now();
    Boot(index);
    if (options_.clock) result_.take_overs.Add(SecondsSince(begin));
    for (Event& event : std::exchange(waiting_for_leader_[at], {})) Tell(index, std::move(event));
  });
}

// It never comes back.
void World::FailScheduler() {
  if (Over()) return;
  const absl::Duration gap = absl::Seconds(scenario_.schedulers.gap);
  for (const int pool : pools_.FailOne()) FailOver(pool, gap, 2 * gap);
}

// A scheduler takes its events one after another.
void World::Tell(int index, Event event) {
  const double decision = scenario_.schedulers.decision;
  if (decision <= 0) return Handle(index, std::move(event));
  absl::Time& free_at = free_at_[static_cast<size_t>(SchedulerOf(index))];
  free_at = std::max(free_at, now()) + absl::Seconds(decision);
  result_.queued.Add(absl::ToDoubleSeconds(free_at - now()));
  agenda_.At(free_at - now(), [this, index, event = std::move(event)] { Handle(index, event); });
}

// One event, as SchedulerLoop::Handle treats it: decide, take it into the ledger, perform.
void World::Handle(int index, Event event) {
  if (!result_.violation.empty()) return;
  const auto at = static_cast<size_t>(index);
  if (leaderless_[at]) return waiting_for_leader_[at].push_back(std::move(event));
  ++result_.steps;
  if (const auto* end = std::get_if<StageFinished>(&event)) workers_.Release(end->attempt);
  SchedulerProcess& process = At(index);
  Promises& promises = promises_[at];
  plant_.Mutate(&event);
  process.AddKnownRecords(&event);
  if (options_.checks) promises.BeforeStep(process.dispatcher());
  const std::optional<JobId> contender = CountContest(process.dispatcher(), event);
  Decisions decisions = Decide(index, event);
  if (contender) result_.relieved += IsRelieved(*process.dispatcher().FindJob(*contender));
  if (options_.checks) promises.AfterStep(process.dispatcher(), decisions.changes, event);
  if (!options_.clock) result_.fingerprint = HashText(ToText(decisions), result_.fingerprint);
  plant_.Mutate(
      workers_.running(),
      [this, index](AttemptId id) {
        agenda_.AtInThisLife(index, absl::Milliseconds(200), [this, index, id] {
          Tell(index,
               StageFinished{id, {v1::FAULT_INFRASTRUCTURE, "taken for ended"}, true, {}, true});
        });
      },
      &decisions);
  process.Keep(event, decisions.changes);
  for (const Change& change : decisions.changes) Note(index, event, change);
  for (const Order& order : decisions.orders) Perform(index, order);
  if (options_.checks) promises.CheckStep(process.dispatcher());
  if (options_.waiting) CountWaiting();
  PlanTick(index);
  for (const Change& change : decisions.changes) {
    if (const auto* find = std::get_if<FindRecords>(&change)) AnswerFind(index, *find);
  }
  if (const auto* submitted = std::get_if<JobSubmitted>(&event)) {
    process.Flush();  // the user gets an answer once the job is durable
    promises.Acknowledged(submitted->job);
  }
}

Decisions World::Decide(int index, const Event& event) {
  if (!options_.clock) return At(index).Step(event);
  const auto begin = std::chrono::steady_clock::now();
  Decisions decisions = At(index).Step(event);
  const double seconds = SecondsSince(begin);
  result_.decisions.Add(seconds);
  result_.deciding[static_cast<size_t>(SchedulerOf(index))] += seconds;
  return decisions;
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
  } else if (const auto* drop = std::get_if<DropArtifacts>(&change)) {
    result_.dropped += static_cast<int64_t>(drop->candidates.size());
  } else if (std::holds_alternative<SetAttempts>(change)) {
    if (!scenario_.disturbed()) Violation("an attempt is counted in a world without faults");
  } else if (const auto* done = std::get_if<FinishCandidate>(&change)) {
    ++result_.trials;
    ++OutcomeOf(done->job).trials;
    result_.lost += done->outcome == v1::OUTCOME_LOST;
    if (store_ == nullptr) proposed_.Finished(*done);
    if (options_.checks) promises_[static_cast<size_t>(index)].CheckRecord(*done, event);
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
      if (options_.checks) promises_[static_cast<size_t>(index)].CheckFed(*feed, input);
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
  Promises& promises = promises_[static_cast<size_t>(index)];
  if (options_.checks) promises.CheckStart(dispatcher, start);
  if (!result_.violation.empty()) return;
  if (store_ == nullptr) return workers_.Begin(index, start, proposed_.WorkOf(start), nullptr);
  StartStage planted = start;
  plant_.MutateStart(&planted);
  StageOrder order = At(index).BeginOrder(planted);
  plant_.MutateOrder(start, &order);
  if (options_.checks) promises.CheckOrder(dispatcher, start, order);
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
  if (options_.checks)
    promises_[static_cast<size_t>(index)].CheckCompleted(made, completed, store_.get());
  AddFetched(completed, work);
  ++result_.orders;
  result_.warm_orders += made.reads.warm.has_value();
  result_.transfer_orders += work->transferred;
}

void World::PlanTick(int index) {
  const absl::Time wake = At(index).NextWake();
  if (wake == absl::InfiniteFuture()) return;
  agenda_.AtInThisLife(index, wake - now(), [this, index] { Tell(index, Tick{}); });
}

void World::AnswerFind(int index, const FindRecords& find) {
  if (!scenario_.faults.any()) return Tell(index, At(index).Find(find));
  agenda_.AtInThisLife(index, absl::Seconds(dice_.Between(0, 3)),
                       [this, index, find] { Tell(index, At(index).Find(find)); });
}

// ---- users and tracker ----

void World::ReportSlots(int process) {
  Tell(process, machines_.Report(pools_.SlotsOf(alone_ ? 0 : process)));
}

void World::ReportSlots() {
  for (int i = 0; i < static_cast<int>(processes_.size()); ++i) ReportSlots(i);
}

// Whether nothing is left to do. A crash may have taken the end of a job that had ended before.
bool World::Over() const {
  if (ended_.size() < scenario_.jobs.size()) return false;
  return std::all_of(processes_.begin(), processes_.end(), [](const SchedulerProcess& process) {
    const Jobs& jobs = process.dispatcher().jobs();
    return std::all_of(jobs.begin(), jobs.end(),
                       [](const auto& job) { return job.second.final(); });
  });
}

void World::SubmitJob(int index) {
  const SimJob& job = scenario_.jobs[static_cast<size_t>(index)];
  const JobId id{index + 1};
  if (!alone_ && pools_.PoolOfJob(index) < 0) pools_.Enter(index);
  if (leaderless_[static_cast<size_t>(ProcessOf(id))])
    return agenda_.At(absl::Seconds(1), [this, index] { SubmitJob(index); });
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
        !slot.info.device && promises_.front().Free(processes_.front().dispatcher(), slot.info);
  waiting_.Pass(now());
  for (const SchedulerProcess& process : processes_)
    waiting_.See(process.dispatcher(), cpu_slot_free, now());
}

// A job may end again if a crash took its first end.
void World::NoteEnd(const Job& job) {
  workers_.JobOver(job.id);
  if (!ended_.insert(job.id).second) return;
  if (!alone_) pools_.Left(IndexOf(job.id));
  JobOutcome& outcome = OutcomeOf(job.id);
  outcome.end = agenda_.Since(now());
  outcome.done = std::holds_alternative<Done>(job.phase);
  result_.done_jobs += outcome.done;
  result_.seconds = std::max(result_.seconds, outcome.end);
}

void World::Collect() {
  result_.waiting = waiting_.total();
  supply_.End(result_.seconds);
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
  if (!scenario.schedulers.fail_at.empty() && !options.durable)
    return absl::InvalidArgumentError("schedulers die only in a durable world");
  if (policy == kUncoordinated && scenario.schedulers.count > 1)
    return absl::InvalidArgumentError(
        absl::StrCat("policy ", kUncoordinated,
                     " gives each job a scheduler of its own; leave out schedulers.count"));
  WorldResult result = World(scenario, policy, options).Run();
  if (!options.checks && !result.violation.empty())
    return absl::FailedPreconditionError(result.violation);
  return result;
}

}  // namespace heddle::sim
