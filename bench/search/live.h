// A search method on the machine itself instead of a replay table.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "bench/common/candidate_runner.h"
#include "bench/common/workloads.h"
#include "bench/search/compare.h"
#include "compiler/machine/target_info.h"

namespace heddle::bench {

struct LiveRun {
  // After each trial the best time so far, in the speed the machine had at the first one; 0 before
  // a valid one. The default schedule, everybody's first trial, counts as in SearchRun.
  std::vector<double> best_ns;
  double untuned_ns = 0;
  // One after the other, where a service does them side by side.
  double propose_s = 0, build_s = 0, measure_s = 0, update_s = 0;
};

// Each batch is measured between two measurements of the default schedule, in whose time its own
// are counted: so runs that follow each other compare though the machine's speed changes. `depth`
// and `others` of the options are as for RunSearch.
absl::StatusOr<LiveRun> RunLive(const Workload& workload, const machine::TargetInfo& target,
                                const CandidateRunner::Options& machine, const RunOptions& options);

}  // namespace heddle::bench
