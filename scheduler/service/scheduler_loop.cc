#include "scheduler/service/scheduler_loop.h"

#include <algorithm>

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "proto/grpc_util.h"
#include "scheduler/ledger/why_waiting.h"
#include "scheduler/service/stage_orders.h"

namespace heddle::scheduler {
namespace {

constexpr size_t kMaxInbox = 8192;  // streams wait when the core falls behind
constexpr absl::Duration kLongestSleep = absl::Seconds(1);  // times shown in reasons stay fresh
constexpr char kUnread[] = "what is on record could not be read: ";
// Thousands of jobs may have waited for one device: so many tasks between other events. After a
// failed read it is tried again in a while.
constexpr size_t kFindsAtATime = 256;
constexpr absl::Duration kFindAgain = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<SchedulerLoop>> SchedulerLoop::Load(Options options,
                                                                   RecordStore* store,
                                                                   BlobStore* blobs) {
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<Policy> policy, MakePolicy(options.policy));
  std::unique_ptr<SchedulerLoop> executive(
      new SchedulerLoop(std::move(options), store, blobs, std::move(policy)));
  HEDDLE_RETURN_IF_ERROR(executive->LoadJobs());
  return executive;
}

void SchedulerLoop::Begin() {
  thread_ = std::thread([this] { Run(); });
  watch_ = std::make_unique<TrackerWatch>(tracker_, options_.tracker_address, leases_.get(),
                                          [this](SlotsChanged event) {
                                            Post({std::move(event), {}, {}});
                                          });
}

SchedulerLoop::SchedulerLoop(Options options, RecordStore* store, BlobStore* blobs,
                             std::unique_ptr<Policy> policy)
    : options_(std::move(options)),
      store_(store),
      blobs_(blobs),
      tracker_(v1::TrackerService::NewStub(MakeChannel(options_.tracker_address))),
      dispatcher_(std::move(policy)),
      leases_(std::make_unique<LeaseKeeper>(tracker_, options_.holder)) {
  StoreWriter::Hooks hooks;
  // Beside the inbox, which may be full just because the core waits for the writer.
  hooks.blocked = [this](std::string reason) {
    absl::MutexLock lock(&mutex_);
    store_problem_ = std::move(reason);
  };
  // Stages are not begun with such a token (see PerformStart): this is what remains of a race.
  hooks.rejected = [](const std::string& reason) {
    spdlog::warn("a record was refused: {}", reason);
  };
  hooks.fatal = options_.fatal;
  writer_ = std::make_unique<StoreWriter>(store_, std::move(hooks));
}

SchedulerLoop::~SchedulerLoop() {
  watch_.reset();
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  writer_->StopWaiting();
  if (thread_.joinable()) thread_.join();
  for (auto& [id, runner] : runners_) runner->Cancel();
  runners_.clear();
  writer_.reset();
}

absl::Status SchedulerLoop::LoadJobs() {
  const absl::Time now = MonotonicNow();
  HEDDLE_ASSIGN_OR_RETURN(std::vector<StoredJob> jobs, store_->LoadJobs());
  for (const StoredJob& stored : jobs) {
    dispatcher_.Restore(ledger_.Load(stored, now, absl::Now()));
    next_job_ = std::max(next_job_.load(), stored.row.id + 1);
    MarkDirty(JobId{stored.row.id});
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto models, store_->AllOthersModels());
  ledger_.LoadOthersModels(models);
  HEDDLE_ASSIGN_OR_RETURN(int64_t last, store_->LastAttempt());
  dispatcher_.SetNextAttempt(AttemptId{last + 1});
  HEDDLE_ASSIGN_OR_RETURN(auto fences, store_->Fences());
  {
    absl::MutexLock lock(&mutex_);
    fences_ = std::move(fences);
  }
  // Stages of the process before this one: their slots are free again as soon as the leases are
  // given back.
  HEDDLE_ASSIGN_OR_RETURN(std::vector<StageRow> unfinished, store_->UnfinishedStages());
  Batch batch;
  for (StageRow& row : unfinished) {
    leases_->Release(row.lease_id);
    row.span.set_end_unix_ns(absl::GetCurrentTimeNanos());
    row.span.mutable_fault()->set_kind(v1::FAULT_INFRASTRUCTURE);
    row.span.mutable_fault()->set_message("the scheduler was restarted");
    batch.push_back(PutStage{row});
  }
  if (!batch.empty()) writer_->Write(std::move(batch));
  Publish(true);
  return absl::OkStatus();
}

// ---- the core thread ----

bool SchedulerLoop::Post(Input input) {
  auto room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return inbox_.size() < kMaxInbox || stop_;
  };
  absl::MutexLock lock(&mutex_, absl::Condition(&room));
  if (stop_) return false;
  inbox_.push_back(std::move(input));
  return true;
}

