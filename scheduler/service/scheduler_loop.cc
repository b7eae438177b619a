#include "scheduler/service/scheduler_loop.h"

#include <algorithm>

#include <google/protobuf/util/message_differencer.h>
#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/thread_priority.h"
#include "proto/access/channel.h"
#include "proto/grpc_util.h"
#include "proto/job_states.h"
#include "scheduler/ledger/known_records.h"
#include "scheduler/ledger/stage_order.h"
#include "scheduler/ledger/why_waiting.h"

namespace heddle::scheduler {
namespace {

// Streams wait when the core falls behind so many events, or bytes of what workers sent. The core takes
// all that is there, so it may hold as much again. One event more of each stage may be in the inbox.
constexpr size_t kMaxInbox = 8192;
constexpr int64_t kMaxInboxBytes = int64_t{128} << 20;
constexpr absl::Duration kLongestSleep = absl::Seconds(1);  // keeps the times in job reasons fresh
constexpr absl::Duration kFindAgain = absl::Seconds(1);     // pause after a read that failed
// A turn takes milliseconds, and there is one every kLongestSleep.
constexpr absl::Duration kLongestTurn = absl::Seconds(30);

// For what stages read and write in files and in the store; more would wait for the same disk.
constexpr int kStageThreads = 8, kStarterThreads = 4;
constexpr int64_t kRetractGroup = 200;  // records that are retracted in one transaction
// After this time a read is answered even if it may be a little old.
constexpr absl::Duration kFlushLimit = absl::Seconds(2);
// After this time a client is told that the store does not take the job.
constexpr absl::Duration kDurableLimit = absl::Seconds(30);
constexpr absl::Duration kLook = absl::Milliseconds(100);  // between looks for what ends a wait

// About what is large in an event.
int64_t BytesOf(const Event& event) {
  if (const auto* built = std::get_if<CandidateBuilt>(&event)) return built->artifact_bytes;
  const auto* end = std::get_if<StageFinished>(&event);
  if (end == nullptr) return 0;
  if (const auto* proposed = std::get_if<Proposed>(&end->result)) {
    size_t bytes = proposed->search_state.size();
    for (const v1::Candidate& candidate : proposed->candidates) bytes += candidate.trace().size();
    return static_cast<int64_t>(bytes);
  }
  if (const auto* updated = std::get_if<Updated>(&end->result))
    return static_cast<int64_t>(updated->search_state.size());
  if (const auto* imported = std::get_if<Imported>(&end->result))
    return static_cast<int64_t>(imported->model.ByteSizeLong());
  return 0;
}

const char* StateName(v1::JobState state) {
  return state == v1::JOB_DONE ? "done" : state == v1::JOB_FAILED ? "failed" : "cancelled";
}

// FailedPrecondition says how the job ended.
absl::Status CheckUnfinished(const v1::Job& job) {
  if (!IsFinal(job.state())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job ", job.id(), " is over already (", StateName(job.state()), ")"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SchedulerLoop>> SchedulerLoop::Load(Options options,
                                                                   RecordStore* store,
                                                                   BlobStore* blobs) {
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<Policy> policy, MakePolicy(options.policy));
  std::unique_ptr<SchedulerLoop> loop(
      new SchedulerLoop(std::move(options), store, blobs, std::move(policy)));
  HEDDLE_RETURN_IF_ERROR(loop->LoadJobs());
  return loop;
}

void SchedulerLoop::Begin() {
  log_.Begin(dispatcher_);
  traces_.Begin(dispatcher_);
  metrics_.Begin(dispatcher_);
  thread_ = std::thread([this] { Run(); });
  watch_ = std::make_unique<TrackerWatch>(
      trackers_.in_use(), [this] { return absl::StrCat("the tracker at ", trackers_.address()); },
      leases_.get(), [this](SlotsChanged event) { Post({std::move(event)}); });
  trackers_.Begin([this] { watch_->Restart(); });
}

SchedulerLoop::SchedulerLoop(Options options, RecordStore* store, BlobStore* blobs,
                             std::unique_ptr<Policy> policy)
    : options_(std::move(options)),
      store_(store),
      blobs_(blobs),
      trackers_({.addresses = absl::StrSplit(options_.tracker_address, ','),
                 .credentials = options_.credentials,
                 .holder = options_.holder,
                 .epoch = options_.epoch,
                 .leads = [this] { return leads(); }}),
      dispatcher_(std::move(policy), {.max_artifact_bytes = options_.max_artifact_bytes}),
      history_(store_),
      leases_(std::make_unique<LeaseKeeper>(trackers_.in_use(), options_.holder, options_.lease)) {
  StoreWriter::Hooks hooks;
  // This does not go through the inbox, which may be full because the core waits for the writer.
  hooks.blocked = [this](const absl::Status& problem) {
    const std::string reason(problem.message());
    // New snapshots wait for the store, so the old ones have to tell why nothing happens.
    if (!problem.ok()) snapshots_.Explain(reason);
    absl::MutexLock lock(&mutex_);
    store_problem_ = reason;
  };
  // No stage is started with an old token (see PerformStart), so only a race leads here.
  hooks.rejected = [this](const std::string& reason) {
    metrics_.RecordRefused();
    spdlog::warn("a record was refused: {}", reason);
  };
  hooks.committed = [this](absl::Duration took) { metrics_.Committed(took); };
  hooks.fatal = options_.fatal;
  writer_ = std::make_unique<StoreWriter>(store_, std::move(hooks));
  reader_ = std::make_unique<RecordReader>(
      store_, RecordReader::Priority::kBeforeOthers);  // the dispatcher waits for it
}

SchedulerLoop::~SchedulerLoop() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  // First of all, since the watch may wait for a place in the inbox, and the loop for the database.
  writer_->StopWaiting();
  trackers_.End();
  watch_.reset();
  if (thread_.joinable()) thread_.join();
  reader_.reset();
  for (auto& [id, runner] : runners_) runner->Cancel();
  ResumeReading();
  runners_.clear();
  stage_starters_.reset();
  stage_pool_.reset();
  writer_.reset();
}

absl::Status SchedulerLoop::LoadJobs() {
  const absl::Time now = MonotonicNow();
  HEDDLE_ASSIGN_OR_RETURN(std::vector<StoredJob> jobs,
                          store_->LoadJobs({.which = JobSelection::kUnfinished}));
  for (StoredJob& stored : jobs) {
    const JobId id{stored.row.id};
    dispatcher_.Restore(ledger_.Load(std::move(stored), now, absl::Now()));
    Mark(id);
  }
  HEDDLE_ASSIGN_OR_RETURN(const int64_t last_job, store_->LastJob());
  next_job_ = last_job + 1;
  HEDDLE_ASSIGN_OR_RETURN(const auto models, store_->AllTransferModels());
  ledger_.LoadTransferModels(models);
  HEDDLE_ASSIGN_OR_RETURN(auto machines, store_->Machines());
  ledger_.LoadMachines(std::move(machines));
  HEDDLE_ASSIGN_OR_RETURN(int64_t last, store_->LastAttempt());
  dispatcher_.SetNextAttempt(AttemptId{last + 1});
  first_open_attempt_ = next_attempt_ = last + 1;
  HEDDLE_ASSIGN_OR_RETURN(auto fences, store_->Fences());
  {
    absl::MutexLock lock(&mutex_);
    fences_ = std::move(fences);
    for (const auto& [slot, token] : fences_) trackers_.SawToken(token);
  }
  // Stages of the previous process. Their slots become free when the leases are released.
  HEDDLE_ASSIGN_OR_RETURN(std::vector<StageRow> unfinished, store_->UnfinishedStages());
  Batch batch;
  std::vector<std::string> leases;
  for (StageRow& row : unfinished) {
    leases.push_back(row.lease_id);
    row.span.set_end_unix_ns(absl::GetCurrentTimeNanos());
    row.span.mutable_fault()->set_kind(v1::FAULT_INFRASTRUCTURE);
    row.span.mutable_fault()->set_message("the scheduler was restarted");
    batch.push_back(PutStage{row});
  }
  leases_->ReleaseLater(leases);
  if (!batch.empty()) writer_->Write(std::move(batch));
  snapshots_.Put(TakeViews(true));  // all of it comes from the store
  return absl::OkStatus();
}

// ---- the core thread ----

bool SchedulerLoop::Post(Input input) {
  auto room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return (inbox_.size() < kMaxInbox && inbox_bytes_ < kMaxInboxBytes) || stop_;
  };
  const int64_t bytes = BytesOf(input.event);
  absl::MutexLock lock(&mutex_, absl::Condition(&room));
  if (stop_) return false;
  inbox_bytes_ += bytes;
  inbox_.push_back(std::move(input));
  return true;
}

