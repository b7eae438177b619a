#include "tracker/device_pool.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/status_macros.h"
#include "proto/people_slots.h"

namespace heddle::tracker {
namespace {

// Replaced boot ids that are remembered per worker, to recognise an old process; a few cover a
// crash loop.
constexpr size_t kRetiredBoots = 8;
constexpr size_t kMaxNameBytes = 128;
constexpr int kMaxCore = 1 << 16;

bool ShareCore(const SlotSpec& a, const SlotSpec& b) {
  return std::any_of(a.cores.begin(), a.cores.end(), [&](int core) {
    return std::find(b.cores.begin(), b.cores.end(), core) != b.cores.end();
  });
}

absl::Status CheckSlot(const SlotSpec& slot) {
  if (slot.name.empty() || slot.name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError("a slot's name has 1 to 128 characters");
  }
  if (slot.cores.empty() && slot.kind != SlotKind::kDevice) {  // a GPU slot needs none
    return absl::InvalidArgumentError(absl::StrCat("slot ", slot.name, " has no cores"));
  }
  for (int core : slot.cores) {
    if (core < 0 || core >= kMaxCore) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot ", slot.name, ": core ", core, " is out of range"));
    }
  }
  if (slot.kind == SlotKind::kDevice && (slot.device_key.empty() || slot.target.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("device slot ", slot.name, " needs a device key and a target"));
  }
  if (slot.machine.size() > kMaxMachineBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot ", slot.name, ": its measured machine has ", slot.machine.size(),
                     " bytes; ", kMaxMachineBytes, " are allowed"));
  }
  return absl::OkStatus();
}

// A lease's id is no secret: the list of slots shows it.
absl::Status CheckOwner(const Lease& lease, const std::string& owner) {
  if (lease.owner == owner) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("lease ", lease.id, " is held by ", lease.owner,
                                                  "; ", owner,
                                                  " can neither renew nor release it"));
}

std::string Describe(const Lease& lease) {
  std::string text = absl::StrCat("held by ", lease.holder);
  if (!lease.purpose.empty()) absl::StrAppend(&text, " (", lease.purpose, ")");
  return text;
}

}  // namespace