void SchedulerLoop::Run() {
  while (true) {
    std::deque<Input> inputs;
    std::deque<std::pair<AttemptId, v1::Lease>> leased;
    {
      const absl::Time now = MonotonicNow();
      absl::Duration sleep = std::min(kLongestSleep, dispatcher_.NextWake(now) - now);
      if (!finds_.empty())
        sleep = std::min(sleep, std::max(absl::ZeroDuration(), find_after_ - now));
      if (ToPublish()) sleep = std::min(sleep, std::max(absl::ZeroDuration(), next_publish_ - now));
      auto work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !inbox_.empty() || !leased_.empty() || !ended_.empty() || store_problem_ || stop_;
      };
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&work), sleep);
      if (stop_) return;
      inputs.swap(inbox_);
      leased.swap(leased_);
      if (store_problem_) inputs.push_front({StoreBlocked{*store_problem_}, {}, {}});
      store_problem_.reset();
    }
    for (const auto& [attempt, lease] : leased) OnLeased(attempt, lease);
    if (inputs.empty()) inputs.push_back({Tick{}, {}, {}});
    for (Input& input : inputs) Handle(std::move(input));
    AnswerFinds();
    ReapRunners();
    Publish(false);
  }
}

void SchedulerLoop::Handle(Input input) {
  Prepare(&input);
  const absl::Time now = MonotonicNow();
  const std::optional<JobId> subject = SubjectOf(input.event);
  const Decisions decisions = dispatcher_.Step(input.event, now);
  for (const Change& change : decisions.changes) {
    if (const auto* find = std::get_if<FindRecords>(&change)) finds_.push_back(*find);
    const auto* estimate = std::get_if<DeadlineEstimate>(&change);
    if (estimate == nullptr) continue;
    const Job& job = *dispatcher_.FindJob(estimate->job);
    ledger_.SetDeadlineWarning(job.id, DescribeEstimate(job, *estimate, now, absl::Now()));
  }
  Batch batch = ledger_.Absorb(dispatcher_, input.event, decisions.changes, now, absl::Now());
  if (const auto* end = std::get_if<StageFinished>(&input.event)) EndSpan(*end, &batch);
  if (!batch.empty() || input.durable) writer_->Write(std::move(batch), std::move(input.durable));
  NoteChanges(input.event, subject, decisions);
  for (const Order& order : decisions.orders) Perform(order);
  if (input.done) {
    Publish(true);
    input.done();
  }
}

// What only this thread can add to an event.
void SchedulerLoop::Prepare(Input* input) {
  auto* end = std::get_if<StageFinished>(&input->event);
  if (end == nullptr) return;
  auto stage = dispatcher_.live().find(end->attempt);
  if (stage == dispatcher_.live().end()) return;
  ledger_.AddWarnings(stage->second.job, end->warnings);
  if (auto* imported = std::get_if<Imported>(&end->result)) PlanTasks(end->attempt, imported);
  const auto* compiled = std::get_if<Compiled>(&end->result);
  if (stage->second.fetch && compiled != nullptr) {
    absl::MutexLock lock(&view_mutex_);
    auto fetch = fetches_.find(*stage->second.fetch);
    if (fetch != fetches_.end()) fetch->second.digest = compiled->module_digest;
  }
}

absl::StatusOr<TaskPlan> SchedulerLoop::PlanTask(const v1::TaskInfo& task,
                                                 const std::string& target,
                                                 const std::string& device_key) {
  HEDDLE_ASSIGN_OR_RETURN(const KnownRecords found,
                          store_->Known({task.key(), target, device_key}));
  return TaskPlan{static_cast<int>(std::min<int64_t>(found.total, 1 << 30)),
                  static_cast<int>(std::min<int64_t>(found.valid, 1 << 30)),
                  found.best_ns,
                  task.key(),
                  std::max(1, task.weight()),
                  task.flops(),
                  found.untuned_ns};
}