bool SchedulerLoop::Take(Input input) {
  const int64_t bytes = BytesOf(input.event);
  absl::MutexLock lock(&mutex_);
  if (stop_) return true;
  inbox_bytes_ += bytes;
  inbox_.push_back(std::move(input));
  return inbox_.size() < kMaxInbox && inbox_bytes_ < kMaxInboxBytes;
}

void SchedulerLoop::ResumeReading() {
  std::vector<std::function<void()>> waiting;
  {
    absl::MutexLock lock(&mutex_);
    waiting.swap(awaiting_room_);
  }
  for (std::function<void()>& resume : waiting) stage_pool_->Add(std::move(resume));
}

void SchedulerLoop::Run() {
  // Calls of users must not hold up decisions, nor the stages' own work.
  if (!RunBeforeOthers())
    spdlog::debug(
        "the dispatcher runs with usual priority (root or LimitNICE=-5 lets it go first)");
  stage_starters_ = std::make_unique<ThreadPool>(kStarterThreads);
  stage_pool_ = std::make_unique<ThreadPool>(kStageThreads);
  while (true) {
    std::deque<Input> inputs;
    std::deque<std::pair<AttemptId, v1::Lease>> leased;
    std::optional<Found> found;
    {
      const absl::Time now = MonotonicNow();
      absl::Duration sleep = std::min(kLongestSleep, dispatcher_.NextWake(now) - now);
      if (!finds_.empty() && !finding_)
        sleep = std::min(sleep, std::max(absl::ZeroDuration(), find_after_ - now));
      auto work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !inbox_.empty() || !leased_.empty() || !ended_.empty() || !awaiting_room_.empty() ||
               found_ || store_problem_ || shown_ || stop_;
      };
      absl::MutexLock lock(&mutex_);
      if (!to_publish_.empty() && unshown_ == 0)
        sleep = std::min(sleep, std::max(absl::ZeroDuration(), to_publish_.next() - now));
      mutex_.AwaitWithTimeout(absl::Condition(&work), sleep);
      if (stop_) return;
      last_turn_ = MonotonicNow();
      shown_ = false;
      inputs.swap(inbox_);
      inbox_bytes_ = 0;
      leased.swap(leased_);
      found.swap(found_);
      if (store_problem_) inputs.push_front({StoreBlocked{*store_problem_}});
      store_problem_.reset();
    }
    while (!leads()) {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&stop_), kLook)) return;
    }
    for (const auto& [attempt, lease] : leased) OnLeased(attempt, lease);
    ResumeReading();
    if (inputs.empty()) inputs.push_back({Tick{}});
    for (Input& input : inputs) Handle(std::move(input));
    if (found) TakeFound(*std::move(found));
    AskForRecords();
    ReapRunners();
    DropFinished();
    Publish(false);
    metrics_.Refresh(dispatcher_, MonotonicNow());
  }
}

