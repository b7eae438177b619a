#include "scheduler/sim/world/scheduler_process.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "scheduler/ledger/known_records.h"
#include "scheduler/sim/scenario.h"

namespace heddle::sim {
namespace {

constexpr size_t kMaxPending = 64;    // batches; then they become durable at once
constexpr double kFlushChance = 0.3;  // after a step

}  // namespace

SchedulerProcess::SchedulerProcess(std::string policy, AttemptId first_attempt,
                                   const Agenda& agenda, RecordStore* store, Dice* dice,
                                   Plant* plant, std::function<void(const std::string&)> violation,
                                   int code_room)
    : policy_(std::move(policy)),
      pool_(absl::StrCat(kDefaultPool, " ", first_attempt.value)),
      agenda_(agenda),
      store_(store),
      dice_(dice),
      plant_(plant),
      violation_(std::move(violation)),
      code_room_(code_room),
      next_attempt_(first_attempt.value) {}

void SchedulerProcess::Boot(const std::function<bool(JobId)>& mine,
                            const std::function<void(const StoredJob&)>& loaded) {
  std::unique_ptr<Policy> policy = *MakePolicy(policy_);
  if (plant_->Is(Planted::kStarve)) policy = Starve(std::move(policy));
  DispatcherOptions options;
  if (plant_->Is(Planted::kChargeLosers)) options.losers_share = 1;
  if (plant_->Is(Planted::kTuneBeaten)) options.contest_clear = 100;
  if (code_room_ > 0) options.max_artifact_bytes = code_room_ * kCodeBytes;
  dispatcher_ = std::make_unique<Dispatcher>(std::move(policy), options);
  ledger_ = JobLedger();
  wake_ = absl::InfinitePast();
  if (store_ != nullptr) {
    // The virtual clock is not the store's, so the leases are of no use here; the epochs are.
    LeaderClaim claim;
    claim.pool = pool_;
    claim.scheduler = absl::StrCat("life ", epoch_ + 1);
    claim.lease = absl::Hours(1);
    claim.leader_has_ended = true;
    epoch_ = store_->Lead(claim)->epoch;
    auto jobs = store_->LoadJobs();
    for (StoredJob& job : *jobs) {
      if (!mine(JobId{job.row.id})) continue;
      loaded(job);
      dispatcher_->Restore(ledger_.Load(std::move(job), agenda_.now(), agenda_.now()));
    }
    ledger_.LoadTransferModels(*store_->AllTransferModels());
    ledger_.LoadMachines(*store_->Machines());
  }
  dispatcher_->SetNextAttempt(AttemptId{next_attempt_});
}

void SchedulerProcess::Crash() {
  if (pending_.empty()) return;
  pending_.resize(static_cast<size_t>(dice_->Below(static_cast<int>(pending_.size()) + 1)));
  Flush();
}

SchedulerProcess::Unwritten SchedulerProcess::Stop() {
  const auto written =
      static_cast<std::ptrdiff_t>(dice_->Below(static_cast<int>(pending_.size()) + 1));
  Unwritten late{epoch_, {pending_.begin() + written, pending_.end()}};
  pending_.resize(static_cast<size_t>(written));
  Flush();
  return late;
}

bool SchedulerProcess::WriteLate(const Unwritten& late) {
  if (late.batches.empty()) return false;
  store_->SetEpoch(pool_, plant_->Is(Planted::kLateWrite) ? 0 : late.epoch);
  const auto results = store_->Apply(late.batches);
  const bool refused = absl::IsAborted(results.status());
  if (refused == (late.epoch == epoch_))
    violation_(absl::StrCat("a write of epoch ", late.epoch,
                            refused ? " was refused" : " was taken", " in epoch ", epoch_));
  return refused;
}

void SchedulerProcess::AddKnownRecords(Event* event) const {
  auto* end = std::get_if<StageFinished>(event);
  auto* imported = end == nullptr ? nullptr : std::get_if<Imported>(&end->result);
  auto* planned = end == nullptr ? nullptr : std::get_if<Planned>(&end->result);
  if (imported == nullptr && planned == nullptr) return;
  const auto stage = dispatcher_->live().find(end->attempt);
  if (stage == dispatcher_->live().end()) return;
  const JobParams& params = dispatcher_->FindJob(stage->second.job)->params;
  if (planned != nullptr) {
    if (store_ != nullptr) PlanPlanned(store_, params, end);
    if (plant_->Is(Planted::kOverrun)) {
      for (v1::TaskInfo& task : *planned->plan.mutable_tasks()) task.clear_key();
    }
    return;
  }
  imported->known.clear();
  if (store_ != nullptr && !params.force) {
    std::vector<WorkloadId> tasks;
    for (const v1::TaskInfo& task : imported->model.tasks())
      tasks.push_back({task.key(), params.record_target, params.device_key});
    (void)FindKnown(store_, tasks, &imported->known);
  }
  if (!plant_->Is(Planted::kOverrun)) return;
  for (v1::TaskInfo& task : *imported->model.mutable_tasks()) task.clear_key();
}

Decisions SchedulerProcess::Step(const Event& event) {
  const auto* found = std::get_if<RecordsFound>(&event);
  const bool forget = found != nullptr && plant_->Is(Planted::kForgetFind);
  Decisions decisions = dispatcher_->Step(
      forget ? Event(RecordsFound{found->job, found->device_key, {}}) : event, agenda_.now());
  for (const Order& order : decisions.orders) {
    if (const auto* start = std::get_if<StartStage>(&order))
      next_attempt_ = std::max(next_attempt_, start->attempt.value + 1);
  }
  return decisions;
}

void SchedulerProcess::Keep(const Event& event, const std::vector<Change>& changes) {
  if (store_ == nullptr) return;
  Batch batch = ledger_.Absorb(*dispatcher_, event, changes, agenda_.now(), agenda_.now());
  if (!batch.empty()) pending_.push_back(std::move(batch));
  if (pending_.size() > kMaxPending || dice_->Likely(kFlushChance)) Flush();
}

void SchedulerProcess::Flush() {
  if (pending_.empty()) return;
  store_->SetEpoch(pool_, epoch_);
  const auto results = store_->Apply(pending_);
  if (!results.ok())
    return violation_(absl::StrCat("the store took no writes: ", results.status().message()));
  for (const absl::Status& status : *results) {
    if (!status.ok()) violation_(absl::StrCat("the store refused: ", status.message()));
  }
  pending_.clear();
}

absl::Time SchedulerProcess::NextWake() {
  const absl::Time wake = dispatcher_->NextWake(agenda_.now());
  if (wake == absl::InfiniteFuture() || wake == wake_) return absl::InfiniteFuture();
  return wake_ = wake;
}

RecordsFound SchedulerProcess::Find(const FindRecords& find) const {
  RecordsFound found{find.job, find.device_key, {}};
  if (store_ == nullptr) return found;
  const JobLedger::JobData& job = ledger_.data(find.job);
  const v1::JobSpec& spec = job.row.job.spec();
  if (spec.force()) return found;
  std::vector<WorkloadId> tasks;
  for (const JobLedger::TaskData& task : job.tasks)
    tasks.push_back({task.row.info.key(), spec.target(), find.device_key});
  (void)FindKnown(store_, tasks, &found.known);
  return found;
}

StageOrder SchedulerProcess::BeginOrder(const StartStage& start) const {
  return MakeOrder(*dispatcher_, ledger_, start, v1::SCHEDULE_BEST);
}

void SchedulerProcess::CompleteOrder(StageOrder* order) const {
  heddle::scheduler::CompleteOrder(FetchInputs(store_, order->reads), order);
}

v1::StageInput SchedulerProcess::ProfileInput(const FeedProfile& feed) const {
  return MakeProfileInput(ledger_, feed.job, feed.candidate);
}

}  // namespace heddle::sim
