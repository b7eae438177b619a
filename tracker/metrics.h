// What operators ask of the tracker, for /metrics (base/daemon/metrics.h).
#pragma once

#include "base/daemon/metrics.h"
#include "tracker/tracker_service.h"

namespace heddle::tracker {

// The service must outlive the last Metrics::Text.
void AddTrackerMetrics(TrackerServiceImpl* service, Metrics* metrics);

}  // namespace heddle::tracker
