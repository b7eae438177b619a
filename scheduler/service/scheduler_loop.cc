#include "scheduler/service/scheduler_loop.h"

#include <algorithm>

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "proto/grpc_util.h"
#include "scheduler/ledger/known_records.h"
#include "scheduler/ledger/stage_order.h"
#include "scheduler/ledger/why_waiting.h"

namespace heddle::scheduler {
namespace {

constexpr size_t kMaxInbox = 8192;  // streams wait when the core falls behind
constexpr absl::Duration kLongestSleep = absl::Seconds(1);  // times shown in reasons stay fresh
constexpr absl::Duration kFindAgain = absl::Seconds(1);     // after a read that failed

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
  reader_ = std::make_unique<RecordReader>(store_);
}

SchedulerLoop::~SchedulerLoop() {
  watch_.reset();
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  writer_->StopWaiting();
  if (thread_.joinable()) thread_.join();
  reader_.reset();
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
  HEDDLE_ASSIGN_OR_RETURN(const auto models, store_->AllTransferModels());
  ledger_.LoadTransferModels(models);
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
    std::optional<Found> found;
    {
      const absl::Time now = MonotonicNow();
      absl::Duration sleep = std::min(kLongestSleep, dispatcher_.NextWake(now) - now);
      if (!finds_.empty() && !finding_)
        sleep = std::min(sleep, std::max(absl::ZeroDuration(), find_after_ - now));
      if (ToPublish()) sleep = std::min(sleep, std::max(absl::ZeroDuration(), next_publish_ - now));
      auto work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !inbox_.empty() || !leased_.empty() || !ended_.empty() || found_ || store_problem_ ||
               stop_;
      };
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&work), sleep);
      if (stop_) return;
      inputs.swap(inbox_);
      leased.swap(leased_);
      found.swap(found_);
      if (store_problem_) inputs.push_front({StoreBlocked{*store_problem_}, {}, {}});
      store_problem_.reset();
    }
    for (const auto& [attempt, lease] : leased) OnLeased(attempt, lease);
    if (inputs.empty()) inputs.push_back({Tick{}, {}, {}});
    for (Input& input : inputs) Handle(std::move(input));
    if (found) TakeFound(*std::move(found));
    AskForRecords();
    ReapRunners();
    Publish(false);
  }
}

void SchedulerLoop::Handle(Input input) {
  if (AwaitsRecords(&input)) return;  // it comes again with them
  NoteEnd(input.event);
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

void SchedulerLoop::NoteEnd(const Event& event) {
  const auto* end = std::get_if<StageFinished>(&event);
  if (end == nullptr) return;
  auto stage = dispatcher_.live().find(end->attempt);
  if (stage == dispatcher_.live().end()) return;
  ledger_.AddWarnings(stage->second.job, end->warnings);
  const auto* compiled = std::get_if<Compiled>(&end->result);
  if (stage->second.fetch && compiled != nullptr) {
    absl::MutexLock lock(&view_mutex_);
    auto fetch = fetches_.find(*stage->second.fetch);
    if (fetch != fetches_.end()) fetch->second.digest = compiled->module_digest;
  }
}

// The key of a device that the job's candidates can be measured on, one that is free to use if
// there is any; nullopt: there is none.
std::optional<std::string> SchedulerLoop::DeviceKeyFor(JobId id) const {
  const std::string& pinned = dispatcher_.FindJob(id)->params.device_key;
  if (!pinned.empty()) return pinned;
  const WorkItem profile{id, v1::STAGE_PROFILE, TaskIndex{0}, std::nullopt, true};
  for (const bool usable : {true, false}) {
    for (const SlotInfo& slot : dispatcher_.slots()) {
      if (slot.usable == usable && dispatcher_.Suits(slot, profile)) return slot.device_key;
    }
  }
  return std::nullopt;
}

// The end of an import waits until it is known what the database has of its tasks.
bool SchedulerLoop::AwaitsRecords(Input* input) {
  const auto* end = std::get_if<StageFinished>(&input->event);
  if (end == nullptr || input->planned || !std::holds_alternative<Imported>(end->result))
    return false;
  const auto stage = dispatcher_.live().find(end->attempt);
  if (stage == dispatcher_.live().end()) return false;
  const JobId job = stage->second.job;
  auto waiting = std::make_shared<Input>(std::move(*input));
  waiting->planned = true;
  reader_->Read([this, waiting, params = dispatcher_.FindJob(job)->params,
                 device_key = DeviceKeyFor(job)](RecordStore* store) {
    PlanImport(store, params, device_key, &std::get<StageFinished>(waiting->event));
    Post(std::move(*waiting));
  });
  return true;
}

// Asks for the records of the next job that waits for them. Not while nothing can be written: what
// follows could not be remembered.
void SchedulerLoop::AskForRecords() {
  while (!finds_.empty() && !finding_) {
    if (!dispatcher_.store_problem().empty()) find_after_ = MonotonicNow() + kFindAgain;
    if (MonotonicNow() < find_after_) return;
    const FindRecords find = finds_.front();
    if (dispatcher_.FindJob(find.job)->final()) {
      finds_.pop_front();
      continue;
    }
    finding_ = true;
    const JobLedger::JobData& job = ledger_.data(find.job);
    Found found{{find.job, find.device_key, {}}, absl::OkStatus()};
    if (!job.row.job.spec().force()) {
      for (const JobLedger::TaskData& task : job.tasks)
        found.records.tasks.push_back(PlanOf(task.info));
    }
    reader_->Read([this, found, target = job.row.job.spec().target()](RecordStore* store) mutable {
      found.status =
          AddKnown(store, target, found.records.device_key, absl::MakeSpan(found.records.tasks));
      absl::MutexLock lock(&mutex_);
      found_ = std::move(found);
    });
  }
}

void SchedulerLoop::TakeFound(Found found) {
  finding_ = false;
  if (!found.status.ok()) {
    ledger_.AddWarnings(found.records.job, {absl::StrCat(kUnreadRecords, found.status.message())});
    find_after_ = MonotonicNow() + kFindAgain;
    return;
  }
  finds_.pop_front();
  if (!dispatcher_.FindJob(found.records.job)->final()) Handle({std::move(found.records), {}, {}});
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
  StageOrder order = MakeOrder(dispatcher_, ledger_, start, choice);
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
  environment.store = store_;
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