void SchedulerLoop::Handle(Input input) {
  if (AwaitsRecords(&input)) return;  // it is posted again with its records
  NoteEnd(input.event);
  const absl::Time now = MonotonicNow();
  if (input.recalled && !ledger_.Has(JobId{input.recalled->row.id})) {
    dispatcher_.Restore(ledger_.Load(*input.recalled, now, absl::Now()));
    Mark(JobId{input.recalled->row.id});
    finished_.emplace_back(now, JobId{input.recalled->row.id});
  }
  const std::optional<JobId> subject = SubjectOf(input.event);
  const Decisions decisions = dispatcher_.Step(input.event, now);
  const auto warn = [&](const DeadlineEstimate& estimate) {
    const Job& job = *dispatcher_.FindJob(estimate.job);
    ledger_.SetDeadlineWarning(job.id, DescribeEstimate(job, estimate, now, absl::Now()));
  };
  std::vector<DeadlineEstimate> of_new_jobs;  // the ledger gets these jobs with the event
  for (const Change& change : decisions.changes) {
    if (const auto* find = std::get_if<FindRecords>(&change)) finds_.push_back(*find);
    const auto* estimate = std::get_if<DeadlineEstimate>(&change);
    if (estimate == nullptr) continue;
    if (ledger_.Has(estimate->job)) {
      warn(*estimate);
    } else {
      of_new_jobs.push_back(*estimate);
    }
  }
  Batch batch = ledger_.Absorb(dispatcher_, input.event, decisions.changes, now, absl::Now());
  for (const DeadlineEstimate& estimate : of_new_jobs) warn(estimate);
  if (const auto* end = std::get_if<StageFinished>(&input.event)) EndSpan(*end, &batch);
  if (!batch.empty()) writer_->Write(std::move(batch));
  NoteChanges(input.event, subject, decisions);
  for (const Order& order : decisions.orders) Perform(order);
  log_.Observe(input.event, decisions, dispatcher_, now);
  traces_.Observe(input.event, decisions, dispatcher_, ledger_);
  metrics_.Observe(input.event, decisions, dispatcher_, MonotonicNow() - now, now);
  if (const auto* slots = std::get_if<SlotsChanged>(&input.event)) {
    absl::MutexLock lock(&mutex_);
    tracker_problem_ = slots->problem;
  }
  if (input.shown) Publish(true, std::move(input.shown));
}

