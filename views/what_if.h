// The page that tells what one more slot or another policy would do to the queue.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "views/html.h"

namespace heddle::views {

struct WhatIf {
  // The queue under one assumption.
  struct World {
    std::string name;   // "as it is", "one more device slot (KEY)", "policy round_robin"
    double mean_s = 0;  // from now to the end of a job, in the mean over all jobs
    double all_s = 0;   // from now to the end of the last job
  };
  struct Job {
    std::string id, name, user;
    double eta_s = 0;  // as the scheduler estimates it without a simulation; 0: it does not
    std::vector<double> end_s;  // from now to its end, in each world
  };
  std::string missing;        // why nothing was simulated; empty: something was
  int64_t made_unix_ns = 0;   // when the queue was read
  double took_s = 0;          // that the simulation took
  std::vector<World> worlds;  // the first is the queue as it is; others have one change each
  std::vector<Job> jobs;      // that were simulated, the oldest first
  int64_t simulated = 0;      // their number, with those that the reader may not see
  // Jobs that were not simulated, with the reason: "2 paused".
  std::vector<std::string> left_out;
  int trials_as_one = 1;  // so many trials of a task were simulated as one
};

// `what_if` may be null: the first simulation is not ready yet.
Html WhatIfPage(const WhatIf* what_if);

}  // namespace heddle::views
