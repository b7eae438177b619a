// Tunes one workload in this process' children: the loop of the service's stages for a single task.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compiler/machine/target_info.h"

namespace heddle::bench {

struct Finalist {
  std::string trace;
  double median_ns = 0;  // warm
};

struct TuneOptions {
  int trials = 0;
  uint64_t seed = 0;
  std::vector<int> cpus;        // cores of a measurement, as many as the target has threads
  std::vector<int> build_cpus;  // cores to build on, while nothing is measured
  std::string device{};         // as CandidateRunner's
  // No batch begins after it; one on a `device` is cut short.
  absl::Time deadline = absl::InfiniteFuture();
  int finalists = 6;
  std::vector<Finalist> known;  // what earlier runs found; the search learns from it first
  std::function<void(int done, double best_ns)> progress;  // after each batch, when set
};

struct Tuned {
  std::vector<Finalist> finalists;  // fastest first; none if nothing valid was found
  int measured = 0;
  int failed = 0;
  std::string first_error;  // of the failed ones
  struct Trial {
    std::string trace;
    absl::StatusOr<double> median_ns;
  };
  std::vector<Trial> log;  // all of them, in order
};

// Stops early when the space is exhausted. Candidates that crash, hang or compute nonsense fail.
absl::StatusOr<Tuned> Tune(const std::string& workload, const machine::TargetInfo& target,
                           const TuneOptions& options);

}  // namespace heddle::bench