// Looks up what the database already knows of the tasks an import found.
void SchedulerLoop::PlanTasks(AttemptId attempt, Imported* imported) {
  const LiveStage& stage = dispatcher_.live().at(attempt);
  const v1::JobSpec& spec = ledger_.data(stage.job).row.job.spec();
  const Job& job = *dispatcher_.FindJob(stage.job);
  const WorkItem profile{stage.job, v1::STAGE_PROFILE, TaskIndex{0}, std::nullopt, true};
  std::string key = job.params.device_key;
  bool device_seen = !key.empty();
  for (const bool usable : {true, false}) {  // one that can measure now, if there is any
    for (const SlotInfo& slot : dispatcher_.slots()) {
      if (device_seen || slot.usable != usable || !dispatcher_.Suits(slot, profile)) continue;
      key = slot.device_key;
      device_seen = true;
    }
  }
  if (!device_seen) {
    absl::StatusOr<std::vector<std::string>> keys = store_->DeviceKeys(spec.target());
    if (keys.ok() && !keys->empty()) key = keys->front();
  }
  imported->device_key = key;
  std::vector<int> totals;
  for (const v1::TaskInfo& task : imported->model.tasks()) {
    absl::StatusOr<TaskPlan> plan = PlanTask(task, spec.target(), key);
    if (!plan.ok()) {
      ledger_.AddWarnings(stage.job, {absl::StrCat(kUnread, plan.status().message())});
      plan = TaskPlan{0, 0, 0, task.key(), std::max(1, task.weight()), task.flops()};
    }
    imported->tasks.push_back(*std::move(plan));
    totals.push_back(spec.force() ? 0 : imported->tasks.back().known);
  }
  const bool wait = !device_seen && Dispatcher::TrialBudget(job.params, totals) > 0;
  // No such device is here, and the records do not suffice without one: wait for whichever device
  // comes (and look again: AnswerFind).
  if (wait) imported->device_key.clear();
  if (wait || spec.force()) {  // with --force nothing known teaches the search or ends it
    for (TaskPlan& plan : imported->tasks)
      plan.known = plan.known_valid = 0, plan.known_best_ns = plan.known_untuned_ns = 0;
  }
}

// Not while nothing can be written: what follows could not be remembered.
void SchedulerLoop::AnswerFinds() {
  for (size_t tasks = 0; tasks < kFindsAtATime && !finds_.empty();) {
    if (!dispatcher_.store_problem().empty()) find_after_ = MonotonicNow() + kFindAgain;
    if (MonotonicNow() < find_after_) return;
    const FindRecords find = finds_.front();
    tasks += 1 + ledger_.data(find.job).tasks.size();
    if (absl::Status status = AnswerFind(find); !status.ok()) {
      ledger_.AddWarnings(find.job, {absl::StrCat(kUnread, status.message())});
      find_after_ = MonotonicNow() + kFindAgain;
      return;
    }
    finds_.pop_front();
  }
}

absl::Status SchedulerLoop::AnswerFind(const FindRecords& find) {
  if (dispatcher_.FindJob(find.job)->final()) return absl::OkStatus();
  const JobLedger::JobData& job = ledger_.data(find.job);
  const v1::JobSpec& spec = job.row.job.spec();
  RecordsFound found{find.job, find.device_key, {}};
  for (const JobLedger::TaskData& task : job.tasks) {
    if (spec.force()) break;
    HEDDLE_ASSIGN_OR_RETURN(TaskPlan plan, PlanTask(task.info, spec.target(), find.device_key));
    found.tasks.push_back(std::move(plan));
  }
  Handle({std::move(found), {}, {}});
  return absl::OkStatus();
}