void SchedulerLoop::NoteEnd(const Event& event) {
  const auto* end = std::get_if<StageFinished>(&event);
  if (end == nullptr) return;
  auto stage = dispatcher_.live().find(end->attempt);
  if (stage == dispatcher_.live().end()) return;
  ledger_.AddWarnings(stage->second.job, end->warnings);
  const auto* compiled = std::get_if<Compiled>(&end->result);
  if (stage->second.fetch && compiled != nullptr)
    modules_.SetDigest(*stage->second.fetch, compiled->module_digest);
}

// Holds the end of an import or a plan stage back until the known records of its tasks are read. Returns
// true if it does.
bool SchedulerLoop::AwaitsRecords(Input* input) {
  const auto* end = std::get_if<StageFinished>(&input->event);
  if (end == nullptr || input->planned) return false;
  const bool import = std::holds_alternative<Imported>(end->result);
  if (!import && !std::holds_alternative<Planned>(end->result)) return false;
  const auto stage = dispatcher_.live().find(end->attempt);
  if (stage == dispatcher_.live().end()) return false;
  const JobId job = stage->second.job;
  auto waiting = std::make_shared<Input>(std::move(*input));
  waiting->planned = true;
  reader_->Read([this, waiting, import, params = dispatcher_.FindJob(job)->params,
                 device_key = DeviceKeyFor(dispatcher_, job)](RecordStore* store) {
    StageFinished& held = std::get<StageFinished>(waiting->event);
    if (import) {
      PlanImport(store, params, device_key, &held);
    } else {
      PlanPlanned(store, params, &held);
    }
    Post(std::move(*waiting));
  });
  return true;
}

// Reads the records for the next job that waits for them. Not while the store takes no writes,
// since what follows could not be remembered.
void SchedulerLoop::AskForRecords() {
  while (!finds_.empty() && !finding_) {
    if (!dispatcher_.store_problem().empty()) find_after_ = MonotonicNow() + kFindAgain;
    if (MonotonicNow() < find_after_) return;
    const FindRecords find = finds_.front();
    if (IsOver(find.job)) {
      finds_.pop_front();
      continue;
    }
    finding_ = true;
    const JobLedger::JobData& job = ledger_.data(find.job);
    Found found{{find.job, find.device_key, {}}, absl::OkStatus()};
    std::vector<WorkloadId> tasks;
    if (!job.row.job.spec().force()) {
      for (const JobLedger::TaskData& task : job.tasks)
        tasks.push_back({task.row.info.key(), job.row.job.spec().target(), find.device_key});
    }
    reader_->Read([this, found, tasks](RecordStore* store) mutable {
      found.status = FindKnown(store, tasks, &found.records.known);
      absl::MutexLock lock(&mutex_);
      found_ = std::move(found);
    });
  }
}

void SchedulerLoop::TakeFound(Found found) {
  finding_ = false;
  if (IsOver(found.records.job)) {
    finds_.pop_front();
    return;
  }
  if (!found.status.ok()) {
    ledger_.AddWarnings(found.records.job, {absl::StrCat(kUnreadRecords, found.status.message())});
    find_after_ = MonotonicNow() + kFindAgain;
    return;
  }
  finds_.pop_front();
  Handle({std::move(found.records)});
}

bool SchedulerLoop::IsOver(JobId job) const {
  const Job* found = dispatcher_.FindJob(job);
  return found == nullptr || found->final();
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
    modules_.End(fetch->fetch, fetch->fault);
  }
}

