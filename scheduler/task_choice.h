// Which task of a job the next trials should go to: the one expected to save the most time of the
// whole model per second of device time. Pure: the same curves give the same choice.
//
// The shape is that of Ansor's task scheduler (Zheng et al., OSDI 2020, section 6): a gradient of
// the weighted sum of best times, of which one part looks back (how fast the best time fell over
// the latest trials) and one part ahead (an optimistic bound: it might go on falling in proportion
// to 1/trials, but not beyond the FLOP/s that similar tasks reached). Ours is divided by what a
// trial costs on the device, and its exploration is a floor and a fixed turn instead of chance.
#pragma once

#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace heddle::scheduler {

// The best time after so many trials; only where it fell.
struct CurvePoint {
  int trials = 0;  // records known at the start included
  double best_ns = 0;
};

}  // namespace heddle::scheduler
