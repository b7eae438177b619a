// A whole worker: table, link, service, server. Made by main and by tests.
#pragma once

#include <grpcpp/server.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "proto/access/credentials.h"
#include "proto/access/peer_door.h"
#include "worker/supervisor/metrics.h"
#include "worker/supervisor/slot_guard.h"
#include "worker/supervisor/stage_runner.h"
#include "worker/supervisor/stage_table.h"
#include "worker/supervisor/tracker_link.h"
#include "worker/supervisor/worker_service.h"

namespace heddle::worker {

struct WorkerOptions {
  std::string tracker;                 // host:port, or several, separated by commas
  std::string listen = "127.0.0.1:0";  // port 0: a free one; or "unix:/path"
  Credentials credentials;             // for the tracker, and for those who call
  // The address by which others reach this worker: HOST or HOST:PORT. Empty: the host of `listen`.
  // Without a port: the port that it listens on.
  std::string advertise;
  std::string id;
  std::string version;
  std::vector<SlotConfig> slots;
  std::string device_key;           // of device slots made of cores
  std::string target;               // likewise; canonical, without -threads
  std::string machine;              // likewise; what was measured of them (Slot.machine)
  std::vector<std::string> builds;  // kinds of targets that this host has compilers for
  RunnerOptions runner;             // its guard is replaced by the server's
  SlotGuardOptions guard;
  // Reads the cores; tests replace it.
  std::function<Reading(const std::vector<int>&)> read = TakeReading;
  std::vector<int> own_cores;  // where the worker's own threads run
};

class WorkerServer {
 public:
  // Listens and begins to call the tracker, which need not run yet. Ignores SIGPIPE in the whole
  // process. Unavailable if it cannot listen there, InvalidArgument if it must not (AddListener).
  static absl::StatusOr<std::unique_ptr<WorkerServer>> Start(const WorkerOptions& options);
  // Stops all running stages.
  ~WorkerServer();

  // Ends the worker's work within `notice`, after which its machine may be gone. The worker refuses new stages and
  // tells the tracker and the health service. It hands stages that will hardly end in time back at once. It lets the other
  // stages run, and hands back what still runs three seconds before the end. No candidate is blamed for that.
  void Drain(absl::Duration notice);

  // Not OK: the worker has not called the tracker for much longer than ever happens.
  absl::Status Live() const;
  // Not OK: the worker gets no stages, since it drains or the tracker does not answer.
  absl::Status Ready() const;
  Metrics* metrics() { return metrics_.registry(); }

  int port() const { return port_; }
  const TrackerLink& link() const { return *link_; }

 private:
  explicit WorkerServer(const WorkerOptions& options)
      : options_(options), table_(options.slots), guard_(options.guard) {}
  // Runs canaries on slots in quarantine until the server ends.
  void WatchQuarantine();

  const WorkerOptions options_;
  StageTable table_;
  SlotGuard guard_;
  WorkerMetrics metrics_;
  std::unique_ptr<TrackerLink> link_;
  std::unique_ptr<WorkerServiceImpl> service_;
  std::unique_ptr<PeerDoor> door_;  // null unless it serves at a UNIX socket
  std::unique_ptr<grpc::Server> server_;
  absl::Notification stopping_;
  std::thread lease_watch_;
  std::thread quarantine_watch_;
  std::atomic<bool> draining_ = false;
  int port_ = 0;
};

}  // namespace heddle::worker