void SchedulerLoop::PerformStart(const StartStage& start) {
  const v1::ScheduleChoice choice =
      start.fetch ? modules_.ChoiceOf(*start.fetch) : v1::SCHEDULE_BEST;
  StageOrder order = MakeOrder(dispatcher_, ledger_, start, choice);
  StageRow row;
  row.span.set_job(JobName(start.job.value));
  if (start.task)
    row.span.set_task(
        ledger_.data(start.job).tasks[static_cast<size_t>(start.task->value)].row.info.key());
  row.span.set_kind(start.kind);
  row.span.set_worker(start.slot.worker);
  row.span.set_slot(start.slot.slot);
  row.span.set_attempt_id(start.attempt.value);
  row.span.set_candidates(std::max(start.count, static_cast<int32_t>(start.candidates.size())));
  spans_[start.attempt] = std::move(row);
  next_attempt_ = start.attempt.value + 1;
  StageRunner::Environment environment;
  environment.starters = stage_starters_.get();
  environment.pool = stage_pool_.get();
  environment.leases = leases_.get();
  environment.store = store_;
  environment.blobs = blobs_;
  environment.credentials = &options_.credentials;
  environment.channels = &channels_;
  environment.fits = &fits_;
  environment.flush = [this] { writer_->Flush(kFlushLimit); };
  environment.leased = [this](AttemptId attempt, const v1::Lease& lease) -> absl::Status {
    absl::MutexLock lock(&mutex_);
    uint64_t& seen = fences_[{lease.worker(), lease.slot()}];
    if (lease.fencing_token() < seen) {
      return absl::FailedPreconditionError(
          absl::StrCat("the tracker's fencing token ", lease.fencing_token(), " is older than ",
                       seen, " seen before; start heddle-tracker with the --state it had"));
    }
    seen = lease.fencing_token();
    trackers_.SawToken(seen);
    leased_.emplace_back(attempt, lease);
    return absl::OkStatus();
  };
  environment.post = [this](Event event) { return Take({std::move(event)}); };
  environment.await_room = [this](std::function<void()> resume) {
    absl::MutexLock lock(&mutex_);
    if (stop_) return stage_pool_->Add(std::move(resume));
    awaiting_room_.push_back(std::move(resume));
  };
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
  const std::string result = metrics_.StageEnded(row, end, MonotonicNow());
  log_.StageEnded(row, end, result);
  if (row.lease_id.empty()) return;  // the stage never ran
  row.span.set_end_unix_ns(absl::GetCurrentTimeNanos());
  if (end.fault.kind != v1::FAULT_NONE) {
    row.span.mutable_fault()->set_kind(end.fault.kind);
    row.span.mutable_fault()->set_message(end.fault.message);
  }
  if (const JobId job{ParseJobName(row.span.job())}; ledger_.Has(job))
    traces_.StageEnded(row, ledger_.data(job).row.job, result);
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

void SchedulerLoop::DropFinished() {
  const absl::Time ended_before = MonotonicNow() - options_.keep_finished;
  if (finished_.empty() || finished_.front().first > ended_before) return;
  // The store may not have what it is about to be asked for.
  if (!dispatcher_.store_problem().empty()) return;
  std::vector<JobId> dropped;
  while (!finished_.empty() && finished_.front().first <= ended_before) {
    const JobId id = finished_.front().second;
    finished_.pop_front();
    if (!ledger_.Has(id)) continue;
    // A job that is not shown as ended, or has a stage that runs, has its turn later.
    if (snapshots_.IsOver(id) && dispatcher_.Forget(id)) {
      ledger_.Drop(id);
      dropped.push_back(id);
    } else {
      finished_.emplace_back(MonotonicNow(), id);
    }
  }
  if (dropped.empty()) return;
  // After what still waits to be shown of them, which is on disk by then.
  writer_->Write({}, [this, dropped = std::move(dropped)] {
    for (const JobId id : dropped) snapshots_.Drop(id);
  });
}

// ---- snapshots ----

// The job that the event is about, determined before the event is processed.
std::optional<JobId> SchedulerLoop::SubjectOf(const Event& event) const {
  return std::visit(
      [this](const auto& e) -> std::optional<JobId> {
        if constexpr (requires { e.attempt; }) {
          const auto stage = dispatcher_.live().find(e.attempt);
          if (stage != dispatcher_.live().end()) return stage->second.job;
        } else if constexpr (requires { e.job; }) {
          return e.job;
        }
        return std::nullopt;
      },
      event);
}

void SchedulerLoop::Mark(JobId id) {
  const Job* job = dispatcher_.FindJob(id);
  to_publish_.Mark(id, job == nullptr || job->final());
}

void SchedulerLoop::NoteChanges(const Event& event, std::optional<JobId> subject,
                                const Decisions& decisions) {
  const auto& [changes, orders] = decisions;
  if (std::holds_alternative<Tick>(event) && changes.empty() && orders.empty()) return;
  const absl::Time now = MonotonicNow();
  auto count = [&](JobId job, int by) {
    const int running = running_[job] += by;
    ledger_.CountBusy(job, running > 0, now);
    if (running == 0) running_.erase(job);
  };
  if (subject) {
    Mark(*subject);
    if (std::holds_alternative<StageFinished>(event)) count(*subject, -1);
  }
  if (const auto* retracted = std::get_if<RecordsRetracted>(&event)) {
    for (const RecordsRetracted::Record& record : retracted->records) {
      if (ledger_.Has(record.job)) Mark(record.job);
    }
  }
  auto mark = [this](const auto& decision) {
    if constexpr (requires { decision.job; }) Mark(decision.job);
  };
  for (const Change& change : changes) {
    std::visit(mark, change);
    const auto* changed = std::get_if<JobChanged>(&change);
    if (changed != nullptr && dispatcher_.FindJob(changed->job)->final())
      finished_.emplace_back(now, changed->job);
  }
  for (const Order& order : orders) {
    if (const auto* start = std::get_if<StartStage>(&order)) count(start->job, 1);
    std::visit(mark, order);
  }
  to_publish_.MarkOthers();
}

JobSnapshots::Views SchedulerLoop::TakeViews(bool at_once) {
  const absl::Time now = MonotonicNow();
  JobSnapshots::Views views;
  for (JobId id : to_publish_.Take(now, at_once)) {
    if (ledger_.Has(id))
      views.emplace_back(id, std::make_shared<const v1::Job>(ledger_.View(dispatcher_, id, now)));
  }
  return views;
}

// Shows users the jobs that need a new snapshot, and calls `shown`, once all that was written until
// now is on disk. Unless that is wanted at once, nothing is added while other snapshots still wait:
// while the store takes no writes they must not pile up.
void SchedulerLoop::Publish(bool at_once, std::function<void()> shown) {
  if (!at_once) {
    absl::MutexLock lock(&mutex_);
    if (unshown_ > 0) return;
  }
  auto views = std::make_shared<JobSnapshots::Views>(TakeViews(at_once));
  if (views->empty() && !shown) return;
  {
    absl::MutexLock lock(&mutex_);
    ++unshown_;
  }
  const int64_t open = spans_.empty() ? next_attempt_ : spans_.begin()->first.value;
  writer_->Write({}, [this, views, open, shown = std::move(shown)] {
    first_open_attempt_ = open;
    snapshots_.Put(std::move(*views));
    {
      absl::MutexLock lock(&mutex_);
      --unshown_;
      shown_ = true;
    }
    if (shown) shown();
  });
}

// ---- the state of the service, for whoever watches it ----

absl::Status SchedulerLoop::Live() const {
  // While the store takes no writes, the loop may wait for it, and a restart would not help.
  if (!writer_->problem().ok()) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  const absl::Duration silent = MonotonicNow() - last_turn_;
  if (silent < kLongestTurn) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "no decision for ", absl::FormatDuration(absl::Trunc(silent, absl::Seconds(1)))));
}

