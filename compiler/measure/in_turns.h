// Times modules of one model in turns, so that changes of the machine's speed affect all of them, and
// says how sure a difference is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compiler/runtime/executor.h"

namespace heddle {

// A block of rows (Manifest::CallsOf) as it is timed.
struct TimedBlock {
  size_t block = 0;
  int64_t runs = 1;  // how often it counts
};

struct ModuleTiming {
  std::vector<double> samples_ns;  // one per round: mean of one inference
  std::vector<TimedBlock> blocks;
  // Per call of these blocks, one block after the other: one per round.
  std::vector<std::vector<double>> calls_ns;
  double Median() const;
  double Percentile(double p) const;  // p in [0, 100], nearest rank
};

struct Turns {
  int rounds = 20;
  // No further round begins after this time, once there are `least_rounds`.
  absl::Duration limit = absl::InfiniteDuration();
  int least_rounds = 1;
  std::function<bool()> stop = nullptr;  // asked before each round; true: the rounds so far must do
};
// For a comparison that decides: at least seven rounds, and up to twenty in five seconds.
Turns ComparisonTurns();

struct Contestant {
  const runtime::Module* module = nullptr;
  runtime::Executor::Options options;
  std::vector<std::string> inputs;  // dense bytes; one that does not fit its tensor is left out
  // The block of rows to time, whose inputs are given. 0: all blocks, each as often as gives them the same number of rows
  // (RunsOfBlock); the inputs are those of the largest one.
  int64_t rows = 0;
};
// The number of rows that one run of the module's largest block computes. Of a module without independent rows: the extent of
// dimension 0 of the first input, or 1 if that has no dimension.
int64_t RowsOfRun(const runtime::Manifest& manifest);
// A module without independent rows has one block, of RowsOfRun rows. InvalidArgument, in one line: the module has
// no block of contestant.rows rows.
absl::StatusOr<std::vector<TimedBlock>> BlocksOf(const Contestant& contestant);

// Rounds over all modules, each round in the reverse order of the one before. In a round, a module is
// loaded, warmed up by one inference, run for at least 50 ms as a whole, and run again with its calls
// timed; then it is unloaded. Blocks of rows share that time. All of that is with warm caches: one inference follows the other.
//
// Loading anew matters. Where a module's memory lies decides up to a tenth of its time (in a virtual
// machine, a large page may still consist of small ones of the host). Of two modules that are loaded side
// by side, the first is the faster one as a rule; of two that are loaded in turns, each gets the memory
// that the other has just given back.
//
// Errors are those of loading and running, and of BlocksOf.
absl::StatusOr<std::vector<ModuleTiming>> TimeInTurns(const std::vector<Contestant>& contestants,
                                                      const Turns& turns);

struct TaskTiming {
  std::string task;  // workload key, or a pseudo-key for kernels without one
  std::string label;
  double flops = 0;                            // of one use
  bool tuned = false;                          // in the first module
  std::vector<int> uses;                       // per module; 0: it lacks the task
  std::vector<std::vector<double>> rounds_ns;  // per module: time of all uses, one per round
  // Median time of one use in that module; 0 where it lacks the task.
  double Ns(size_t module) const;
};
// Sums calls by task over all modules, in the first module's order of execution.
std::vector<TaskTiming> TimeByTask(const std::vector<Contestant>& contestants,
                                   const std::vector<ModuleTiming>& timings);

// The median of the ratios first[i] / second[i], and an interval that holds the true median with a
// probability of at least 95 % if the rounds are independent. The interval's ends are order statistics
// (the sign test; Conover 1999, section 3.2), so no distribution is assumed. With fewer than six rounds
// it is from the least to the greatest ratio and less sure.
struct Ratio {
  double median = 0;
  double low = 0;
  double high = 0;
  int rounds = 0;
};
Ratio RatioOf(const std::vector<double>& first, const std::vector<double>& second);

// Random elements, determined by the seed: of TensorSpec::samples, where there are any; else floats uniform in [-1, 1) and integers
// in 0..7.
std::string RandomTensor(const runtime::TensorSpec& spec, uint64_t seed);

}  // namespace heddle
