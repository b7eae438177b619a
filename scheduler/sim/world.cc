#include "scheduler/sim/world.h"

#include <algorithm>
#include <cmath>

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

// Planted::kStarve: the first job comes last, for ever.
class Starving : public Policy {
 public:
  explicit Starving(std::unique_ptr<Policy> inner) : inner_(std::move(inner)) {}
  void Attach(const PolicyView& view) override { inner_->Attach(view); }
  Rank RankOf(const WorkItem& work, const Job& job, const Wait& wait) override {
    Rank rank = inner_->RankOf(work, job, wait);
    if (job.id.value == 1) rank.group = kLast;
    return rank;
  }
  GroupRank RankOfGroup(int64_t group) const override {
    return group == kLast ? GroupRank{HUGE_VAL} : inner_->RankOfGroup(group);
  }
  void Changed(const Job& job) override { inner_->Changed(job); }
  void Started(const WorkItem& work, const Job& job, const LiveStage& stage) override {
    inner_->Started(work, job, stage);
  }
  void Ended(const LiveStage& stage, const Job& job, absl::Time now) override {
    inner_->Ended(stage, job, now);
  }
  std::vector<JobId> TakeStale(absl::Time now) override { return inner_->TakeStale(now); }

 private:
  static constexpr int64_t kLast = -1;
  std::unique_ptr<Policy> inner_;
};

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
      fate_(Mix({scenario.seed, 2})) {
  if (options_.durable) store_ = MakeMemoryRecordStore();
  const size_t slots = scenario_.slots.size();
  result_.busy.resize(slots);
  result_.held.resize(slots);
  result_.jobs.resize(scenario_.jobs.size());
  neighbours_.resize(slots);
  std::map<std::pair<std::string, int>, std::vector<int>> holders;
  for (size_t i = 0; i < slots; ++i) {
    const SlotInfo& slot = scenario_.slots[i].info;
    slot_index_[slot.id] = static_cast<int>(i);
    for (int core : slot.cores) holders[{slot.host, core}].push_back(static_cast<int>(i));
  }
  for (size_t i = 0; i < slots; ++i) {
    std::set<int> near{static_cast<int>(i)};
    const SlotInfo& slot = scenario_.slots[i].info;
    for (int core : slot.cores) {
      const std::vector<int>& others = holders[{slot.host, core}];
      near.insert(others.begin(), others.end());
    }
    neighbours_[i].assign(near.begin(), near.end());
  }
  processes_.resize(policy == kUncoordinated ? scenario_.jobs.size() : 1);
  for (size_t i = 0; i < processes_.size(); ++i)
    processes_[i].next_attempt = static_cast<int64_t>(i) * kAttemptsPerProcess + 1;
  Boot();
  for (size_t i = 0; i < scenario_.jobs.size(); ++i) {
    At(absl::Seconds(scenario_.jobs[i].arrival), [this, i] { SubmitJob(static_cast<int>(i)); });
  }
  unfinished_ = static_cast<int>(scenario_.jobs.size());
  if (scenario_.faults.until > 0) At(Fate(1, 60), [this] { Chaos(); });
}

WorldResult World::Run() {
  const absl::Duration limit = options_.checks ? kLimitChecked : kLimit;
  const int64_t max_steps = options_.checks ? kMaxStepsChecked : kMaxSteps;
  while (result_.violation.empty() && !agenda_.empty()) {
    auto first = agenda_.begin();
    const absl::Time time = first->first.first;
    std::function<void()> action = std::move(first->second);
    agenda_.erase(first);
    now_ = std::max(now_, time);
    if (now_ - start_ > limit || result_.steps > max_steps) break;
    action();
  }
  if (options_.checks && result_.violation.empty()) CheckEnd();
  Collect();
  return std::move(result_);
}

void World::At(absl::Duration after, std::function<void()> action) {
  agenda_[{now_ + after, ++order_}] = std::move(action);
}

// An action of this scheduler's life; a restart takes it along.
void World::Later(absl::Duration after, std::function<void()> action) {
  At(after, [this, epoch = epoch_, action = std::move(action)] {
    if (epoch == epoch_) action();
  });
}

void World::Violation(const std::string& what) {
  if (!result_.violation.empty()) return;
  result_.violation = absl::StrCat("seed ", scenario_.seed, " step ", result_.steps,
                                   " t=", absl::FormatDuration(now_ - start_), ": ", what);
}

