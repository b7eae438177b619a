// The commands of heddle-search-bench that run on the machine itself, except collecting.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace heddle::bench {

struct LiveFlags {
  std::vector<std::string> names;
  std::vector<std::string> methods;
  std::vector<int> cpus;
  int seeds = 3;
  int trials = 200;
};

// Runs methods live (live.h), in turns, seed after seed; prints a line each.
absl::Status RunLives(const LiveFlags& flags);

struct TimeFlags {
  std::vector<std::string> names;
  std::vector<std::string> methods;
  int records = 1000;
  int batch = 64;
};

// Times the search itself on one core; prints a line for each operator and method.
absl::Status RunTime(const TimeFlags& flags);

}  // namespace heddle::bench
