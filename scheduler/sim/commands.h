// What heddle-sim does with its flags. Each returns the exit status of docs/simulator.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::sim {

struct Flags {
  std::string scenario;  // or
  std::string replay;    // a trace of `heddle jobs trace`
  std::vector<std::string> policies;
  bool json = false;
  std::string plot;            // file
  std::vector<double> window;  // of the plot: begin and end, seconds
  int depth = 0;               // 0: the scenario's
  bool has_seed = false;
  uint64_t seed = 1;
  uint64_t fuzz = 0;  // seeds
  std::string planted = "none";
  int threads = 0;  // 0: as many as there are cores
  bool thesis = false;
  int deadlines = 0;  // instances
};

int RunScenarios(const Flags& flags);
int RunThesis(const Flags& flags);
int RunDeadlines(const Flags& flags);
int RunFuzz(const Flags& flags);

}  // namespace heddle::sim
