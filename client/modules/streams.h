// Runs modules as a server does: several streams, each with an executor of its own, one inference
// after the other, for some time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/modules/latency_histogram.h"
#include "compiler/measure/in_turns.h"

namespace heddle::client {

inline constexpr int kMostStreams = 256;
inline constexpr absl::Duration kLongestRun = absl::Hours(1);

struct StreamOptions {
  int streams = 1;                             // 1..kMostStreams
  absl::Duration duration = absl::Seconds(1);  // for each module; at most kLongestRun
  std::function<bool()> stop;  // asked about ten times a second; true ends the run early
};

struct StreamTiming {
  LatencyHistogram latencies;  // of every inference of all streams
  absl::Duration ran;          // time during which they ran
  double Throughput() const;   // inferences a second, of all streams together
};

// One result for each module. With several modules, each runs for a part of its time and then leaves the
// machine to the next one, so that changes of the machine's speed affect all of them. Each executor is
// warmed up by one inference, which is not counted. Errors are those of loading and running a module,
// and of BlocksOf.
absl::StatusOr<std::vector<StreamTiming>> TimeStreams(const std::vector<Contestant>& contestants,
                                                      const StreamOptions& options);

}  // namespace heddle::client
