// Times modules of one model in turns, so that changes of the machine's speed affect all of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/runtime/executor.h"

namespace heddle::client {

struct ModuleTiming {
  std::vector<double> samples_ns;  // one per round: mean of one inference
  std::vector<double> call_ns;     // per entry of the manifest's calls: median over the rounds
  double Median() const;
  double Percentile(double p) const;
};

// One warm-up inference each, then `rounds` rounds over all executors. A sample takes at least 50
// ms. If interrupted, returns the rounds so far.
std::vector<ModuleTiming> TimeInTurns(const std::vector<runtime::Executor*>& executors, int rounds);

struct TaskTiming {
  std::string task;  // workload key, or a pseudo-key for kernels without one
  std::string label;
  int uses = 0;
  double flops = 0;        // of one use
  std::vector<double> ns;  // per module: mean time of one use; 0 where the module lacks the task
};
// Sums calls by task over all modules, in the first module's order of execution.
std::vector<TaskTiming> TimeByTask(const std::vector<runtime::Executor*>& executors,
                                   const std::vector<ModuleTiming>& timings);

std::string CpuName();  // "AMD EPYC .."

}  // namespace heddle::client
