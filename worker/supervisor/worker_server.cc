#include "worker/supervisor/worker_server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "proto/access/channel.h"
#include "proto/access/listener.h"
#include "proto/access/local_socket.h"
#include "proto/grpc_util.h"

namespace heddle::worker {
namespace {

// How late the local expiry of a lease may be noticed.
constexpr absl::Duration kLeaseTick = absl::Milliseconds(100);
// Of the notice, what is kept for ending stages and telling their callers.
constexpr absl::Duration kHandBack = absl::Seconds(3);
// Time for calls to end after their stages have ended.
constexpr auto kShutdownLimit = std::chrono::seconds(3);
// Calls to a tracker take at most 3 s, and pauses between them 5 s.
constexpr absl::Duration kLongestSilence = absl::Seconds(60);

std::string RandomId() {
  std::random_device device;
  return absl::StrCat(absl::Hex(uint64_t{device()} << 32 | device(), absl::kZeroPad16));
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

// The address at which others reach the worker, which listens on `port`.
std::string AdvertisedAddress(const WorkerOptions& options, int port) {
  if (IsUnixAddress(options.listen)) return options.listen;
  const std::string& advertise = options.advertise;
  const size_t colon = advertise.rfind(':');
  // "host:80" and "[::1]:80" have a port, "::1" and "[::1]" have none.
  const bool has_port = colon != std::string::npos && colon > 0 &&
                        (advertise[colon - 1] == ']' || advertise.find(':') == colon);
  if (has_port) return advertise;
  if (!advertise.empty()) return absl::StrCat(advertise, ":", port);
  const std::string host = options.listen.substr(0, options.listen.rfind(':'));
  const bool any = host.empty() || host == "0.0.0.0" || host == "[::]" || host == "*";
  return absl::StrCat(any ? HostName() : host, ":", port);
}

// Names the cores of the slot that the worker's own threads share because the host has no others.
std::string NoteOf(const SlotConfig& slot, const std::vector<int>& own_cores) {
  std::vector<int> shared;
  for (int core : slot.cores) {
    if (std::find(own_cores.begin(), own_cores.end(), core) != own_cores.end())
      shared.push_back(core);
  }
  if (shared.empty()) return "";
  return absl::StrCat("the daemons run on core ", absl::StrJoin(shared, ","), ", too");
}

v1::SynchronizeRequest MakeReport(const WorkerOptions& options) {
  v1::SynchronizeRequest report;
  report.set_worker(options.id);
  report.set_boot_id(RandomId());
  report.set_host(HostName());
  report.set_version(options.version);
  for (const SlotConfig& config : options.slots) {
    v1::Slot* slot = report.add_slots();
    slot->set_name(config.name);
    slot->set_kind(config.device ? v1::SLOT_DEVICE : v1::SLOT_CPU);
    slot->mutable_cores()->Assign(config.cores.begin(), config.cores.end());
    if (!config.device)
      slot->mutable_builds()->Assign(options.builds.begin(), options.builds.end());
    if (config.device) {
      slot->set_device_key(config.gpu.empty() ? options.device_key : config.device_key);
      slot->set_target(config.gpu.empty() ? options.target : config.target);
      slot->set_note(NoteOf(config, options.own_cores));
      if (config.gpu.empty()) slot->set_machine(options.machine);
    }
  }
  return report;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerServer>> WorkerServer::Start(const WorkerOptions& options) {
  signal(SIGPIPE, SIG_IGN);  // writing to a dead child must not end the worker
  grpc::EnableDefaultHealthCheckService(true);
  std::unique_ptr<WorkerServer> worker(new WorkerServer(options));
  RunnerOptions runner = options.runner;
  runner.worker = options.id;
  runner.guard = &worker->guard_;
  const std::vector<std::string> trackers = absl::StrSplit(options.tracker, ',');
  for (const std::string& tracker : trackers)
    HEDDLE_RETURN_IF_ERROR(CheckAddress(tracker, options.credentials));
  worker->link_ = std::make_unique<TrackerLink>(trackers, options.credentials, MakeReport(options),
                                                &worker->table_, &worker->guard_);
  worker->service_ =
      std::make_unique<WorkerServiceImpl>(runner, &worker->options_.credentials, &worker->table_,
                                          worker->link_.get(), &worker->metrics_);
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  UsePings(&builder);
  LimitServer(&builder, "heddle-worker");
  ListenerOptions listener;
  listener.address = options.listen;
  listener.credentials = options.credentials;
  listener.refused = [](const Identity& caller, const std::string& method,
                        const absl::Status& why) {
    spdlog::debug("{} is refused {}: {}", ToText(caller), method, std::string(why.message()));
  };
  HEDDLE_ASSIGN_OR_RETURN(worker->door_, AddListener(listener, &builder, &worker->port_));
  builder.RegisterService(worker->service_.get());
  worker->server_ = StartServer(&builder, worker->door_.get());
  if (worker->server_ == nullptr || worker->port_ == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.listen));
  }
  worker->link_->Start(AdvertisedAddress(options, worker->port_));
  WorkerServer* self = worker.get();
  if (const std::string warning = OpenAddressWarning(options.listen, options.credentials);
      !warning.empty())
    spdlog::warn("{}", warning);
  worker->lease_watch_ = std::thread([self] {
    while (!self->stopping_.WaitForNotificationWithTimeout(kLeaseTick))
      self->table_.StopExpired(MonotonicNow());
  });
  worker->metrics_.Read(
      {.slots = static_cast<int>(options.slots.size()),
       .confinement = options.runner.confinement,
       .blobs = options.runner.blobs,
       .running = [self] { return static_cast<int>(self->table_.RunningLeases().size()); },
       .quarantined = [self] { return static_cast<int>(self->guard_.Troubles().size()); },
       .connected = [self] { return self->link_->connected(); },
       .disconnects = [self] { return self->link_->disconnects(); }});
  worker->quarantine_watch_ = std::thread([self] { self->WatchQuarantine(); });
  return worker;
}

absl::Status WorkerServer::Live() const {
  const absl::Duration silent = MonotonicNow() - link_->last_call();
  if (silent < kLongestSilence) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the tracker has not been called for ",
                   absl::FormatDuration(absl::Trunc(silent, absl::Seconds(1)))));
}

