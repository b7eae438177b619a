#include "scheduler/sim/world/world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/sim/decision_text.h"
#include "scheduler/store/memory_record_store.h"

namespace heddle::sim {
namespace {

// The uncoordinated baseline: attempts of one dispatcher never look like those of another.
constexpr int64_t kAttemptsPerProcess = 1'000'000'000;
// A world that goes on for longer is stuck.
constexpr absl::Duration kLimit = absl::Hours(24 * 365);
constexpr int64_t kMaxStepsChecked = 400'000;
constexpr int64_t kMaxSteps = 200'000'000;
constexpr absl::Duration kLimitChecked = absl::Hours(48);

std::unique_ptr<Policy> PolicyOf(const std::string& name) {
  absl::StatusOr<std::unique_ptr<Policy>> policy =
      MakePolicy(name == kUncoordinated ? "round_robin" : name);
  return policy.ok() ? *std::move(policy) : nullptr;
}

}  // namespace

World::World(const Scenario& scenario, const std::string& policy, const WorldOptions& options)
    : scenario_(scenario),
      policy_(policy),
      options_(options),
      dice_(scenario.seed),
      fate_(Mix({scenario.seed, 2})),
      store_(options.durable ? MakeMemoryRecordStore() : nullptr),
      searches_(scenario_, store_.get(), &dice_, &plant_) {
  const size_t slots = scenario_.slots.size();
  result_.busy.resize(slots);
  result_.held.resize(slots);
  result_.jobs.resize(scenario_.jobs.size());
  processes_.resize(policy == kUncoordinated ? scenario_.jobs.size() : 1);
  for (size_t i = 0; i < processes_.size(); ++i)
    processes_[i].next_attempt = static_cast<int64_t>(i) * kAttemptsPerProcess + 1;
  Boot();
  for (size_t i = 0; i < scenario_.jobs.size(); ++i) {
    agenda_.At(absl::Seconds(scenario_.jobs[i].arrival),
               [this, i] { SubmitJob(static_cast<int>(i)); });
  }
  unfinished_ = static_cast<int>(scenario_.jobs.size());
  if (scenario_.faults.until > 0) agenda_.At(Fate(1, 60), [this] { Chaos(); });
}

WorldResult World::Run() {
  const absl::Duration limit = options_.checks ? kLimitChecked : kLimit;
  const int64_t max_steps = options_.checks ? kMaxStepsChecked : kMaxSteps;
  while (result_.violation.empty() && !agenda_.empty()) {
    const std::function<void()> action = agenda_.Next();
    if (now() - agenda_.start() > limit || result_.steps > max_steps) break;
    action();
  }
  if (options_.checks && result_.violation.empty()) {
    for (Process& process : processes_) Flush(&process);
    promises_.CheckEnd(*processes_.front().dispatcher, store_.get());
  }
  Collect();
  return std::move(result_);
}

// An action of this scheduler's life; a restart takes it along.
void World::Later(absl::Duration after, std::function<void()> action) {
  agenda_.At(after, [this, epoch = epoch_, action = std::move(action)] {
    if (epoch == epoch_) action();
  });
}

void World::Violation(const std::string& what) {
  if (!result_.violation.empty()) return;
  result_.violation =
      absl::StrCat("seed ", scenario_.seed, " step ", result_.steps,
                   " t=", absl::FormatDuration(now() - agenda_.start()), ": ", what);
}

void World::Boot() {
  stages_.clear();
  promises_.BeginLife();
  for (Process& process : processes_) {
    process.dispatcher = std::make_unique<Dispatcher>(
        plant_.Is(Planted::kStarve) ? Starve(PolicyOf(policy_)) : PolicyOf(policy_));
    process.book = JobLedger();
    process.wake = absl::InfinitePast();
    if (options_.durable) {
      auto jobs = store_->LoadJobs();
      for (const StoredJob& job : *jobs) {
        for (const CandidateRow& candidate : job.candidates) {
          if (candidate.outcome) promises_.HasRecord(job.row.id, candidate.id);
        }
        process.dispatcher->Restore(process.book.Load(job, now(), now()));
      }
    }
    process.dispatcher->SetNextAttempt(AttemptId{process.next_attempt});
  }
  SendSlots();
}

void World::Restart() {
  ++result_.restarts;
  // The workers' old runs still speak, but to nobody: the new process does not know them.
  for (const auto& [id, stage] : stages_) {
    if (stage.taken && dice_.Likely(0.3)) LeaveGhost(id);
  }
  ++epoch_;
  for (Process& process : processes_) {
    // Some of what was not durable yet is, some is not; order is kept.
    const size_t kept =
        process.pending.empty()
            ? 0
            : static_cast<size_t>(dice_.Below(static_cast<int>(process.pending.size()) + 1));
    process.pending.resize(kept);
    Flush(&process);
  }
  Boot();
}

void World::Flush(Process* process) {
  if (process->pending.empty()) return;
  auto results = store_->Apply(process->pending);
  for (const absl::Status& status : *results) {
    if (!status.ok()) Violation(absl::StrCat("the store refused: ", status.message()));
  }
  process->pending.clear();
}

void World::Feed(int index, const Event& event) {
  if (!result_.violation.empty()) return;
  ++result_.steps;
  Process& process = processes_[static_cast<size_t>(index)];
  if (options_.checks) promises_.BeforeStep(*process.dispatcher);
  const auto* found = std::get_if<RecordsFound>(&event);
  const bool forget = found != nullptr && plant_.Is(Planted::kForgetFind);
  Decisions decisions = process.dispatcher->Step(
      forget ? Event(RecordsFound{found->job, found->device_key, {}}) : event, now());
  if (options_.checks) promises_.AfterStep(*process.dispatcher, decisions.changes, event);
  result_.fingerprint = HashText(ToText(decisions), result_.fingerprint);
  plant_.Mutate(
      stages_,
      [this](AttemptId id) {
        Later(absl::Milliseconds(200), [this, id] {
          Feed(0, StageFinished{id, {v1::FAULT_INFRASTRUCTURE, "taken for ended"}, true, {}, true});
        });
      },
      &decisions);
  if (options_.durable) {
    Batch batch = process.book.Absorb(*process.dispatcher, event, decisions.changes, now(), now());
    if (!batch.empty()) process.pending.push_back(std::move(batch));
    if (process.pending.size() > 64 || dice_.Likely(0.3)) Flush(&process);
  }
  for (const Change& change : decisions.changes) Note(index, event, change);
  for (const Order& order : decisions.orders) Perform(index, order);
  if (options_.checks) promises_.CheckStep(*process.dispatcher);
  if (options_.waiting) CountWaiting();
  SetWake(index);
  for (const Change& change : decisions.changes) {
    const auto* find = std::get_if<FindRecords>(&change);
    if (find == nullptr) continue;
    if (scenario_.faults.any()) {
      Later(Between(0, 3), [this, index, find = *find] { AnswerFind(index, find); });
    } else {
      AnswerFind(index, *find);
    }
  }
}

void World::SetWake(int index) {
  Process& process = processes_[static_cast<size_t>(index)];
  const absl::Time wake = process.dispatcher->NextWake(now());
  if (wake == absl::InfiniteFuture() || wake == process.wake) return;
  process.wake = wake;
  Later(wake - now(), [this, index] { Feed(index, Tick{}); });
}

void World::SendSlots() {
  const SlotsChanged event = machines_.Report();
  for (size_t i = 0; i < processes_.size(); ++i) Feed(static_cast<int>(i), event);
}

void World::SubmitJob(int index) {
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
  spec.set_user(job.user);
  spec.set_priority(job.priority);
  if (job.deadline > 0)
    spec.set_deadline_unix_ns(absl::ToUnixNanos(now() + absl::Seconds(job.deadline)));
  spec.set_time_limit_ms(static_cast<int64_t>(job.time_limit * 1e3));
  spec.set_plateau_trials(job.plateau);
  spec.set_allocation(job.gradient ? "gradient" : "uniform");
  spec.set_max_devices(job.max_devices);
  absl::StatusOr<JobParams> params = JobLedger::ParamsFrom(spec, now(), now());
  if (!params.ok())
    return Violation(absl::StrCat("job ", job.name, ": ", params.status().message()));
  result_.jobs[static_cast<size_t>(index)].arrival = agenda_.Since(now());
  JobSubmitted submitted{id, *params};
  submitted.description.set_id(JobName(id.value));
  submitted.description.set_state(v1::JOB_IMPORTING);
  *submitted.description.mutable_spec() = std::move(spec);
  const int process = ProcessOf(index);
  Feed(process, submitted);
  if (options_.durable)
    Flush(&processes_[static_cast<size_t>(process)]);  // the user has his answer only now
  promises_.Acknowledged(id.value);
}

void World::CountWaiting() {
  const double passed = absl::ToDoubleSeconds(now() - waiting_since_);
  if (waiting_since_ != absl::UnixEpoch()) {
    result_.waiting.cpu += waiting_now_.cpu * passed;
    result_.waiting.device += waiting_now_.device * passed;
    result_.waiting.backoff += waiting_now_.backoff * passed;
    result_.waiting.depth += waiting_now_.depth * passed;
  }
  waiting_since_ = now();
  waiting_now_ = {};
  bool cpu_free = false;
  for (const SimSlot& slot : scenario_.slots)
    cpu_free |= !slot.info.device && promises_.Free(*processes_.front().dispatcher, slot.info);
  for (const Process& process : processes_) {
    std::set<JobId> cpu, device;
    for (const WorkItem& work : process.dispatcher->ReadyWork())
      (work.device ? device : cpu).insert(work.job);
    waiting_now_.cpu += static_cast<double>(cpu.size());
    waiting_now_.device += static_cast<double>(device.size());
    for (const auto& [id, job] : process.dispatcher->jobs()) {
      if (job.final()) continue;
      bool backoff = job.not_before > now();
      for (const Task& task : job.tasks) backoff |= task.not_before > now();
      waiting_now_.backoff += backoff;
      waiting_now_.depth += cpu_free && !job.queue.empty() && !cpu.count(id);
    }
  }
}

// Jobs that have come to their end.
void World::NoteEnds(int index) {
  for (const auto& [id, job] : processes_[static_cast<size_t>(index)].dispatcher->jobs()) {
    if (!job.final() || !finished_jobs_.insert(id.value).second) continue;
    JobOutcome& outcome = result_.jobs[static_cast<size_t>(JobIndex(id))];
    outcome.end = agenda_.Since(now());
    outcome.done = std::holds_alternative<Done>(job.phase);
    result_.done_jobs += outcome.done;
    result_.seconds = std::max(result_.seconds, outcome.end);
    --unfinished_;
  }
}

void World::Collect() {
  for (size_t i = 0; i < result_.jobs.size(); ++i) {
    if (result_.jobs[i].end < 0 && result_.violation.empty() && !options_.checks)
      Violation(absl::StrCat(
          "job ", scenario_.jobs[i].name,
          " never ended: no slot suits it, or the limits of the simulation were reached"));
  }
  if (!options_.durable) return;
  for (Process& process : processes_) Flush(&process);
  v1::RecordQuery query;
  query.set_limit(kMaxQueryLimit);
  auto records = store_->Query(query);
  for (const v1::Record& record : *records) {
    result_.records.push_back(
        absl::StrCat(record.job(), " ", record.workload_key(), " ", record.trace(), " ",
                     static_cast<int>(record.measurement().outcome()), " ", record.median_ns()));
  }
  std::sort(result_.records.begin(), result_.records.end());
}

absl::StatusOr<WorldResult> RunWorld(const Scenario& scenario, const std::string& policy,
                                     const WorldOptions& options) {
  if (policy != kUncoordinated) {
    absl::StatusOr<std::unique_ptr<Policy>> made = MakePolicy(policy);
    if (!made.ok())
      return absl::InvalidArgumentError(
          absl::StrCat(made.status().message(), ", ", kUncoordinated));
  }
  WorldResult result = World(scenario, policy, options).Run();
  if (!options.checks && !result.violation.empty())
    return absl::FailedPreconditionError(result.violation);
  return result;
}

}  // namespace heddle::sim
