#include "scheduler/service/stages/machine_drains.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "proto/check_message.h"
#include "proto/grpc_util.h"
#include "proto/people_slots.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kCallLimit = absl::Seconds(2);
constexpr absl::Duration kShortestLease = absl::Seconds(1);

}  // namespace

MachineDrains::MachineDrains(TrackerInUse tracker, Options options)
    : tracker_(tracker), options_(options), thread_([this] { Run(); }) {}

MachineDrains::~MachineDrains() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

absl::Status MachineDrains::Begin(const std::string& worker, const std::string& who,
                                  absl::Duration duration) {
  const absl::Time now = MonotonicNow();
  const Drain drain{absl::StrCat(std::string(kPersonHolder), who, "@page"), now + duration,
                    now + std::min(duration, options_.patience)};
  absl::MutexLock lock(&mutex_);
  if (drains_.size() >= options_.most && !drains_.contains(worker)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(drains_.size(), " machines are being drained; wait until one is"));
  }
  std::vector<std::string> leases;
  const absl::StatusOr<bool> in_use = Pass(worker, drain, &leases);
  if (!in_use.ok()) {
    // Whoever is told that it failed does not expect held slots.
    for (const std::string& lease : leases) (void)Release(lease);
    return in_use.status();
  }
  if (*in_use) drains_.insert_or_assign(worker, drain);
  return absl::OkStatus();
}

absl::Status MachineDrains::Release(const std::string& lease) {
  grpc::ClientContext context;
  SetDeadline(&context, kCallLimit);
  v1::ReleaseRequest request;
  request.set_lease_id(lease);
  v1::ReleaseResponse response;
  return FromGrpc(tracker_->Release(&context, request, &response));
}

absl::Status MachineDrains::End(const std::string& worker) {
  absl::MutexLock lock(&mutex_);
  const bool waited = drains_.erase(worker) > 0;
  HEDDLE_ASSIGN_OR_RETURN(const v1::WorkerStatus status, Find(worker));
  const std::vector<v1::SlotStatus> held = SlotsOfPeople(status, /*slot=*/"");
  if (held.empty() && !waited) {
    return absl::FailedPreconditionError(
        absl::StrCat("no slot of ", worker, " is held by a person"));
  }
  absl::Status first;
  for (const v1::SlotStatus& slot : held) {
    const absl::Status released = Release(slot.lease_id());
    if (!released.ok() && first.ok()) {
      first = absl::Status(released.code(), absl::StrCat(slot.slot().name(), " of ", worker,
                                                         " stays held: ", released.message()));
    }
    if (absl::IsUnavailable(released) || absl::IsDeadlineExceeded(released)) break;
  }
  return first;
}

absl::StatusOr<v1::WorkerStatus> MachineDrains::Find(const std::string& worker) {
  grpc::ClientContext context;
  SetDeadline(&context, kCallLimit);
  v1::ListWorkersResponse list;
  const absl::Status asked = FromGrpc(tracker_->ListWorkers(&context, {}, &list));
  if (absl::IsDeadlineExceeded(asked)) return absl::UnavailableError("the tracker does not answer");
  HEDDLE_RETURN_IF_ERROR(asked);
  HEDDLE_RETURN_IF_ERROR(CheckMessage(list));
  std::vector<std::string> names;
  for (v1::WorkerStatus& one : *list.mutable_workers()) {
    if (one.worker() == worker) return std::move(one);
    names.push_back(one.worker());
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no worker '", worker, "'; there ",
      names.empty() ? std::string("is none") : absl::StrCat("are ", absl::StrJoin(names, ", "))));
}

absl::StatusOr<bool> MachineDrains::Pass(const std::string& worker, const Drain& drain,
                                         std::vector<std::string>* leases) {
  HEDDLE_ASSIGN_OR_RETURN(const v1::WorkerStatus status, Find(worker));
  bool in_use = false;
  for (const std::string& slot : SlotsToDrain(status, /*slot=*/"")) {
    grpc::ClientContext context;
    SetDeadline(&context, kCallLimit);
    v1::AcquireRequest request;
    request.set_worker(worker);
    request.set_slot(slot);
    request.set_holder(drain.holder);
    request.set_purpose("drained on the page");
    request.set_duration_ms(
        absl::ToInt64Milliseconds(std::max(kShortestLease, drain.until - MonotonicNow())));
    v1::Lease lease;
    const absl::Status asked = FromGrpc(tracker_->Acquire(&context, request, &lease));
    if (absl::IsResourceExhausted(asked)) {
      in_use = true;
    } else if (!asked.ok()) {
      return asked;
    } else {
      leases->push_back(lease.id());
    }
  }
  return in_use;
}

void MachineDrains::Run() {
  std::string passed;  // the machine of the round that was passed last
  while (true) {
    // Not for a whole round, so that nobody waits for the tracker's answers about sixteen machines.
    absl::MutexLock lock(&mutex_);
    if (stop_) return;
    const auto drain = drains_.upper_bound(passed);
    if (drain == drains_.end()) {
      passed.clear();
      mutex_.AwaitWithTimeout(absl::Condition(&stop_), options_.poll);
      continue;
    }
    passed = drain->first;
    // The tracker may be silent for a while; a machine that has left needs no more.
    std::vector<std::string> leases;
    const absl::StatusOr<bool> in_use = Pass(drain->first, drain->second, &leases);
    const bool over = (in_use.ok() && !*in_use) || absl::IsNotFound(in_use.status()) ||
                      MonotonicNow() >= drain->second.give_up;
    if (over) drains_.erase(drain);
  }
}

}  // namespace heddle::scheduler
