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

// Short: a search looks for what is much faster, and what is best is measured again.
runtime::TimingOptions CollectTiming();

struct CollectOptions {
  int candidates = 2000;
  absl::Duration time = absl::InfiniteDuration();  // no batch is begun after that
  uint64_t seed = 0;
  std::vector<int> cpus;
  std::vector<int> build_cpus;
  std::string device_key;
  std::string command;  // for the header
  int check = 64;       // of the best, measured again
  std::function<void(int have, double best_ns)>
      progress;  // after each batch of some hundred, when set
};

struct Collected {
  int have = 0;     // candidates in the table
  int fresh = 0;    // of these, measured now
  int checked = 0;  // measured again now
  double seconds = 0;
  bool complete =
      false;  // as many as asked for, or the space has no more; and the best are checked
};

// Goes on with the table at `path` if there is one; FailedPrecondition if that is of another
// workload, target or space. First candidates drawn at random, then mutations of good ones, none of
// them selected by a model; no trace twice.
//
// Times are made comparable over a run, and over runs: after every few candidates the default
// schedule is measured, and times are divided by its time around them. Those around which it
// differs by more than a tenth are measured again, at most twice; the calmest attempt counts.
// Candidates much slower than the best cost little: timing ends after a few milliseconds with the
// sample that is being taken.
//
// The machine may still have been faster just then, and of thousands the luckiest would be the
// best: so when the table has its candidates, its best `check` are measured again, in five turns of
// different order, until all of the best are such as were; the median of their turns counts.
absl::StatusOr<Collected> Collect(const Workload& workload, const machine::TargetInfo& target,
                                  const std::string& path, const CollectOptions& options);

}  // namespace heddle::bench
