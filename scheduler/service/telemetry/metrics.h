// What operators ask of the scheduler, counted for /metrics (base/daemon/metrics.h): how many jobs
// there are, what waits, what the machines do, and what goes wrong. docs/operating.md lists the names.
//
// The label `pool` says which slots a number is about: "cpu", or the device key of device slots.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/daemon/metrics.h"
#include "base/files/blob_store.h"
#include "proto/access/call_limits.h"
#include "proto/access/identity.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/service/stages/lease_keeper.h"
#include "scheduler/service/telemetry/span_exporter.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// What the scheduler loop counts. Belongs to the loop's core thread, but for what says otherwise.
class SchedulerMetrics {
 public:
  SchedulerMetrics();

  // Of all metrics of this process. Thread-safe.
  Metrics& registry() { return registry_; }
  // The store has written a transaction, or refused a record. Thread-safe.
  void Committed(absl::Duration took) { commit_seconds_.Observe(absl::ToDoubleSeconds(took)); }
  void RecordRefused() { refused_records_.Add(); }

  // The jobs that the store had.
  void Begin(const Dispatcher& dispatcher);
  // A step was made, which took this long with all that belongs to it.
  void Observe(const Event& event, const Decisions& decisions, const Dispatcher& dispatcher,
               absl::Duration took, absl::Time now);
  // A stage ended that had begun with StartStage. Returns how: "ok", "cancelled", "interrupted",
  // "not_started", or whose fault it was: "infrastructure", "user", "candidate".
  std::string StageEnded(const StageRow& stage, const StageFinished& end, absl::Time now);
  // Sets the gauges of jobs, queue and slots. Call it with every turn of the loop; it does the work
  // once a second.
  void Refresh(const Dispatcher& dispatcher, absl::Time now);

 private:
  struct Running {
    std::string pool;
    SlotId slot;
    bool cancelled = false;
  };
  void Started(const StartStage& start, absl::Time now);
  void CountMeasurement(const CandidateProfiled& event);
  void CountSlots(const SlotsChanged& event);
  // Adds to the busy time what has passed since the last call.
  void PassTime(absl::Time now);
  std::string PoolOf(const StageWork& work, const Dispatcher& dispatcher);
  std::string DevicePoolOf(const JobParams& params);
  Counter BusySeconds(const std::string& pool);
  Histogram QueueWait(const std::string& pool);

  Metrics registry_;
  const Histogram commit_seconds_;
  const Counter refused_records_;
  const Histogram step_seconds_;
  const Counter submitted_;
  const Gauge tracker_up_;
  const Counter tracker_losses_;

  FewNames few_;     // of device keys that slots have
  FewNames wanted_;  // of device keys and kinds of targets that only jobs have
  bool tracker_reached_ = false;
  std::set<JobId> unfinished_;
  std::map<JobId, absl::Time> lacking_;  // jobs that no device fits, since when
  std::map<SlotId, std::string>
      pools_;  // of the slots that there are, and of those that run stages
  std::map<AttemptId, Running> running_;
  std::map<std::string, int> busy_;  // running stages by pool
  absl::Time passed_ = absl::InfinitePast();
  absl::Time refreshed_ = absl::InfinitePast();
  // The pools that a gauge was ever set for: a pool that is gone is shown with 0.
  std::set<std::string> queues_, slot_pools_;
};

// What is read when somebody asks. The functions are called from the threads that serve /metrics.
struct ServiceSources {
  std::string database;              // its address (scheduler/store/open_store.h)
  const BlobStore* blobs = nullptr;  // not owned
  std::function<LeaseKeeper::Counts()> leases;
  std::function<int64_t()> lost_audit_lines;  // ever
  std::function<absl::Status()> store_problem;
  const SpanExporter* spans = nullptr;  // not owned; null: none are sent
};
void AddServiceMetrics(ServiceSources sources, Metrics* metrics);

// Calls that were refused, by reason. Thread-safe.
class RefusedCalls {
 public:
  explicit RefusedCalls(Metrics* metrics);
  void Count(CallLimits::Refusal refusal) const;
  // The access table refused the call.
  void Count(const absl::Status& why) const;

 private:
  Counter caller_full_, service_full_, slow_peer_, unauthenticated_, denied_;
};

// The state of the job as a label: "tuning", "paused", "done".
std::string StateText(const Job& job);

}  // namespace heddle::scheduler