void World::Boot() {
  stages_.clear();
  recorded_.clear();
  blocked_.clear();
  passed_over_.clear();
  for (Process& process : processes_) {
    process.dispatcher = std::make_unique<Dispatcher>(
        options_.planted == Planted::kStarve ? std::make_unique<Starving>(PolicyOf(policy_))
                                             : PolicyOf(policy_));
    process.book = JobLedger();
    process.wake = absl::InfinitePast();
    if (options_.durable) {
      auto jobs = store_->LoadJobs();
      for (const StoredJob& job : *jobs) {
        for (const CandidateRow& candidate : job.candidates) {
          if (candidate.outcome) recorded_.insert({job.row.id, candidate.id});
        }
        process.dispatcher->Restore(process.book.Load(job, now_, now_));
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
  if (options_.checks) budgets_.Before(*process.dispatcher);
  const auto* found = std::get_if<RecordsFound>(&event);
  const bool forget = found != nullptr && options_.planted == Planted::kForgetFind;
  Decisions decisions = process.dispatcher->Step(
      forget ? Event(RecordsFound{found->job, found->device_key, {}}) : event, now_);
  if (options_.checks) {
    const std::string wrong = budgets_.After(*process.dispatcher, decisions.changes, event);
    if (!wrong.empty()) Violation(wrong);
  }
  result_.fingerprint = HashText(ToText(decisions), result_.fingerprint);
  if (options_.planted != Planted::kNone) Mutate(&decisions);
  if (options_.durable) {
    Batch batch = process.book.Absorb(*process.dispatcher, event, decisions.changes, now_, now_);
    if (!batch.empty()) process.pending.push_back(std::move(batch));
    if (process.pending.size() > 64 || dice_.Likely(0.3)) Flush(&process);
  }
  for (const Change& change : decisions.changes) Note(index, event, change);
  for (const Order& order : decisions.orders) Perform(index, order);
  if (options_.checks) Check(process);
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
  const absl::Time wake = process.dispatcher->NextWake(now_);
  if (wake == absl::InfiniteFuture() || wake == process.wake) return;
  process.wake = wake;
  Later(wake - now_, [this, index] { Feed(index, Tick{}); });
}

void World::SendSlots() {
  SlotsChanged event;
  if (tracker_down_) event.problem = "the tracker is gone";
  for (const SimSlot& made : scenario_.slots) {
    SlotInfo slot = made.info;
    if (dead_.count(slot.id.worker)) continue;
    if (foreign_.count(slot.id))
      slot.foreign = true, slot.usable = false, slot.why_not = "held by ann";
    if (quarantined_.count(slot.id)) slot.usable = false, slot.why_not = "quarantined";
    event.slots.push_back(std::move(slot));
  }
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
    spec.set_deadline_unix_ns(absl::ToUnixNanos(now_ + absl::Seconds(job.deadline)));
  spec.set_time_limit_ms(static_cast<int64_t>(job.time_limit * 1e3));
  spec.set_plateau_trials(job.plateau);
  spec.set_allocation(job.gradient ? "gradient" : "uniform");
  spec.set_max_devices(job.max_devices);
  absl::StatusOr<JobParams> params = JobLedger::ParamsFrom(spec, now_, now_);
  if (!params.ok())
    return Violation(absl::StrCat("job ", job.name, ": ", params.status().message()));
  result_.jobs[static_cast<size_t>(index)].arrival = Since(now_);
  JobSubmitted submitted{id, *params};
  submitted.description.set_id(JobName(id.value));
  submitted.description.set_state(v1::JOB_IMPORTING);
  *submitted.description.mutable_spec() = std::move(spec);
  const int process = ProcessOf(index);
  Feed(process, submitted);
  if (options_.durable)
    Flush(&processes_[static_cast<size_t>(process)]);  // the user has his answer only now
  acknowledged_.insert(id.value);
}

void World::CountWaiting() {
  const double passed = absl::ToDoubleSeconds(now_ - waiting_since_);
  if (waiting_since_ != absl::UnixEpoch()) {
    result_.waiting.cpu += waiting_now_.cpu * passed;
    result_.waiting.device += waiting_now_.device * passed;
    result_.waiting.backoff += waiting_now_.backoff * passed;
    result_.waiting.depth += waiting_now_.depth * passed;
  }
  waiting_since_ = now_;
  waiting_now_ = {};
  bool cpu_free = false;
  for (const SimSlot& slot : scenario_.slots) cpu_free |= !slot.info.device && Free(slot.info);
  for (const Process& process : processes_) {
    std::set<JobId> cpu, device;
    for (const WorkItem& work : process.dispatcher->ReadyWork())
      (work.device ? device : cpu).insert(work.job);
    waiting_now_.cpu += static_cast<double>(cpu.size());
    waiting_now_.device += static_cast<double>(device.size());
    for (const auto& [id, job] : process.dispatcher->jobs()) {
      if (job.final()) continue;
      bool backoff = job.not_before > now_;
      for (const Task& task : job.tasks) backoff |= task.not_before > now_;
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
    outcome.end = Since(now_);
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
