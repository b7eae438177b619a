#include "tracker/metrics.h"

#include <map>
#include <memory>
#include <string>

namespace heddle::tracker {
namespace {

constexpr char kCpuPool[] = "cpu";
constexpr const char* kStates[] = {"free", "held", "blocked", "draining", "quarantined"};

std::string StateText(SlotState state) { return kStates[static_cast<int>(state)]; }

}  // namespace

void AddTrackerMetrics(TrackerServiceImpl* service, Metrics* metrics) {
  const Gauge workers =
      metrics->AddGauge("heddle_tracker_workers", "Workers that report to the tracker.");
  const Gauge watches = metrics->AddGauge("heddle_tracker_watches",
                                          "Schedulers and people that watch the list of workers.");
  const Gauge serves =
      metrics->AddGauge("heddle_tracker_serves",
                        "1: the tracker serves; 0: it stands by, since it is not appointed.");
  const auto requests = [metrics](const char* result) {
    return metrics->AddCounter("heddle_tracker_lease_requests_total",
                               "Requests for a lease, by result.", {{"result", result}});
  };
  const Counter granted = requests("granted"), refused = requests("refused");
  const Counter expired = metrics->AddCounter("heddle_tracker_leases_expired_total",
                                              "Leases that ran out because nobody renewed them.");
  const Counter lost = metrics->AddCounter("heddle_tracker_workers_lost_total",
                                           "Workers that were dropped for their silence.");
  // By pool and state. A pool whose workers are gone is shown with 0; the pool "cpu" always is.
  // Used by one thread at a time.
  struct Pools {
    FewNames few;
    std::map<std::string, std::map<std::string, int>> slots;
  };
  const auto pools = std::make_shared<Pools>();
  metrics->BeforeText([=] {
    const TrackerServiceImpl::Summary summary = service->Summarize();
    workers.Set(static_cast<double>(summary.workers.size()));
    watches.Set(summary.watches);
    serves.Set(summary.serves ? 1 : 0);
    granted.RaiseTo(static_cast<double>(summary.leases_granted));
    refused.RaiseTo(static_cast<double>(summary.leases_refused));
    expired.RaiseTo(static_cast<double>(summary.leases_expired));
    lost.RaiseTo(static_cast<double>(summary.workers_lost));
    for (auto& [pool, states] : pools->slots) states.clear();
    pools->slots[kCpuPool];
    for (const WorkerView& worker : summary.workers) {
      for (const SlotView& slot : worker.slots) {
        const bool device = slot.spec.kind == SlotKind::kDevice;
        const std::string pool = device ? pools->few(slot.spec.device_key) : kCpuPool;
        ++pools->slots[pool][StateText(slot.state)];
      }
    }
    for (auto& [pool, states] : pools->slots) {
      for (const char* state : kStates) {
        metrics
            ->AddGauge("heddle_tracker_slots", "Slots that workers offer, by state.",
                       {{"pool", pool}, {"state", state}})
            .Set(states[state]);
      }
    }
  });
}

}  // namespace heddle::tracker
