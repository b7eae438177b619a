// What operators ask of a worker, for /metrics (base/daemon/metrics.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/daemon/metrics.h"
#include "proto/worker.pb.h"
#include "worker/confine/mechanisms.h"
#include "worker/supervisor/blob_cache.h"

namespace heddle::worker {

// Thread-safe.
class WorkerMetrics {
 public:
  WorkerMetrics();
  Metrics* registry() { return &registry_; }

  // `interrupted`: the lease or the worker ended, not the work.
  void StageEnded(v1::StageKind kind, const v1::StageFinished& end, bool interrupted);
  // The stage was not let in.
  void StageRefused(const absl::Status& why);

  // What is read when somebody asks; these are called from the threads that serve /metrics.
  struct Sources {
    int slots = 0;
    confine::Confinement confinement{};  // of the stages
    BlobCache* blobs = nullptr;          // not owned; null: there is no cache
    std::function<int()> running;        // stages
    std::function<int()> quarantined;    // slots
    std::function<bool()> connected;     // to the tracker
    std::function<int64_t()> disconnects;
  };
  void Read(Sources sources);

 private:
  Metrics registry_;
};

}  // namespace heddle::worker
