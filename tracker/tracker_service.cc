#include "tracker/tracker_service.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/daemon/log.h"
#include "proto/access/listener.h"
#include "proto/check_message.h"
#include "proto/grpc_util.h"
#include "proto/leader_calls.h"
#include "proto/people_slots.h"

namespace heddle::tracker {
namespace {

// A watch gets at most ten answers a second; an expiry may be noticed this late.
constexpr absl::Duration kTick = absl::Milliseconds(100);
// Ticks that come later than this were late because the process did not run.
constexpr absl::Duration kLongestPause = absl::Seconds(1);
constexpr absl::Duration kLongestTurn = absl::Seconds(30);  // of the thread that looks for expiries

SlotSpec FromProto(const v1::Slot& slot) {
  return {.name = slot.name(),
          .kind = slot.kind() == v1::SLOT_DEVICE ? SlotKind::kDevice : SlotKind::kCpu,
          .cores = {slot.cores().begin(), slot.cores().end()},
          .device_key = slot.device_key(),
          .target = slot.target(),
          .note = slot.note(),
          .builds = {slot.builds().begin(), slot.builds().end()},
          .machine = slot.machine()};
}

void ToProto(const SlotSpec& spec, v1::Slot* slot) {
  slot->set_name(spec.name);
  slot->set_kind(spec.kind == SlotKind::kDevice ? v1::SLOT_DEVICE : v1::SLOT_CPU);
  slot->mutable_cores()->Assign(spec.cores.begin(), spec.cores.end());
  slot->set_device_key(spec.device_key);
  slot->set_target(spec.target);
  slot->set_note(spec.note);
  slot->mutable_builds()->Assign(spec.builds.begin(), spec.builds.end());
  slot->set_machine(spec.machine);
}

v1::SlotState ToProto(SlotState state) {
  switch (state) {
    case SlotState::kFree:
      return v1::SLOT_FREE;
    case SlotState::kHeld:
      return v1::SLOT_HELD;
    case SlotState::kBlocked:
      return v1::SLOT_BLOCKED;
    case SlotState::kDraining:
      return v1::SLOT_DRAINING;
    case SlotState::kQuarantined:
      return v1::SLOT_QUARANTINED;
  }
  return v1::SLOT_STATE_UNSPECIFIED;
}

// By which a lease is bound to whoever acquired it. Over a UNIX socket and plain loopback, all callers
// are one. So are the schedulers of one service, because one takes over the leases of another: these are those
// whose certificates have the same name up to the first dot, "lab" and "lab.b".
std::string OwnerOf(const grpc::ServerContext& context) {
  Identity caller = CallerOf(context, nullptr);
  if (caller.role == Role::kScheduler)
    caller.name.resize(std::min(caller.name.size(), caller.name.find('.')));
  return ToText(caller);
}

// Whether it is a person that calls. A scheduler has a role of its own; over a UNIX socket and plain loopback,
// where all callers are one, only its holder names a person.
bool IsPerson(const Identity& caller, const std::string& holder) {
  return caller.role != Role::kScheduler &&
         (caller.role != Role::kLocal || holder.starts_with(kPersonHolder));
}

// Which places a watch takes. Where all callers are one, a scheduler shows itself by asking for changes.
CallLimits::Kind KindOfWatch(const Identity& caller, const v1::ListWorkersRequest& request) {
  const bool scheduler =
      caller.role == Role::kLocal ? request.changes() : caller.role == Role::kScheduler;
  return scheduler ? CallLimits::kSchedulerWatches : CallLimits::kWatches;
}

void ToProto(const std::vector<WorkerView>& views, v1::ListWorkersResponse* response) {
  for (const WorkerView& view : views) {
    v1::WorkerStatus* worker = response->add_workers();
    worker->set_worker(view.report.worker);
    worker->set_boot_id(view.report.boot_id);
    worker->set_address(view.report.address);
    worker->set_host(view.report.host);
    worker->set_since_sync_ms(absl::ToInt64Milliseconds(view.since_sync));
    worker->set_load_average(view.report.load_average);
    worker->set_version(view.report.version);
    for (const SlotView& slot : view.slots) {
      v1::SlotStatus* status = worker->add_slots();
      ToProto(slot.spec, status->mutable_slot());
      status->set_state(ToProto(slot.state));
      status->set_reason(slot.reason);
      status->set_lease_id(slot.lease_id);
      status->set_retires(slot.retires);
      status->set_holder(slot.holder);
      status->set_lease_remaining_ms(absl::ToInt64Milliseconds(slot.lease_remaining));
    }
  }
}

PoolOptions WithTicks(PoolOptions pool) {
  pool.longest_pause = kLongestPause;
  return pool;
}

void ToProto(const Lease& lease, const std::string& address, absl::Time now, v1::Lease* out) {
  out->set_id(lease.id);
  out->set_fencing_token(lease.fencing_token);
  out->set_worker(lease.worker);
  out->set_slot(lease.slot);
  out->set_duration_ms(absl::ToInt64Milliseconds(lease.expires - now));
  out->set_address(address);
}

}  // namespace

TrackerServiceImpl::TrackerServiceImpl(const ServiceOptions& options,
                                       std::unique_ptr<FencingTokens> tokens)
    : options_(options),
      calls_(options.calls),
      pool_(WithTicks(options.pool)),
      tokens_(std::move(tokens)),
      expirer_([this] { ExpireLoop(); }) {}

TrackerServiceImpl::~TrackerServiceImpl() {
  Stop();
  expirer_.join();
}

void TrackerServiceImpl::Stop() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
}

