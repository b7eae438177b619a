// Makes a replay table: measures candidates of one operator, batch after batch.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/common/workloads.h"
#include "bench/search/replay_table.h"
#include "compiler/machine/target_info.h"
#include "compiler/runtime/timing.h"

namespace heddle::bench {

// Short measurements: a search looks for large differences, and the best are measured again.
runtime::TimingOptions CollectTiming();

struct CollectOptions {
  int candidates = 2000;
  absl::Duration time = absl::InfiniteDuration();  // no batch begins after this
  uint64_t seed = 0;
  std::vector<int> cpus;
  std::vector<int> build_cpus;
  std::string device_key;
  std::string command;  // recorded in the header
  int check = 64;       // this many of the best are measured again
  std::function<void(int have, double best_ns)>
      progress;  // called after each batch of some hundred
};

struct Collected {
  int have = 0;     // candidates in the table
  int fresh = 0;    // of these, measured in this run
  int checked = 0;  // measured again in this run
  double seconds = 0;
  bool complete = false;  // as many as requested or as the space has, and the best are checked
};

// Continues the table at `path` if it exists; FailedPrecondition if it has another workload, target
// or space. Candidates are first drawn at random, then mutations of good ones. No model selects
// them, and no trace occurs twice.
//
// Times are comparable within and across runs: the default schedule is measured after every few
// candidates, and times are divided by its times around them. Where these differ by more than a
// tenth, the candidates are measured again, at most twice; the calmest attempt counts. Candidates
// much slower than the best cost little: timing ends after a few milliseconds, with the current
// sample.
//
// A candidate may still have met a fast moment, and among thousands the luckiest would become the
// best. So when the table is full, its best `check` are measured again, in five turns of different
// order, until all of the best have been; the median of the turns counts.
absl::StatusOr<Collected> Collect(const Workload& workload, const machine::TargetInfo& target,
                                  const std::string& path, const CollectOptions& options);

}  // namespace heddle::bench
