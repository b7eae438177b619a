// Draws simulated runs as SVG: for each a Gantt chart (a row per slot, a colour per job, a shade
// per stage) and, below it, how many of the CPU and device slots are at work over time. All runs
// share one time axis, so that policies can be compared by eye.
#pragma once

#include <string>
#include <vector>

#include "scheduler/sim/world/world.h"

namespace heddle::sim {

struct PlotRun {
  std::string title;  // the policy and its figures
  const WorldResult* result;
};

// Range of the time axis in seconds. End 0: until the end of the last run.
struct PlotWindow {
  double begin = 0, end = 0;
};

std::string Plot(const Scenario& scenario, const std::vector<PlotRun>& runs, PlotWindow window);

}  // namespace heddle::sim
