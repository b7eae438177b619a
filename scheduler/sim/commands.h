// The commands of heddle-sim. Each returns an exit status of docs/simulator.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::sim {

struct Flags {
  std::string scenario;  // file; or `replay`
  std::string replay;    // file: a trace of `heddle jobs trace`
  std::vector<std::string> policies;
  bool json = false;
  std::string plot;            // file
  std::vector<double> window;  // begin and end of the plot, in seconds
  int depth = 0;               // 0: the scenario's
  bool clock = false;          // measure how long decisions take
  bool has_seed = false;
  uint64_t seed = 1;
  uint64_t fuzz = 0;  // number of seeds
  std::string planted = "none";
  int threads = 0;  // 0: one per core
  bool thesis = false;
  int deadlines = 0;  // number of instances
};

int RunScenarios(const Flags& flags);
int RunThesis(const Flags& flags);
int RunDeadlines(const Flags& flags);
int RunFuzz(const Flags& flags);

}  // namespace heddle::sim
