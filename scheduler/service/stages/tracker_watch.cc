#include "scheduler/service/stages/tracker_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/check_message.h"
#include "proto/grpc_util.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kFirstRetry = absl::Milliseconds(200);
constexpr absl::Duration kLastRetry = absl::Seconds(5);

}  // namespace

SlotsChanged SlotsFrom(const v1::ListWorkersResponse& list,
                       const std::function<bool(const std::string&)>& ours) {
  SlotsChanged changed;
  for (const v1::WorkerStatus& worker : list.workers()) {
    for (const v1::SlotStatus& status : worker.slots()) {
      SlotInfo slot;
      slot.id = {worker.worker(), status.slot().name()};
      slot.host = worker.host();
      slot.device = status.slot().kind() == v1::SLOT_DEVICE;
      slot.cores.assign(status.slot().cores().begin(), status.slot().cores().end());
      slot.device_key = status.slot().device_key();
      slot.target = status.slot().target();
      slot.builds.assign(status.slot().builds().begin(), status.slot().builds().end());
      slot.machine = status.slot().machine();
      // SLOT_BLOCKED means that a slot with a shared core is held. The dispatcher works this out
      // itself, since it knows which slots this process holds.
      const bool held = status.state() == v1::SLOT_HELD && !ours(status.lease_id());
      slot.foreign = held;
      slot.usable =
          !held && status.state() != v1::SLOT_DRAINING && status.state() != v1::SLOT_QUARANTINED;
      if (!slot.usable) slot.why_not = status.reason();
      changed.slots.push_back(std::move(slot));
    }
  }
  return changed;
}

TrackerWatch::TrackerWatch(std::shared_ptr<v1::TrackerService::StubInterface> tracker,
                           std::string address, LeaseKeeper* leases,
                           std::function<void(SlotsChanged)> changed)
    : tracker_(std::move(tracker)),
      address_(std::move(address)),
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

void TrackerWatch::Loop() {
  SlotsChanged last;
  absl::Duration retry = kFirstRetry;
  bool first = true;
  while (true) {
    grpc::ClientContext context;
    {
      absl::MutexLock lock(&mutex_);
      if (stop_) return;
      context_ = &context;
    }
    auto stream = tracker_->WatchWorkers(&context, v1::ListWorkersRequest());
    v1::ListWorkersResponse list;
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
      last = SlotsFrom(list, [this](const std::string& lease) { return leases_->IsOurs(lease); });
      changed_(last);
      retry = kFirstRetry;
    }
    const grpc::Status status = stream->Finish();
    last.problem = checked.ok()
                       ? absl::StrCat("the tracker at ", address_, " is not to be reached (",
                                      status.error_message(), "); is heddle-tracker running?")
                       : absl::StrCat("the tracker at ", address_,
                                      " sent a list that cannot be used: ", checked.message());
    absl::MutexLock lock(&mutex_);
    context_ = nullptr;
    if (stop_) return;
    changed_(last);
    mutex_.AwaitWithTimeout(absl::Condition(&stop_), retry);
    retry = std::min(kLastRetry, retry * 2);
  }
}

}  // namespace heddle::scheduler
