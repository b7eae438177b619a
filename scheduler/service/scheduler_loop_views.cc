// What the executive shows of jobs: which are to be shown anew after an event, and their snapshots.
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>

#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "scheduler/service/scheduler_loop.h"

namespace heddle::scheduler {
namespace {

// WatchJob promises at most ten a second anyway.
constexpr absl::Duration kPublishEvery = absl::Milliseconds(50);
// Jobs that nothing happened to, so many each time: what thousands wait for is not looked at with
// every event of one.
constexpr size_t kOthersAtATime = 32;

}  // namespace

// The job that the event is about, before it is taken in.
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

void SchedulerLoop::MarkDirty(JobId id) {
  dirty_.insert(id);
  const Job* job = dispatcher_.FindJob(id);
  if (job == nullptr || job->final()) {
    unfinished_.erase(id);
  } else {
    unfinished_.insert(id);
  }
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
    MarkDirty(*subject);
    if (std::holds_alternative<StageFinished>(event)) count(*subject, -1);
  }
  auto mark = [this](const auto& decision) {
    if constexpr (requires { decision.job; }) MarkDirty(decision.job);
  };
  for (const Change& change : changes) std::visit(mark, change);
  for (const Order& order : orders) {
    if (const auto* start = std::get_if<StartStage>(&order)) count(start->job, 1);
    std::visit(mark, order);
  }
  others_due_ = unfinished_.size();
}

bool SchedulerLoop::ToPublish() const { return !dirty_.empty() || others_due_ > 0; }

void SchedulerLoop::Publish(bool at_once) {
  const absl::Time now = MonotonicNow();
  if (!ToPublish() || (!at_once && now < next_publish_)) return;
  next_publish_ = now + kPublishEvery;
  others_due_ = std::min(others_due_, unfinished_.size());
  for (size_t i = 0; i < kOthersAtATime && others_due_ > 0; ++i, --others_due_) {
    auto next = unfinished_.upper_bound(shown_);
    if (next == unfinished_.end()) next = unfinished_.begin();
    shown_ = *next;
    dirty_.insert(shown_);
  }
  std::vector<std::pair<JobId, std::shared_ptr<const v1::Job>>> views;
  for (JobId id : dirty_) {
    if (ledger_.Has(id))
      views.emplace_back(id, std::make_shared<const v1::Job>(ledger_.View(dispatcher_, id, now)));
  }
  dirty_.clear();
  absl::MutexLock lock(&view_mutex_);
  for (auto& [id, view] : views) {
    Snapshot& snapshot = snapshots_[id];
    const bool same = snapshot.job != nullptr &&
                      google::protobuf::util::MessageDifferencer::Equals(*snapshot.job, *view);
    if (same) continue;
    ++snapshot.version;
    snapshot.job = std::move(view);
  }
}

}  // namespace heddle::scheduler
