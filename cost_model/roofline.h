// An analytic estimate of a candidate's speed, before anything was measured: the time its
// instructions and its traffic would take, whatever is longest. It knows no constants of a machine
// but those of the target, so that its scores order candidates of one task and mean nothing else.
#pragma once

#include <vector>

namespace heddle::cost_model {

// Minus the binary logarithm of the estimated cycles of the longest core; higher is faster.
// `features` are those of the whole FeatureTable().
//   cycles = max(instructions x spills, bytes from beyond L1 / 32, bytes from beyond L2 / 8)
//            / parallelism
// Two instructions a cycle with registers enough; more copies of the register tile than there are
// registers cost a load and a store each (spills). Parallelism is the share of the threads that the
// parallel loops keep busy.
float RooflineScore(const std::vector<float>& features);

}  // namespace heddle::cost_model
