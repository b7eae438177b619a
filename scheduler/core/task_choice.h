// Chooses the task that gets the next trials of a job: the one expected to save the most time of
// the whole model per second of device time. Pure: the same curves give the same choice.
//
// The method follows Ansor's task scheduler (Zheng et al., OSDI 2020, section 6): the gradient of
// the weighted sum of best times. The backward term is how fast the best time fell over the latest
// trials. The forward term is optimistic: the best time keeps falling with 1/trials towards a
// bound, which is given by the FLOP/s that similar tasks reached. There are two differences. The
// gain is divided by the device time of a trial, and exploration is deterministic: every task first gets
// a minimum of trials, and every 16th round goes to the task with the fewest. Of the tasks below the minimum, the
// one that takes the largest part of the model's time comes first, since a job's time may end before all have theirs.
// A time that is not known yet is estimated by the FLOP/s that similar tasks reached.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace heddle::scheduler {

// One point of the curve of the best time over trials. A curve has points only where the time fell.
struct CurvePoint {
  int trials = 0;  // records known at the start included
  double best_ns = 0;
};

// Best time after `trials` trials, 0 where none was valid yet.
double BestAt(absl::Span<const CurvePoint> curve, int trials);

// No gain of more than 1 % over the last `window` trials.
bool OnPlateau(absl::Span<const CurvePoint> curve, int trials, int window);

struct ChoiceTask {
  bool eligible = true;  // false: not a candidate, but counts when similar tasks are compared
  double weight = 1;     // uses in the model
  double flops = 0;      // of one execution; 0: unknown
  int trials = 0;        // records known at the start included
  absl::Span<const CurvePoint> curve;
  // Device time of one trial; 0: unknown, then the mean of the other tasks is used.
  double device_ns = 0;
};

struct ChoiceOptions {
  int batch = 16;    // size of the round to be granted
  int floor = 16;    // trials every task gets before gains decide
  int64_t turn = 0;  // rounds granted so far; every 16th goes to the task with the fewest trials
};

// Time of the model, in ns, that one more trial of the task is expected to save. `bound_ns` is the
// time to which the task may still fall, 0 if unknown.
double ExpectedGain(const ChoiceTask& task, double bound_ns, int batch);

// Position of the chosen task; nullopt if none is eligible. Of equal tasks, the first.
std::optional<size_t> ChooseTask(absl::Span<const ChoiceTask> tasks, const ChoiceOptions& options);

// Most trials of one task in a job with gradient allocation, known records included.
int GradientCap(int trials_per_task);

// Limits on the trials of a job with gradient allocation. `known` holds, for each task, the number
// of records that exist already. Each known record counts as a trial, up to GradientCap for a task.
// A task without records always gets its floor, even if the records of the other tasks use up the
// total. A task with a few records does not: if the same job is submitted again, it should measure
// nothing, even where a small space had fewer points than the floor.
struct GradientBudget {
  int floor = 0;  // trials every task gets
  int total = 0;  // trials the job may measure
};
GradientBudget MakeGradientBudget(int trials_per_task, int batch, absl::Span<const int> known);

}  // namespace heddle::scheduler