absl::Status SchedulerLoop::Ready() const {
  HEDDLE_RETURN_IF_ERROR(writer_->problem());
  absl::MutexLock lock(&mutex_);
  return tracker_problem_.empty() ? absl::OkStatus() : absl::UnavailableError(tracker_problem_);
}

// ---- calls of users, on the threads of the gRPC server ----

// Waits until the event is durable and visible, so that whoever asks for the job next sees its
// effect. `held` is let go at that time, also if nobody waits any more.
absl::Status SchedulerLoop::CallAndWait(Input input, const std::string& what,
                                        std::shared_ptr<void> held) {
  auto shown = std::make_shared<absl::Notification>();
  input.shown = [shown, held = std::move(held)] { shown->Notify(); };
  const absl::Status ending = absl::UnavailableError("the scheduler is shutting down");
  if (!Post(std::move(input))) return ending;
  const absl::Time limit = MonotonicNow() + kDurableLimit;
  while (!shown->WaitForNotificationWithTimeout(kLook)) {
    const absl::Status problem = writer_->problem();
    if (absl::IsResourceExhausted(problem))
      return absl::ResourceExhaustedError(absl::StrCat(problem.message(), "; ", what));
    absl::MutexLock lock(&mutex_);
    if (stop_) return ending;
    if (MonotonicNow() < limit) continue;
    return absl::UnavailableError(
        absl::StrCat("the database does not take writes now; ", what, " (heddle jobs tells)"));
  }
  return absl::OkStatus();
}