void TrackerServiceImpl::ExpireLoop() {
  absl::MutexLock lock(&mutex_);
  bool served = false;
  while (!mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kTick)) {
    last_turn_ = MonotonicNow();
    const bool serves = Serving().ok();
    if (std::exchange(served, serves) && !serves) {
      mutex_.Unlock();
      Log(LogLevel::kWarning, "serves no longer: no scheduler has appointed this tracker in time",
          {});
      mutex_.Lock();
    }
    if (!serves) continue;  // for the pool, that is a pause of this process
    pool_.Expire(last_turn_);
    const std::vector<std::string> lost = pool_.TakeLost();
    if (lost.empty()) continue;
    lost_ += static_cast<int64_t>(lost.size());
    // Nobody waits for whoever reads the log.
    mutex_.Unlock();
    for (const std::string& worker : lost)
      Log(LogLevel::kWarning, "worker lost: it was silent for too long", {{"worker", worker}});
    mutex_.Lock();
  }
}

TrackerServiceImpl::Summary TrackerServiceImpl::Summarize() {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = MonotonicNow();
  const bool serves = Serving().ok();
  return {.workers = serves ? pool_.List(now) : std::vector<WorkerView>(),
          .watches = watches_,
          .leases_granted = granted_,
          .leases_refused = refused_,
          .leases_expired = pool_.expired_leases(),
          .workers_lost = lost_,
          .serves = serves};
}

absl::Status TrackerServiceImpl::Live() {
  absl::MutexLock lock(&mutex_);
  const absl::Duration silent = MonotonicNow() - last_turn_;
  if (silent < kLongestTurn) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("leases have not been looked at for ",
                   absl::FormatDuration(absl::Trunc(silent, absl::Seconds(1)))));
}

absl::Status TrackerServiceImpl::Serving() const {
  if (!options_.appointed || appointment_.Serves(ClockOfAppointments())) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(kTrackerStandsBy,
                                             ": it serves while a scheduler appoints it, whose "
                                             "--tracker names all trackers of the service"));
}

absl::Status TrackerServiceImpl::Ready() {
  absl::MutexLock lock(&mutex_);
  return Serving();
}

grpc::Status TrackerServiceImpl::Appoint(grpc::ServerContext* context,
                                         const v1::AppointRequest* request,
                                         v1::AppointResponse* response) {
  if (const absl::Status checked = CheckMessage(*request); !checked.ok()) return ToGrpc(checked);
  if (!options_.appointed) {
    return {grpc::StatusCode::FAILED_PRECONDITION,
            "this tracker serves without being appointed; where a service has several, start each "
            "with --appointed"};
  }
  AppointCall call{.holder = absl::StrCat(request->holder(), " (", OwnerOf(*context), ")"),
                   .epoch = request->epoch(),
                   .duration = absl::Milliseconds(request->duration_ms())};
  if (request->echo_ns() > 0) call.echo = absl::FromUnixNanos(request->echo_ns());
  bool begins = false;
  const absl::Cleanup tell = [&] {  // without the lock
    if (begins)
      Log(LogLevel::kInfo, "serves now, appointed by a scheduler",
          {{"holder", call.holder}, {"epoch", call.epoch}});
  };
  absl::MutexLock lock(&mutex_);
  const absl::Time now = ClockOfAppointments();
  const absl::StatusOr<bool> taken = appointment_.Take(call, now);
  if (!taken.ok()) return ToGrpc(taken.status());
  begins = *taken;
  if (begins) {
    tokens_->SkipTo(request->above_token());
    if (request->forget()) pool_.EndLeases();
  }
  response->set_clock_ns(absl::ToUnixNanos(now));
  response->set_remaining_ms(absl::ToInt64Milliseconds(
      absl::Ceil(appointment_.Remaining(now), absl::Milliseconds(1))));  // 0: it does not serve
  if (const absl::Duration idle = appointment_.Idle(now); idle < absl::InfiniteDuration())
    response->set_idle_ms(absl::ToInt64Milliseconds(idle));
  return grpc::Status::OK;
}

