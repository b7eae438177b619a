// Whether work is worth more than one thread. Default schedules ask it of every stage, and the costs of plans of every kernel.
// A search tries both.
//
// On one core, the work takes
//
//   alone = max(cycles / clock, bytes / rate),
//
// where the rate is that of the second-level cache if the bytes fit there, and else that beyond it. T threads take alone / T and
// save the rest, if all is shared out evenly. They pay for waking and for waiting for the last one. So several threads are
// worth it if
//
//   alone * (1 - 1 / T) > wake_ns.
//
// The figures are those of CoreSpeed: a worker has measured them, what waking costs included, or they are the reference
// machine's.
#pragma once

#include "compiler/machine/target_info.h"

namespace heddle::machine {

// What work does on one core.
struct CoreWork {
  double cycles = 0;  // of arithmetic and of looking up
  // Bytes of inputs and results. Constants are not among them: which cache they come from depends on what else the model
  // reads, and each of their elements is an operation, which counts above.
  double bytes = 0;
};

// In nanoseconds.
double NsAlone(const CoreWork& work, const TargetInfo& target);

// Whether work that takes one thread `alone_ns` is done sooner by all threads of the target. False if the target has one
// thread.
bool WorthThreads(double alone_ns, const TargetInfo& target);
inline bool WorthThreads(const CoreWork& work, const TargetInfo& target) {
  return WorthThreads(NsAlone(work, target), target);
}

}  // namespace heddle::machine