// Waits until no other submission with this key is under way, and keeps others off until the result
// is let go.
absl::StatusOr<std::shared_ptr<void>> SchedulerLoop::ClaimKey(const std::string& user,
                                                              const std::string& key) {
  const std::pair<std::string, std::string> claim(user, key);
  auto free = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return claimed_keys_.count(claim) == 0 || stop_;
  };
  absl::MutexLock lock(&mutex_);
  const bool there = mutex_.AwaitWithTimeout(absl::Condition(&free), kDurableLimit);
  if (stop_) return absl::UnavailableError("the scheduler is shutting down");
  if (!there)
    return absl::UnavailableError("the same submission is still under way; send it again later");
  claimed_keys_.insert(claim);
  return std::shared_ptr<void>(this, [this, claim](void*) {
    absl::MutexLock unclaim(&mutex_);
    claimed_keys_.erase(claim);
  });
}

absl::StatusOr<std::string> SchedulerLoop::Submit(const v1::JobSpec& spec,
                                                  const ModelDigests& model,
                                                  const std::string& submit_key) {
  HEDDLE_ASSIGN_OR_RETURN(JobParams params,
                          JobLedger::ParamsFrom(spec, MonotonicNow(), absl::Now()));
  std::shared_ptr<void> claim;
  if (!submit_key.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(claim, ClaimKey(spec.user(), submit_key));
    HEDDLE_ASSIGN_OR_RETURN(const std::optional<JobRow> known,
                            store_->FindSubmitted(spec.user(), submit_key));
    if (known) {
      v1::JobSpec known_spec = known->job.spec();
      known_spec.set_priority(spec.priority());  // it may have been changed since
      // A job that was collected does not know its model any more.
      const bool same =
          google::protobuf::util::MessageDifferencer::Equals(known_spec, spec) &&
          (known->job.collected_unix_ns() != 0 ||
           (known->job.model_digest() == model.file && known->job.parts_digest() == model.parts));
      if (same) return known->job.id();
      return absl::AlreadyExistsError(
          absl::StrCat("job ", known->job.id(),
                       " was submitted with the same submit_key and another spec or model; take a "
                       "new key for a new job"));
    }
  }
  HEDDLE_RETURN_IF_ERROR(writer_->problem());
  const JobId id{next_job_++};
  JobSubmitted submitted{id, params};
  submitted.submit_key = submit_key;
  submitted.description.set_id(JobName(id.value));
  *submitted.description.mutable_spec() = spec;
  submitted.description.set_state(v1::JOB_IMPORTING);
  submitted.description.set_model_digest(model.file);
  submitted.description.set_parts_digest(model.parts);
  submitted.description.set_created_unix_ns(absl::GetCurrentTimeNanos());
  HEDDLE_RETURN_IF_ERROR(CallAndWait(
      {std::move(submitted)}, absl::StrCat("job ", JobName(id.value), " may or may not be there"),
      std::move(claim)));
  return JobName(id.value);
}

absl::StatusOr<std::shared_ptr<const v1::Job>> SchedulerLoop::SetPriority(const std::string& job,
                                                                          int priority) {
  HEDDLE_ASSIGN_OR_RETURN(JobSnapshots::Snapshot now, snapshots_.Get(job));
  HEDDLE_RETURN_IF_ERROR(CheckUnfinished(*now.job));
  v1::JobSpec spec = now.job->spec();
  spec.set_priority(priority);
  HEDDLE_RETURN_IF_ERROR(JobLedger::ParamsFrom(spec, MonotonicNow(), absl::Now()).status());
  HEDDLE_RETURN_IF_ERROR(CallAndWait({PriorityRequested{JobId{ParseJobName(job)}, priority}},
                                     absl::StrCat("job ", job, " may forget this at a restart")));
  HEDDLE_ASSIGN_OR_RETURN(now, snapshots_.Get(job));
  return now.job;
}

absl::StatusOr<std::shared_ptr<const v1::Job>> SchedulerLoop::Act(Action action,
                                                                  const std::string& job,
                                                                  const std::string& reason) {
  HEDDLE_ASSIGN_OR_RETURN(JobSnapshots::Snapshot snapshot, snapshots_.Get(job));
  const bool again = action == Action::kCancel && snapshot.job->state() == v1::JOB_CANCELLED;
  if (!again) HEDDLE_RETURN_IF_ERROR(CheckUnfinished(*snapshot.job));
  const JobId id{ParseJobName(job)};
  Event event = PauseRequested{id, reason};
  if (action == Action::kResume) event = ResumeRequested{id};
  if (action == Action::kCancel) event = CancelRequested{id, reason};
  HEDDLE_RETURN_IF_ERROR(
      CallAndWait({std::move(event)}, absl::StrCat("job ", job, " may forget this at a restart")));
  HEDDLE_ASSIGN_OR_RETURN(snapshot, snapshots_.Get(job));
  return snapshot.job;
}