absl::Status WorkerServer::Ready() const {
  if (draining_) return absl::UnavailableError("the worker is draining");
  if (link_->connected()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the tracker at ", options_.tracker, " does not answer"));
}

void WorkerServer::Drain(absl::Duration notice) {
  const absl::Time stop_at = MonotonicNow() + notice - std::min(kHandBack, notice / 2);
  draining_ = true;
  table_.Close();
  server_->GetHealthCheckService()->SetServingStatus(false);
  link_->SetLeaving(notice);
  if (absl::Status status = link_->SynchronizeNow(); !status.ok()) {
    spdlog::debug("telling the tracker: {}", std::string(status.message()));
  }
  const absl::Time now = MonotonicNow();
  table_.StopLate(stop_at - now, now, "the worker leaves before the stage would end");
  if (!table_.WaitEmpty(stop_at - now)) {
    spdlog::info("stopping the stages that still run");
    table_.StopAll("the worker is shutting down");
  }
}

WorkerServer::~WorkerServer() {
  table_.Close();
  table_.StopAll("the worker is shutting down");
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kShutdownLimit);
  server_.reset();
  service_.reset();
  stopping_.Notify();
  if (lease_watch_.joinable()) lease_watch_.join();
  if (quarantine_watch_.joinable()) quarantine_watch_.join();
}

void WorkerServer::WatchQuarantine() {
  const SlotGuardOptions& guard = options_.guard;
  while (!stopping_.WaitForNotificationWithTimeout(guard.check_every)) {
    for (const auto& [name, reason] : guard_.Troubles()) {
      // Cores on which this worker runs a stage are busy with that, so their canaries prove
      // nothing.
      const std::vector<int> cores = table_.IdleCores(*table_.FindSlot(name));
      if (cores.empty()) continue;
      const Reading before = options_.read(cores);
      if (stopping_.WaitForNotificationWithTimeout(guard.check_for)) return;
      guard_.Check(name, before, options_.read(cores));
    }
  }
}

}  // namespace heddle::worker
