// The figures the scheduler is to be measured by: ResNet-18 with the stage times of the thesis that
// Heddle grew from (build 8.3 s, profile 39.5 s, update and propose 44.0 s a batch; 13 tasks of
// 2000 trials; 46 candidates a batch gives the 14.5 h it took).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::sim {

struct ThesisRow {
  std::string setup;
  double makespan = 0;  // seconds
  double speedup = 1;   // jobs tuned in the time, against one job alone
  double bound = 1;     // what no schedule can beat: busiest resource always busy
  double client_idle = 0, device_idle = 0, disturbed = 0;  // shares
  std::string wanted;                                      // empty: nothing is asked of it
  bool met = true;
};

// `policy` for the coordinated rows. 2000 trials a task in batches of 46 as measured; both smaller
// by the same factor give the same times from fewer events.
absl::StatusOr<std::vector<ThesisRow>> ThesisRows(const std::string& policy, int trials, int batch);
std::string ThesisTable(const std::string& policy, const std::vector<ThesisRow>& rows);

}  // namespace heddle::sim
