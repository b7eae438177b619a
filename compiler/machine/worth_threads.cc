#include "compiler/machine/worth_threads.h"

#include <algorithm>

namespace heddle::machine {

double NsAlone(const CoreWork& work, const TargetInfo& target) {
  const CoreSpeed& core = target.core;
  const double rate = work.bytes <= static_cast<double>(target.l2_bytes) ? core.l2_bytes_per_cycle
                                                                         : core.l3_bytes_per_cycle;
  return std::max(work.cycles, work.bytes / rate) / core.clock_ghz;
}

bool WorthThreads(double alone_ns, const TargetInfo& target) {
  const int threads = target.target.threads;
  return threads > 1 && alone_ns * (1 - 1.0 / threads) > target.core.wake_ns;
}

}  // namespace heddle::machine