absl::StatusOr<std::string> SchedulerLoop::Module(const std::string& job, v1::ScheduleChoice choice,
                                                  const std::function<bool()>& gone) {
  HEDDLE_ASSIGN_OR_RETURN(JobSnapshots::Snapshot snapshot, snapshots_.Get(job));
  if (snapshot.job->collected_unix_ns() != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job, " was collected: its model and module are gone; submit the model again"));
  }
  // A module that is being compared may change yet.
  if (choice == v1::SCHEDULE_BEST && snapshot.job->state() == v1::JOB_DONE)
    return snapshot.job->module_digest();
  if (snapshot.job->state() == v1::JOB_FAILED) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job, " has failed: ", snapshot.job->reason()));
  }
  if (snapshot.job->inputs().empty())
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job, " is not imported yet (", snapshot.job->reason(), "); fetch again later"));
  const JobId id{ParseJobName(job)};
  const FetchId fetch{next_fetch_++};
  if (const auto made = modules_.Begin(fetch, id, choice)) return *made;
  Input input{FetchRequested{fetch, id}};
  // The core may have dropped it, or does so before the request gets there.
  if (snapshot.job->finished_unix_ns() != 0) {
    absl::StatusOr<std::vector<StoredJob>> stored =
        store_->LoadJobs({.which = JobSelection::kFinished, .before = id.value + 1, .limit = 1});
    if (!stored.ok()) {
      modules_.Forget(fetch);
      return stored.status();
    }
    if (!stored->empty())
      input.recalled = std::make_shared<const StoredJob>(std::move(stored->front()));
  }
  std::optional<ModuleRequests::Result> result;
  bool posted = Post(std::move(input));
  while (posted && !result && !gone()) {
    result = modules_.Wait(fetch, absl::Milliseconds(200));
    absl::MutexLock lock(&mutex_);
    if (stop_ && !result) posted = false;
  }
  modules_.Forget(fetch);
  if (!posted) return absl::UnavailableError("the scheduler is shutting down");
  if (!result) {
    Post({FetchAbandoned{fetch}});
    return absl::CancelledError("the caller left");
  }
  if (result->fault.kind == v1::FAULT_USER)
    return absl::FailedPreconditionError(result->fault.message);
  if (result->digest.empty())
    return absl::UnavailableError(
        absl::StrCat("compiling the module failed: ", result->fault.message));
  return result->digest;
}

absl::StatusOr<int64_t> SchedulerLoop::Retract(v1::RecordQuery query,
                                               const v1::Retraction& retraction,
                                               const ReadPage& read_later,
                                               const std::function<bool()>& gone) {
  query.clear_best_only();
  query.clear_with_workload();
  query.clear_retracted();
  int64_t count = 0;
  std::optional<RecordPlace> place;
  do {
    if (gone()) return absl::CancelledError("the caller left; what is retracted stays so");
    HEDDLE_ASSIGN_OR_RETURN(const RecordPage page,
                            place ? read_later(query, place, kRetractGroup)
                                  : store_->QueryPage(query, place, kRetractGroup));
    RecordsRetracted event{{}, retraction};
    for (const v1::Record& record : page.records) {
      event.records.push_back({record.id(), JobId{ParseJobName(record.job())},
                               CandidateId{record.candidate()}, record.workload_key(),
                               record.target(), record.device_key()});
    }
    if (!page.records.empty()) {
      HEDDLE_RETURN_IF_ERROR(
          CallAndWait({std::move(event), {}, {}}, "retract again, what is retracted stays so"));
      for (const v1::Record& record : page.records) {
        if (!record.job().empty()) history_.Forget(JobId{ParseJobName(record.job())});
      }
    }
    count += static_cast<int64_t>(page.records.size());
    place = page.last;
  } while (place);
  return count;
}

absl::Status SchedulerLoop::MarkCollected(JobId job) {
  HEDDLE_RETURN_IF_ERROR(CallAndWait({JobCollected{job, absl::GetCurrentTimeNanos()}},
                                     "collect again, what is collected stays so"));
  history_.Forget(job);
  modules_.Drop(job);
  return absl::OkStatus();
}

void SchedulerLoop::Flush() { writer_->Flush(kFlushLimit); }

}  // namespace heddle::scheduler
