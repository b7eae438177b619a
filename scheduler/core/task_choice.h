// Which task of a job the next trials should go to: the one expected to save the most time of the
// whole model per second of device time. Pure: the same curves give the same choice.
//
// The shape is that of Ansor's task scheduler (Zheng et al., OSDI 2020, section 6): a gradient of
// the weighted sum of best times, of which one part looks back (how fast the best time fell over
// the latest trials) and one part ahead (an optimistic bound: it goes on falling with 1/trials
// towards the FLOP/s that similar tasks reached). Here it is divided by what a trial costs on the
// device, and exploration is a floor and a fixed turn instead of chance.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace heddle::scheduler {

// The best time after so many trials; only where it fell.
struct CurvePoint {
  int trials = 0;  // records known at the start included
  double best_ns = 0;
};

// Best time after `trials` trials, 0 where none was valid yet.
double BestAt(absl::Span<const CurvePoint> curve, int trials);

// No gain of more than 1 % over the last `window` trials.
bool OnPlateau(absl::Span<const CurvePoint> curve, int trials, int window);

struct ChoiceTask {
  bool eligible = true;  // may be chosen; the others only say what is similar
  double weight = 1;     // uses in the model
  double flops = 0;      // of one execution; 0: unknown
  int trials = 0;        // records known at the start included
  absl::Span<const CurvePoint> curve;
  double device_ns = 0;  // device time of one trial; 0: unknown, taken as the mean of the others
};

struct ChoiceOptions {
  int batch = 16;    // trials of the round that is given away
  int floor = 16;    // trials every task gets before gains are compared
  int64_t turn = 0;  // rounds given away so far: every 16th goes to the task with the fewest trials
};

// Time of the model that one more trial is expected to save, in ns. `bound_ns`: the time the task
// may fall to, 0 where nothing is known.
double ExpectedGain(const ChoiceTask& task, double bound_ns, int batch);

// Position of the chosen task; nullopt if none is eligible. Equal tasks: the first.
std::optional<size_t> ChooseTask(absl::Span<const ChoiceTask> tasks, const ChoiceOptions& options);

// Trials no task of a gradient job exceeds, known records included.
int GradientCap(int trials_per_task);

// How a gradient job's trials are limited. Each of `known` is the number of records a task of the
// job has from elsewhere; every one is a trial less, up to the cap of a task. However many the
// others have, a task without any is owed its floor; a task with a few is not, so that the same job
// submitted again measures nothing, also where a small space had fewer points than the floor.
struct GradientBudget {
  int floor = 0;  // trials every task gets
  int total = 0;  // trials the job may measure
};
GradientBudget MakeGradientBudget(int trials_per_task, int batch, absl::Span<const int> known);

}  // namespace heddle::scheduler
