// The figures by which the scheduler is evaluated: ResNet-18 with the stage times of the thesis
// that Heddle grew from. These are build 8.3 s, profile 39.5 s, update and propose 44.0 s per
// batch; 13 tasks of 2000 trials; 46 candidates per batch give the 14.5 h that it took.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::sim {

struct ThesisRow {
  std::string setup;
  double makespan = 0;  // seconds
  double speedup = 1;   // jobs tuned in the time, relative to one job alone
  double bound = 1;     // upper bound on the speedup: the busiest resource never idles
  double client_idle = 0, device_idle = 0, disturbed = 0;  // shares
  std::string wanted;                                      // the requirement; empty: there is none
  bool met = true;
};

// `policy` is used for the coordinated rows. The thesis had 2000 trials per task in batches of 46;
// reducing both by the same factor gives the same times from fewer events.
absl::StatusOr<std::vector<ThesisRow>> ThesisRows(const std::string& policy, int trials, int batch);
std::string ThesisTable(const std::string& policy, const std::vector<ThesisRow>& rows);

}  // namespace heddle::sim
