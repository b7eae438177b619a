#include "scheduler/service/stages/tracker_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/check_message.h"
#include "proto/grpc_util.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kFirstRetry = absl::Milliseconds(200);
constexpr absl::Duration kLastRetry = absl::Seconds(5);

std::vector<SlotInfo> SlotsOf(const v1::WorkerStatus& worker, const WatchedSlots::Ours& ours) {
  std::vector<SlotInfo> slots;
  for (const v1::SlotStatus& status : worker.slots()) {
    SlotInfo slot;
    slot.id = {worker.worker(), status.slot().name()};
    slot.host = worker.host();
    slot.boot = worker.boot_id();
    slot.device = status.slot().kind() == v1::SLOT_DEVICE;
    slot.cores.assign(status.slot().cores().begin(), status.slot().cores().end());
    slot.device_key = status.slot().device_key();
    slot.target = status.slot().target();
    slot.builds.assign(status.slot().builds().begin(), status.slot().builds().end());
    slot.machine = status.slot().machine();
    // SLOT_BLOCKED means that a slot with a shared core is held. The dispatcher works this out
    // itself, since it knows which slots this process holds.
    const bool held = status.state() == v1::SLOT_HELD && !ours(slot.id, status);
    slot.foreign = held;
    slot.usable = !held && status.retires().empty() && status.state() != v1::SLOT_DRAINING &&
                  status.state() != v1::SLOT_QUARANTINED;
    if (!slot.usable)
      slot.why_not = held || status.retires().empty() ? status.reason() : status.retires();
    slots.push_back(std::move(slot));
  }
  return slots;
}

}  // namespace

bool WatchedSlots::TakeList(const v1::ListWorkersResponse& list, const Ours& ours) {
  WatchedSlots whole;
  whole.TakeChanges(list, ours);
  const bool changed = whole.List() != List();
  workers_ = std::move(whole.workers_);
  return changed;
}

bool WatchedSlots::TakeChanges(const v1::ListWorkersResponse& changes, const Ours& ours) {
  bool changed = false;
  for (const std::string& name : changes.gone()) {
    const auto known = workers_.find(name);
    if (known == workers_.end()) continue;
    changed |= !known->second.empty();
    workers_.erase(known);
  }
  for (const v1::WorkerStatus& worker : changes.workers()) {
    std::vector<SlotInfo> slots = SlotsOf(worker, ours);
    std::vector<SlotInfo>& known = workers_[worker.worker()];
    if (slots == known) continue;
    known = std::move(slots);
    changed = true;
  }
  return changed;
}

std::vector<SlotInfo> WatchedSlots::List() const {
  std::vector<SlotInfo> slots;
  for (const auto& [name, of_worker] : workers_)
    slots.insert(slots.end(), of_worker.begin(), of_worker.end());
  return slots;
}

TrackerWatch::TrackerWatch(TrackerInUse tracker, std::function<std::string()> name,
                           LeaseKeeper* leases, std::function<void(SlotsChanged)> changed)
    : tracker_(std::move(tracker)),
      name_(std::move(name)),
      leases_(leases),
      changed_(std::move(changed)),
      thread_([this] { Loop(); }) {}

TrackerWatch::~TrackerWatch() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  thread_.join();
}

void TrackerWatch::Restart() {
  absl::MutexLock lock(&mutex_);
  restart_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

void TrackerWatch::Loop() {
  WatchedSlots slots;
  SlotsChanged last{{}, "the tracker has not answered yet"};
  const WatchedSlots::Ours ours = [this](const SlotId& slot, const v1::SlotStatus& status) {
    return leases_->IsOurs(slot, status);
  };
  absl::Duration retry = kFirstRetry;
  bool first = true;
  while (true) {
    grpc::ClientContext context;
    {
      absl::MutexLock lock(&mutex_);
      if (stop_) return;
      context_ = &context;
      restart_ = false;
    }
    const std::string tracker = name_();
    v1::ListWorkersRequest request;
    request.set_changes(true);
    auto stream = tracker_->WatchWorkers(&context, request);
    v1::ListWorkersResponse list;
    bool whole = true;  // the first message of a call
    absl::Status checked;
    while (stream->Read(&list)) {
      checked = CheckMessage(list);
      if (!checked.ok()) {
        context.TryCancel();
        break;
      }
      // The scheduler knows no slot before the first list, so it has acquired nothing yet.
      if (first) leases_->ReleaseFormer(list);
      first = false;
      leases_->SetHosts(list, whole);
      const bool changed = whole ? slots.TakeList(list, ours) : slots.TakeChanges(list, ours);
      whole = false;
      retry = kFirstRetry;
      if (!changed && last.problem.empty()) continue;
      last = {slots.List(), ""};
      changed_(last);
    }
    const grpc::Status status = stream->Finish();
    bool restart = false;
    {
      absl::MutexLock lock(&mutex_);
      context_ = nullptr;
      if (stop_) return;
      restart = restart_;
    }
    if (restart) {
      last.problem = "another tracker is in use now; it has not answered yet";
    } else if (!checked.ok()) {
      last.problem = absl::StrCat(tracker, " sent a list that cannot be used: ", checked.message());
    } else if (status.error_code() == grpc::StatusCode::ABORTED) {
      last.problem = absl::StrCat(tracker, " lists its workers anew: ", status.error_message());
    } else {
      last.problem = absl::StrCat(tracker, " is not to be reached (", status.error_message(),
                                  "); is heddle-tracker running?");
    }
    changed_(last);  // may wait for room in the inbox, and Restart must not wait for that
    absl::MutexLock lock(&mutex_);
    if (stop_) return;
    const auto go_on = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || restart_; };
    mutex_.AwaitWithTimeout(absl::Condition(&go_on), retry);
    retry = restart_ ? kFirstRetry : std::min(kLastRetry, retry * 2);
  }
}

}  // namespace heddle::scheduler
