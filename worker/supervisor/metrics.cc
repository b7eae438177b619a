#include "worker/supervisor/metrics.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace heddle::worker {
namespace {

// "STAGE_BUILD" becomes "build".
std::string EnumText(const std::string& name, const char* prefix) {
  return absl::AsciiStrToLower(absl::StripPrefix(name, prefix));
}

std::string StageText(v1::StageKind kind) { return EnumText(v1::StageKind_Name(kind), "STAGE_"); }

Counter StageCounter(Metrics* metrics, v1::StageKind kind, const std::string& result) {
  return metrics->AddCounter("heddle_worker_stages_total",
                             "Stages that have ended on this worker, by kind and result.",
                             {{"stage", StageText(kind)}, {"result", result}});
}

Histogram StageSeconds(Metrics* metrics, v1::StageKind kind) {
  return metrics->AddHistogram("heddle_worker_stage_duration_seconds",
                               "How long stages ran on this worker.", kSlowSeconds,
                               {{"stage", StageText(kind)}});
}

Counter RefusedStages(Metrics* metrics, const std::string& reason) {
  return metrics->AddCounter("heddle_worker_refused_stages_total",
                             "Stages that were not let in: without a lease, on a slot that is "
                             "busy, while the worker drains, or malformed.",
                             {{"reason", reason}});
}

}  // namespace

WorkerMetrics::WorkerMetrics() : registry_("heddle-worker") {
  for (int kind = v1::STAGE_IMPORT; kind <= v1::StageKind_MAX; ++kind) {
    for (const char* result : {"ok", "interrupted", "infrastructure", "user"})
      StageCounter(&registry_, static_cast<v1::StageKind>(kind), result);
    StageSeconds(&registry_, static_cast<v1::StageKind>(kind));
  }
  for (const char* reason : {"lease", "busy", "draining", "malformed"})
    RefusedStages(&registry_, reason);
}

void WorkerMetrics::StageEnded(v1::StageKind kind, const v1::StageFinished& end, bool interrupted) {
  const std::string result = end.fault().kind() == v1::FAULT_NONE ? "ok"
                             : interrupted
                                 ? "interrupted"
                                 : EnumText(v1::FaultKind_Name(end.fault().kind()), "FAULT_");
  StageCounter(&registry_, kind, result).Add();
  StageSeconds(&registry_, kind).Observe(static_cast<double>(end.wall_ns()) * 1e-9);
}

void WorkerMetrics::StageRefused(const absl::Status& why) {
  const char* reason = "malformed";
  if (absl::IsFailedPrecondition(why)) reason = "lease";
  if (absl::IsResourceExhausted(why)) reason = "busy";
  if (absl::IsUnavailable(why)) reason = "draining";
  RefusedStages(&registry_, reason).Add();
}

void WorkerMetrics::Read(Sources sources) {
  Metrics* const metrics = &registry_;
  metrics->AddGauge("heddle_worker_slots", "Slots that this worker offers.").Set(sources.slots);
  const auto confined = [&](const char* mechanism, bool on) {
    metrics
        ->AddGauge("heddle_worker_confinement",
                   "1 if this mechanism confines the stages of this worker, else 0.",
                   {{"mechanism", mechanism}})
        .Set(on ? 1 : 0);
  };
  confined("user", sources.confinement.user);
  confined("namespaces", sources.confinement.namespaces);
  confined("landlock", sources.confinement.landlock);
  confined("filter", sources.confinement.filter);
  confined("cgroup", sources.confinement.cgroup);
  const Gauge running = metrics->AddGauge("heddle_worker_running_stages", "Stages that run now.");
  const Gauge quarantined =
      metrics->AddGauge("heddle_worker_quarantined_slots", "Slots in quarantine.");
  const Gauge connected = metrics->AddGauge("heddle_worker_tracker_connected",
                                            "1 while the tracker answers this worker, else 0.");
  const Counter disconnects = metrics->AddCounter("heddle_worker_tracker_disconnects_total",
                                                  "How often the tracker stopped answering.");
  metrics->BeforeText([=] {
    running.Set(sources.running());
    quarantined.Set(sources.quarantined());
    connected.Set(sources.connected() ? 1 : 0);
    disconnects.RaiseTo(static_cast<double>(sources.disconnects()));
  });
  if (sources.blobs == nullptr) return;
  const auto requests = [&](const char* result) {
    return metrics->AddCounter("heddle_worker_blob_requests_total",
                               "Parts of models that stages needed, by whether the cache had them.",
                               {{"result", result}});
  };
  const Counter hits = requests("hit"), misses = requests("miss");
  const Gauge bytes =
      metrics->AddGauge("heddle_worker_blob_cache_bytes", "What the cache of model parts holds.");
  const Gauge free_bytes =
      metrics->AddGauge("heddle_worker_disk_free_bytes", "Free space on the disk of that cache.");
  metrics->BeforeText([=, blobs = sources.blobs] {
    const BlobCache::Counts counts = blobs->counts();
    hits.RaiseTo(static_cast<double>(counts.hits));
    misses.RaiseTo(static_cast<double>(counts.misses));
    bytes.Set(static_cast<double>(counts.bytes));
    free_bytes.Set(static_cast<double>(counts.free_bytes));
  });
}

}  // namespace heddle::worker
