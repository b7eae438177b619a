#include "client/commands/device_commands.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "client/views/json.h"
#include "proto/access/channel.h"
#include "proto/leader_calls.h"
#include "proto/people_slots.h"
#include "proto/tracker.grpc.pb.h"

namespace heddle::client {
namespace {

constexpr auto kCallLimit = std::chrono::seconds(10);
constexpr auto kFindLimit = std::chrono::seconds(3);  // for each of several trackers
constexpr absl::Duration kShortest = absl::Seconds(1), kLongest = absl::Hours(1);  // of a lease
constexpr absl::Duration kUsualWait = absl::Minutes(10);  // for stages to end
constexpr absl::Duration kPoll = absl::Milliseconds(500);

class Tracker {
 public:
  // The tracker at the address; of several, separated by commas, the one that serves.
  static absl::StatusOr<Tracker> Reach(const GlobalOptions& global, const std::string& addresses) {
    HEDDLE_ASSIGN_OR_RETURN(const Credentials credentials,
                            LoadCredentials(global.server.tls_directory, global.server.token_file));
    const std::vector<std::string> all = absl::StrSplit(addresses, ',');
    for (const std::string& address : all)
      HEDDLE_RETURN_IF_ERROR(CheckAddress(address, credentials));
    for (const std::string& address : all) {
      Tracker tracker(address, v1::TrackerService::NewStub(
                                   MakeChannel(address, PeerName(Role::kTracker), credentials)));
      if (all.size() == 1) return tracker;
      v1::ListWorkersResponse response;
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + kFindLimit);
      const grpc::Status status = tracker.stub_->ListWorkers(&context, {}, &response);
      if (status.error_code() != grpc::StatusCode::UNAVAILABLE &&
          status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED)
        return tracker;
    }
    return absl::UnavailableError(
        fmt::format("none of the trackers at {} serves now; a scheduler that leads appoints one of "
                    "them within seconds",
                    addresses));
  }
  absl::StatusOr<v1::Lease> Acquire(const std::string& worker, const std::string& slot,
                                    absl::Duration duration) {
    v1::AcquireRequest request;
    request.set_worker(worker);
    request.set_slot(slot);
    request.set_holder(Holder());
    request.set_purpose("held by heddle device");
    request.set_duration_ms(absl::ToInt64Milliseconds(duration));
    v1::Lease lease;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallLimit);
    HEDDLE_RETURN_IF_ERROR(Told(stub_->Acquire(&context, request, &lease)));
    return lease;
  }
  absl::Status Release(const std::string& lease) {
    v1::ReleaseRequest request;
    request.set_lease_id(lease);
    v1::ReleaseResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallLimit);
    return Told(stub_->Release(&context, request, &response));
  }
  // NotFound if there is no such worker; the message lists those that there are.
  absl::StatusOr<v1::WorkerStatus> Worker(const std::string& name) {
    v1::ListWorkersResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallLimit);
    HEDDLE_RETURN_IF_ERROR(Told(stub_->ListWorkers(&context, {}, &response)));
    std::vector<std::string> names;
    for (v1::WorkerStatus& worker : *response.mutable_workers()) {
      if (worker.worker() == name) return std::move(worker);
      names.push_back(worker.worker());
    }
    return absl::NotFoundError(
        fmt::format("there is no worker '{}'; there {}", name,
                    names.empty() ? "is none" : fmt::format("are {}", fmt::join(names, ", "))));
  }

 private:
  Tracker(std::string address, std::unique_ptr<v1::TrackerService::Stub> stub)
      : address_(std::move(address)), stub_(std::move(stub)) {}
  static std::string Holder() {
    const char* user = std::getenv("USER");
    char host[256] = {};
    if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
    return fmt::format("{}{}@{}", std::string(kPersonHolder), user == nullptr ? "somebody" : user,
                       host);
  }
  absl::Status Told(const grpc::Status& status) const {
    if (status.ok()) return absl::OkStatus();
    if (status.error_message().starts_with(kTrackerStandsBy)) {
      return absl::UnavailableError(fmt::format(
          "the tracker at {} stands by; name all trackers of the service with --tracker, "
          "separated by commas, or try again",
          address_));
    }
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE ||
        status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return absl::UnavailableError(
          fmt::format("no tracker answers at {}; name another with --tracker (heddle-scheduler "
                      "--embedded has its own in DATA/sockets)",
                      address_));
    }
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }

  std::string address_;
  std::unique_ptr<v1::TrackerService::Stub> stub_;
};

// "WORKER/SLOT" in its parts; without '/', the slot is empty. Names of slots hold no '/'.
std::pair<std::string, std::string> PartsOf(const std::string& place) {
  const size_t slash = place.rfind('/');
  if (slash == std::string::npos) return {place, ""};
  return {place.substr(0, slash), place.substr(slash + 1)};
}

absl::StatusOr<absl::Duration> SpanOf(const char* flag, const std::string& text,
                                      absl::Duration most) {
  absl::Duration span;
  if (absl::ParseDuration(text, &span) && span >= kShortest && span <= most) return span;
  return absl::InvalidArgumentError(
      fmt::format("{} '{}' is no time from {} to {}; write for example {} {}", flag, text,
                  absl::FormatDuration(kShortest), absl::FormatDuration(most), flag,
                  absl::FormatDuration(std::min(most, absl::Minutes(30)))));
}