void SchedulerLoop::Perform(const Order& order) {
  if (const auto* start = std::get_if<StartStage>(&order)) {
    PerformStart(*start);
  } else if (const auto* feed = std::get_if<FeedProfile>(&order)) {
    if (auto row = spans_.find(feed->attempt); row != spans_.end())
      row->second.span.set_candidates(row->second.span.candidates() + 1);
    if (StageRunner* runner = Runner(feed->attempt))
      runner->Feed(MakeProfileInput(ledger_, feed->job, feed->candidate));
  } else if (const auto* close = std::get_if<CloseProfile>(&order)) {
    if (StageRunner* runner = Runner(close->attempt)) runner->CloseInput();
  } else if (const auto* cancel = std::get_if<CancelStage>(&order)) {
    if (StageRunner* runner = Runner(cancel->attempt)) runner->Cancel();
  } else if (const auto* fetch = std::get_if<EndFetch>(&order)) {
    absl::MutexLock lock(&view_mutex_);
    auto it = fetches_.find(fetch->fetch);
    if (it == fetches_.end()) return;
    it->second.ended = true;
    it->second.fault = fetch->fault;
    const bool lasting = it->second.choice != v1::SCHEDULE_BEST;  // the best may get better
    if (lasting && !it->second.digest.empty())
      modules_[{it->second.job, it->second.choice}] = it->second.digest;
  }
}

void SchedulerLoop::PerformStart(const StartStage& start) {
  v1::ScheduleChoice choice = v1::SCHEDULE_BEST;
  if (start.fetch) {
    absl::MutexLock lock(&view_mutex_);
    auto fetch = fetches_.find(*start.fetch);
    if (fetch != fetches_.end()) choice = fetch->second.choice;
  }
  StageOrder order = MakeOrder(dispatcher_, ledger_, store_, start, choice);
  StageRow row;
  row.span.set_job(JobName(start.job.value));
  if (start.task)
    row.span.set_task(
        ledger_.data(start.job).tasks[static_cast<size_t>(start.task->value)].info.key());
  row.span.set_kind(start.kind);
  row.span.set_worker(start.slot.worker);
  row.span.set_slot(start.slot.slot);
  row.span.set_attempt_id(start.attempt.value);
  row.span.set_candidates(std::max(start.count, static_cast<int32_t>(start.candidates.size())));
  spans_[start.attempt] = std::move(row);
  StageRunner::Environment environment;
  environment.leases = leases_.get();
  environment.blobs = blobs_;
  environment.leased = [this](AttemptId attempt, const v1::Lease& lease) -> absl::Status {
    absl::MutexLock lock(&mutex_);
    uint64_t& seen = fences_[{lease.worker(), lease.slot()}];
    if (lease.fencing_token() < seen) {
      return absl::FailedPreconditionError(
          absl::StrCat("the tracker's fencing token ", lease.fencing_token(), " is older than ",
                       seen, " seen before; start heddle-tracker with the --state it had"));
    }
    seen = lease.fencing_token();
    leased_.emplace_back(attempt, lease);
    return absl::OkStatus();
  };
  environment.post = [this](Event event) { Post({std::move(event), {}, {}}); };
  environment.ended = [this](AttemptId attempt) {
    absl::MutexLock lock(&mutex_);
    ended_.push_back(attempt);
  };
  runners_[start.attempt] = std::make_unique<StageRunner>(std::move(order), std::move(environment));
}

void SchedulerLoop::OnLeased(AttemptId attempt, const v1::Lease& lease) {
  auto it = spans_.find(attempt);
  if (it == spans_.end()) return;
  it->second.lease_id = lease.id();
  it->second.span.set_start_unix_ns(absl::GetCurrentTimeNanos());
  writer_->Write({PutStage{it->second}});
}

void SchedulerLoop::EndSpan(const StageFinished& end, Batch* batch) {
  auto it = spans_.find(end.attempt);
  if (it == spans_.end()) return;
  StageRow row = std::move(it->second);
  spans_.erase(it);
  if (row.lease_id.empty()) return;  // never ran
  row.span.set_end_unix_ns(absl::GetCurrentTimeNanos());
  if (end.fault.kind != v1::FAULT_NONE) {
    row.span.mutable_fault()->set_kind(end.fault.kind);
    row.span.mutable_fault()->set_message(end.fault.message);
  }
  batch->push_back(PutStage{std::move(row)});
}

StageRunner* SchedulerLoop::Runner(AttemptId attempt) {
  auto it = runners_.find(attempt);
  return it == runners_.end() ? nullptr : it->second.get();
}

void SchedulerLoop::ReapRunners() {
  std::vector<AttemptId> ended;
  {
    absl::MutexLock lock(&mutex_);
    ended.swap(ended_);
  }
  for (AttemptId attempt : ended) runners_.erase(attempt);
}

}  // namespace heddle::scheduler