grpc::Status TrackerServiceImpl::Synchronize(grpc::ServerContext* context,
                                             const v1::SynchronizeRequest* request,
                                             v1::SynchronizeResponse* response) {
  if (const absl::Status checked = CheckMessage(*request); !checked.ok()) return ToGrpc(checked);
  // A worker speaks only for itself: the scheduler will talk to whoever proves to be this worker.
  if (const Identity caller = CallerOf(*context, nullptr);
      caller.role == Role::kWorker && caller.name != request->worker()) {
    return {grpc::StatusCode::PERMISSION_DENIED,
            absl::StrCat("worker \"", request->worker(), "\": its certificate is of \"",
                         caller.name, "\"; start it with --id ", caller.name)};
  }
  WorkerReport report{.worker = request->worker(),
                      .boot_id = request->boot_id(),
                      .address = request->address(),
                      .host = request->host(),
                      .slots = {},
                      .draining = request->draining(),
                      .leaving = absl::Milliseconds(request->leaving_ms()),
                      .load_average = request->load_average(),
                      .version = request->version(),
                      .troubles = {}};
  for (const v1::Slot& slot : request->slots()) report.slots.push_back(FromProto(slot));
  for (const v1::SlotTrouble& trouble : request->troubles())
    report.troubles[trouble.slot()] = trouble.reason();
  bool appeared = false;
  const absl::Cleanup tell = [&report, &appeared] {  // without the lock
    if (!appeared) return;
    Log(LogLevel::kInfo, "worker registered",
        {{"worker", report.worker},
         {"host", report.host},
         {"address", report.address},
         {"slots", static_cast<int64_t>(report.slots.size())}});
  };
  absl::MutexLock lock(&mutex_);
  const absl::Time now = MonotonicNow();
  if (const absl::Status serving = Serving(); !serving.ok()) return ToGrpc(serving);
  const bool known = !pool_.AddressOf(report.worker).empty();
  absl::StatusOr<std::vector<Lease>> leases = pool_.Synchronize(report, now);
  if (!leases.ok()) return ToGrpc(leases.status());
  appeared = !known;
  // Beyond that time another tracker may serve. So until then workers either hear from this one again, or have stopped their
  // stages.
  const absl::Duration serves =
      options_.appointed ? appointment_.Remaining(ClockOfAppointments()) : absl::InfiniteDuration();
  response->set_next_sync_ms(absl::ToInt64Milliseconds(std::min(pool_.SyncInterval(), serves / 2)));
  response->set_expiry_ms(absl::ToInt64Milliseconds(options_.pool.worker_expiry));
  for (const Lease& lease : *leases) {
    response->add_valid_leases(lease.id);
    v1::LeaseGrant* grant = response->add_grants();
    grant->set_lease_id(lease.id);
    grant->set_slot(lease.slot);
    grant->set_fencing_token(lease.fencing_token);
    grant->set_remaining_ms(absl::ToInt64Milliseconds(std::min(lease.expires - now, serves)));
  }
  return grpc::Status::OK;
}

grpc::Status TrackerServiceImpl::Acquire(grpc::ServerContext* context,
                                         const v1::AcquireRequest* request, v1::Lease* response) {
  if (const absl::Status checked = CheckMessage(*request); !checked.ok()) return ToGrpc(checked);
  const AcquireOrder order{.worker = request->worker(),
                           .slot = request->slot(),
                           .holder = request->holder(),
                           .owner = OwnerOf(*context),
                           .purpose = request->purpose(),
                           .duration = absl::Milliseconds(request->duration_ms())};
  const auto acquire = [&] {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = MonotonicNow();
    if (const absl::Status serving = Serving(); !serving.ok()) return serving;
    absl::StatusOr<uint64_t> token = tokens_->Next();
    if (!token.ok()) return token.status();
    absl::StatusOr<Lease> lease = pool_.Acquire(order, *token, now);
    ++(lease.ok() ? granted_ : refused_);
    if (lease.ok()) ToProto(*lease, pool_.AddressOf(lease->worker), now, response);
    return lease.status();
  };
  const grpc::Status status = ToGrpc(acquire());
  Audit(*context, "Acquire", order.holder, status,
        absl::StrCat(order.worker, "/", order.slot, " for ", absl::FormatDuration(order.duration)));
  return status;
}