void Tell(const GlobalOptions& global, const std::vector<v1::Lease>& leases) {
  if (global.output.json) {
    nlohmann::json list = nlohmann::json::array();
    for (const v1::Lease& lease : leases) list.push_back(ToJson(lease));
    const nlohmann::json object = {{"schema_version", kJsonSchemaVersion}, {"leases", list}};
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  for (const v1::Lease& lease : leases) {
    fmt::print("{}/{} is held for {}; heddle device resume {}/{} ends that\n",
               Printable(lease.worker()), Printable(lease.slot()),
               HumanDuration(absl::Milliseconds(lease.duration_ms())), Printable(lease.worker()),
               Printable(lease.slot()));
  }
}

// Drain's own part: the leases it has, and the slots that it could not get.
struct Drained {
  std::vector<v1::Lease> leases;
  std::vector<std::string> busy;  // with the reason
};

absl::StatusOr<Drained> Drain(Tracker& tracker, const std::string& worker, const std::string& slot,
                              absl::Duration duration, absl::Duration wait) {
  const absl::Time limit = MonotonicNow() + wait;
  Drained drained;
  while (true) {
    HEDDLE_ASSIGN_OR_RETURN(const v1::WorkerStatus status, tracker.Worker(worker));
    drained.busy.clear();
    const bool known = slot.empty() || std::any_of(status.slots().begin(), status.slots().end(),
                                                   [&](const v1::SlotStatus& one) {
                                                     return one.slot().name() == slot;
                                                   });
    for (const std::string& name : SlotsToDrain(status, slot)) {
      absl::StatusOr<v1::Lease> lease = tracker.Acquire(worker, name, duration);
      if (lease.ok()) {
        drained.leases.push_back(*std::move(lease));
      } else if (absl::IsResourceExhausted(lease.status())) {
        drained.busy.push_back(std::string(lease.status().message()));
      } else {
        return lease.status();
      }
    }
    if (!known)
      return absl::NotFoundError(fmt::format("worker '{}' has no slot '{}'", worker, slot));
    if (drained.busy.empty() || MonotonicNow() > limit || Interrupted()) return drained;
    absl::SleepFor(kPoll);
  }
}

}  // namespace

int LeaseDevice(const GlobalOptions& global, const DeviceOptions& options) {
  const auto [worker, slot] = PartsOf(options.place);
  if (slot.empty() || worker.empty()) {
    return Fail(absl::InvalidArgumentError(fmt::format(
        "'{}' names no slot; write WORKER/SLOT as `heddle devices` shows them, or drain the whole "
        "worker: heddle device drain {}",
        options.place, options.place)));
  }
  const absl::StatusOr<absl::Duration> duration = SpanOf("--for", options.duration, kLongest);
  if (!duration.ok()) return Fail(duration.status());
  absl::StatusOr<Tracker> tracker = Tracker::Reach(global, options.tracker);
  if (!tracker.ok()) return Fail(tracker.status());
  const absl::StatusOr<v1::Lease> lease = tracker->Acquire(worker, slot, *duration);
  if (!lease.ok()) return Fail(lease.status());
  Tell(global, {*lease});
  return kDone;
}

int DrainDevice(const GlobalOptions& global, const DeviceOptions& options) {
  const auto [worker, slot] = PartsOf(options.place);
  const absl::StatusOr<absl::Duration> duration = SpanOf("--for", options.duration, kLongest);
  if (!duration.ok()) return Fail(duration.status());
  // A lease that was taken first must not end before the last one is there.
  const absl::StatusOr<absl::Duration> wait = options.wait.empty()
                                                  ? std::min(kUsualWait, *duration)
                                                  : SpanOf("--wait", options.wait, *duration);
  if (!wait.ok()) return Fail(wait.status());
  absl::StatusOr<Tracker> tracker = Tracker::Reach(global, options.tracker);
  if (!tracker.ok()) return Fail(tracker.status());
  const absl::StatusOr<Drained> drained = Drain(*tracker, worker, slot, *duration, *wait);
  if (!drained.ok()) return Fail(drained.status());
  Tell(global, drained->leases);
  if (Interrupted()) return kInterrupted;
  if (drained->busy.empty()) return kDone;
  return Fail(
      absl::DeadlineExceededError(fmt::format("not drained within {}: {}; what is held stays so",
                                              options.wait, fmt::join(drained->busy, "; "))));
}

int ResumeDevice(const GlobalOptions& global, const DeviceOptions& options) {
  const auto [worker, slot] = PartsOf(options.place);
  absl::StatusOr<Tracker> tracker = Tracker::Reach(global, options.tracker);
  if (!tracker.ok()) return Fail(tracker.status());
  const absl::StatusOr<v1::WorkerStatus> status = tracker->Worker(worker);
  if (!status.ok()) return Fail(status.status());
  nlohmann::json list = nlohmann::json::array();
  std::vector<std::string> held;  // what stays so, with the reason
  absl::Status first;             // of them
  for (const v1::SlotStatus& one : SlotsOfPeople(*status, slot)) {
    const std::string name = fmt::format("{}/{}", worker, one.slot().name());
    if (const absl::Status ended = tracker->Release(one.lease_id()); ended.ok()) {
      list.push_back(name);
    } else {
      if (held.empty()) first = ended;
      held.push_back(fmt::format("{}: {}", name, std::string(ended.message())));
    }
  }
  if (global.output.json) {
    const nlohmann::json object = {{"schema_version", kJsonSchemaVersion}, {"resumed", list}};
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (list.empty() && held.empty()) {
    fmt::print(stderr, "no slot of {} is held by a person\n", Printable(options.place));
  } else {
    for (const nlohmann::json& name : list)
      fmt::print("{} takes jobs again\n", Printable(name.get<std::string>()));
  }
  if (held.empty()) return kDone;
  return Fail(absl::Status(first.code(), fmt::format("not resumed: {}", fmt::join(held, "; "))));
}

}  // namespace heddle::client