absl::Status DevicePool::CheckReport(const WorkerReport& report) const {
  if (report.worker.empty() || report.worker.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError("a worker's id has 1 to 128 characters");
  }
  if (report.boot_id.empty() || report.boot_id.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError("a worker's boot id has 1 to 128 characters");
  }
  if (report.host.empty() || report.address.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", report.worker, " tells no host or address"));
  }
  if (report.slots.size() > options_.max_slots_per_worker) {
    return absl::ResourceExhaustedError(absl::StrCat("worker ", report.worker, " has more than ",
                                                     options_.max_slots_per_worker, " slots"));
  }
  std::set<std::string> names;
  for (const SlotSpec& slot : report.slots) {
    HEDDLE_RETURN_IF_ERROR(CheckSlot(slot));
    if (!names.insert(slot.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two slots are named ", slot.name));
    }
  }
  for (const auto& [slot, reason] : report.troubles) {
    if (names.count(slot) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("trouble of a slot that is not there: ", slot));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Lease>> DevicePool::Synchronize(const WorkerReport& report,
                                                           absl::Time now) {
  Expire(now);
  HEDDLE_RETURN_IF_ERROR(CheckReport(report));
  auto found = workers_.find(report.worker);
  if (found == workers_.end()) {
    if (workers_.size() >= options_.max_workers) {
      return absl::ResourceExhaustedError(
          absl::StrCat("there are ", workers_.size(), " workers already"));
    }
    workers_.emplace(report.worker,
                     Worker{.report = report, .last_sync = now, .retired_boots = {}});
    ++version_;
    return std::vector<Lease>();
  }
  Worker& worker = found->second;
  const auto& retired = worker.retired_boots;
  if (std::find(retired.begin(), retired.end(), report.boot_id) != retired.end()) {
    return absl::AlreadyExistsError(
        absl::StrCat("worker id ", report.worker, " is used by a newer process at ",
                     worker.report.address, "; give each worker an id of its own"));
  }
  const bool rebooted = worker.report.boot_id != report.boot_id;
  if (rebooted) {
    worker.retired_boots.push_back(worker.report.boot_id);
    if (worker.retired_boots.size() > kRetiredBoots) worker.retired_boots.pop_front();
  }
  const bool moved = worker.report.host != report.host || worker.report.slots != report.slots;
  if (rebooted || moved || worker.report.draining != report.draining ||
      worker.report.address != report.address || worker.report.troubles != report.troubles) {
    ++version_;
  }
  worker.report = report;
  worker.last_sync = now;
  // Slots that change while the process runs are new slots: leases on the old ones are void.
  if (rebooted || moved) DropLeasesOf(report.worker);
  std::vector<Lease> leases;
  for (const SlotSpec& slot : report.slots) {
    auto held = lease_of_slot_.find({report.worker, slot.name});
    if (held != lease_of_slot_.end()) leases.push_back(leases_.at(held->second));
  }
  return leases;
}

absl::StatusOr<Lease> DevicePool::Acquire(const AcquireOrder& order, uint64_t token,
                                          absl::Time now) {
  Expire(now);
  if (order.holder.empty()) return absl::InvalidArgumentError("an order names its holder");
  if (order.duration < options_.min_lease || order.duration > options_.max_lease) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a lease lasts ", absl::FormatDuration(options_.min_lease), " to ",
        absl::FormatDuration(options_.max_lease), ", not ", absl::FormatDuration(order.duration)));
  }
  const SlotSpec* slot = FindSlot(order.worker, order.slot);
  if (slot == nullptr) {
    return absl::NotFoundError(absl::StrCat("no slot ", order.slot, " of a worker ", order.worker));
  }
  const SlotView view = View(workers_.at(order.worker), *slot, now);
  const std::string name =
      absl::StrCat("slot ", order.slot, " of ", order.worker, ": ", view.reason);
  const std::string waiting = WaitsFor(order, *slot);
  switch (view.state) {
    case SlotState::kFree:
      if (waiting.empty()) break;
      return absl::ResourceExhaustedError(absl::StrCat(
          "slot ", order.slot, " of ", order.worker, ": kept for ", waiting, ", who waits for it"));
    case SlotState::kHeld:
    case SlotState::kBlocked:
      if (waiting.empty() && order.holder.starts_with(kPersonHolder))
        wishes_[{order.worker, order.slot}] = {order.holder, now + options_.person_waits};
      return absl::ResourceExhaustedError(name);
    case SlotState::kDraining:
    case SlotState::kQuarantined:
      return absl::FailedPreconditionError(name);
  }
  if (token <= last_token_) {
    return absl::InternalError(
        absl::StrCat("fencing token ", token, " does not grow beyond ", last_token_));
  }
  last_token_ = token;
  Lease lease{.id = absl::StrCat("L", token),
              .fencing_token = token,
              .worker = order.worker,
              .slot = order.slot,
              .holder = order.holder,
              .owner = order.owner,
              .purpose = order.purpose,
              .expires = now + order.duration};
  leases_[lease.id] = lease;
  lease_of_slot_[{lease.worker, lease.slot}] = lease.id;
  wishes_.erase({lease.worker, lease.slot});
  ++version_;
  return lease;
}

absl::StatusOr<Lease> DevicePool::Renew(const std::string& lease_id, const std::string& owner,
                                        absl::Duration duration, absl::Time now) {
  Expire(now);
  if (duration < options_.min_lease || duration > options_.max_lease) {
    return absl::InvalidArgumentError(
        absl::StrCat("a lease cannot last ", absl::FormatDuration(duration)));
  }
  auto lease = leases_.find(lease_id);
  if (lease == leases_.end()) {
    return absl::NotFoundError(absl::StrCat("lease ", lease_id, " has expired or was released"));
  }
  HEDDLE_RETURN_IF_ERROR(CheckOwner(lease->second, owner));
  lease->second.expires = std::max(lease->second.expires, now + duration);
  return lease->second;
}

absl::Status DevicePool::Release(const std::string& lease_id, const std::string& owner,
                                 absl::Time now) {
  Expire(now);
  auto lease = leases_.find(lease_id);
  if (lease == leases_.end()) return absl::OkStatus();
  HEDDLE_RETURN_IF_ERROR(CheckOwner(lease->second, owner));
  EndLease(lease);
  return absl::OkStatus();
}