grpc::Status TrackerServiceImpl::RenewAll(grpc::ServerContext* context,
                                          const v1::RenewAllRequest* request,
                                          v1::RenewAllResponse* response) {
  if (const absl::Status checked = CheckMessage(*request); !checked.ok()) return ToGrpc(checked);
  const std::string owner = OwnerOf(*context);
  absl::MutexLock lock(&mutex_);
  const absl::Time now = MonotonicNow();
  if (const absl::Status serving = Serving(); !serving.ok()) return ToGrpc(serving);
  for (const std::string& id : request->lease_ids()) {
    const absl::StatusOr<Lease> lease =
        pool_.Renew(id, owner, absl::Milliseconds(request->duration_ms()), now);
    if (lease.ok()) {
      ToProto(*lease, pool_.AddressOf(lease->worker), now, response->add_renewed());
    } else if (absl::IsNotFound(lease.status()) || absl::IsPermissionDenied(lease.status())) {
      response->add_ended(id);
    } else {
      return ToGrpc(lease.status());
    }
  }
  return grpc::Status::OK;
}

grpc::Status TrackerServiceImpl::Release(grpc::ServerContext* context,
                                         const v1::ReleaseRequest* request, v1::ReleaseResponse*) {
  if (const absl::Status checked = CheckMessage(*request); !checked.ok()) return ToGrpc(checked);
  Lease lease;  // empty: there is none, and there is nothing to tell of it
  absl::Status released;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = MonotonicNow();
    if (const absl::Status serving = Serving(); !serving.ok()) return ToGrpc(serving);
    if (const Lease* found = pool_.FindLease(request->lease_id())) lease = *found;
    released = pool_.Release(request->lease_id(), OwnerOf(*context), now);
  }
  if (!lease.id.empty()) {
    Audit(*context, "Release", lease.holder, ToGrpc(released),
          absl::StrCat(lease.worker, "/", lease.slot));
  }
  return ToGrpc(released);
}

void TrackerServiceImpl::Audit(const grpc::ServerContext& context, const std::string& method,
                               const std::string& holder, const grpc::Status& result,
                               const std::string& detail) {
  const Identity caller = CallerOf(context, nullptr);
  if (options_.audit == nullptr || !IsPerson(caller, holder)) return;
  options_.audit->Call(caller, absl::StrCat("heddle.v1.TrackerService/", method), "", result,
                       absl::StrCat(detail, " by ", holder));
}

grpc::Status TrackerServiceImpl::ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                                             v1::ListWorkersResponse* response) {
  std::vector<WorkerView> views;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = MonotonicNow();
    if (const absl::Status serving = Serving(); !serving.ok()) return ToGrpc(serving);
    views = pool_.List(now);
  }
  ToProto(views, response);
  return grpc::Status::OK;
}

grpc::Status TrackerServiceImpl::WatchWorkers(grpc::ServerContext* context,
                                              const v1::ListWorkersRequest* request,
                                              grpc::ServerWriter<v1::ListWorkersResponse>* writer) {
  return Watch(context, *request,
               [&](const v1::ListWorkersResponse& answer) { return writer->Write(answer); });
}

grpc::Status TrackerServiceImpl::Watch(grpc::ServerContext* context,
                                       const v1::ListWorkersRequest& request, const Write& write) {
  const Identity caller = CallerOf(*context, nullptr);
  CallLimits::Call call(&calls_, KindOfWatch(caller, request), context, caller);
  if (!call.ok()) return call.status();
  {
    absl::MutexLock lock(&mutex_);
    ++watches_;
  }
  bool first = true;
  uint64_t seen = 0;  // the list that the caller knows; 0 is the empty one
  grpc::Status end = grpc::Status::OK;
  while (!context->IsCancelled()) {
    PoolChanges changes;
    bool changed = false;
    {
      absl::MutexLock lock(&mutex_);
      if (!first) mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kTick);
      if (stopping_) break;
      const absl::Time now = MonotonicNow();
      if (const absl::Status serving = Serving(); !serving.ok()) {
        end = ToGrpc(serving);
        break;
      }
      changed = first || pool_.version() != seen;
      if (changed) changes = pool_.ChangesSince(request.changes() ? seen : 0, now);
    }
    if (!changed) continue;
    if (request.changes() && changes.whole && seen != 0) {
      end = {grpc::StatusCode::ABORTED,
             "too many workers have gone since the last message; call again for the whole list"};
      break;
    }
    first = false;
    seen = changes.version;
    v1::ListWorkersResponse response;
    ToProto(changes.workers, &response);
    response.mutable_gone()->Assign(changes.gone.begin(), changes.gone.end());
    if (!call.WithPeer([&] { return write(response); })) break;
  }
  absl::MutexLock lock(&mutex_);
  --watches_;
  return stopping_ ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the tracker is shutting down")
                   : end;
}

}  // namespace heddle::tracker