void DevicePool::Expire(absl::Time now) {
  std::erase_if(wishes_, [now](const auto& wish) { return wish.second.until <= now; });
  for (auto it = workers_.begin(); it != workers_.end();) {
    if (it->second.last_sync + options_.worker_expiry <= now) {
      const std::string id = it->first;
      it = workers_.erase(it);
      DropLeasesOf(id);
      if (lost_.size() < options_.max_workers) lost_.push_back(id);
      ++version_;
    } else {
      ++it;
    }
  }
  for (auto it = leases_.begin(); it != leases_.end();) {
    auto next = std::next(it);
    if (it->second.expires <= now) {
      ++expired_leases_;
      EndLease(it);
    }
    it = next;
  }
}

std::vector<WorkerView> DevicePool::List(absl::Time now) {
  Expire(now);
  std::vector<WorkerView> views;
  for (const auto& [id, worker] : workers_) {
    WorkerView view{.report = worker.report, .since_sync = now - worker.last_sync, .slots = {}};
    for (const SlotSpec& slot : worker.report.slots) view.slots.push_back(View(worker, slot, now));
    views.push_back(std::move(view));
  }
  return views;
}

std::string DevicePool::AddressOf(const std::string& worker) const {
  auto found = workers_.find(worker);
  return found == workers_.end() ? "" : found->second.report.address;
}

const SlotSpec* DevicePool::FindSlot(const std::string& worker, const std::string& slot) const {
  auto found = workers_.find(worker);
  if (found == workers_.end()) return nullptr;
  for (const SlotSpec& spec : found->second.report.slots) {
    if (spec.name == slot) return &spec;
  }
  return nullptr;
}

const Lease* DevicePool::Conflict(const std::string& worker, const SlotSpec& slot) const {
  const std::string& host = workers_.at(worker).report.host;
  for (const auto& [id, lease] : leases_) {
    if (lease.worker == worker && lease.slot == slot.name) continue;
    if (workers_.at(lease.worker).report.host != host) continue;
    const SlotSpec* other = FindSlot(lease.worker, lease.slot);
    if (other != nullptr && ShareCore(*other, slot)) return &lease;
  }
  return nullptr;
}

std::string DevicePool::WaitsFor(const AcquireOrder& order, const SlotSpec& slot) const {
  const std::string& host = workers_.at(order.worker).report.host;
  for (const auto& [key, wish] : wishes_) {
    const auto worker = workers_.find(key.first);
    if (wish.holder == order.holder || worker == workers_.end() ||
        worker->second.report.host != host)
      continue;
    const SlotSpec* wanted = FindSlot(key.first, key.second);
    const bool same = key == SlotKey{order.worker, order.slot};
    if (wanted != nullptr && (same || ShareCore(*wanted, slot))) return wish.holder;
  }
  return "";
}

SlotView DevicePool::View(const Worker& worker, const SlotSpec& slot, absl::Time now) const {
  SlotView view{.spec = slot,
                .state = SlotState::kFree,
                .reason = slot.note,
                .lease_id = "",
                .holder = "",
                .lease_remaining = {}};
  const SlotKey key{worker.report.worker, slot.name};
  if (auto held = lease_of_slot_.find(key); held != lease_of_slot_.end()) {
    const Lease& lease = leases_.at(held->second);
    view.state = SlotState::kHeld;
    view.reason = Describe(lease);
    view.lease_id = lease.id;
    view.holder = lease.holder;
    view.lease_remaining = lease.expires - now;
  } else if (auto reason = worker.report.troubles.find(slot.name);
             reason != worker.report.troubles.end()) {
    view.state = SlotState::kQuarantined;
    view.reason = absl::StrCat("quarantined: ", reason->second);
  } else if (worker.report.draining) {
    view.state = SlotState::kDraining;
    view.reason = "the worker is draining";
  } else if (const Lease* lease = Conflict(worker.report.worker, slot); lease != nullptr) {
    view.state = SlotState::kBlocked;
    view.reason = absl::StrCat("shares a core with ", lease->slot, " of ", lease->worker, ", ",
                               Describe(*lease));
  }
  return view;
}

void DevicePool::DropLeasesOf(const std::string& worker) {
  for (auto it = leases_.begin(); it != leases_.end();) {
    auto next = std::next(it);
    if (it->second.worker == worker) EndLease(it);
    it = next;
  }
}

void DevicePool::EndLease(std::map<std::string, Lease>::iterator lease) {
  lease_of_slot_.erase({lease->second.worker, lease->second.slot});
  leases_.erase(lease);
  ++version_;
}

}  // namespace heddle::tracker
