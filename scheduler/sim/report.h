// Reports on simulated runs, for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "scheduler/sim/world/world.h"

namespace heddle::sim {

struct Report {
  std::string policy;
  double makespan = 0;         // seconds, from the first arrival to the last end
  double mean_completion = 0;  // seconds from a job's arrival to its end
  double p95_completion = 0;
  double cpu_busy = 0, device_busy = 0;  // mean share of the makespan at work, over useful slots
  double cpu_held = 0, device_held = 0;  // leased
  double fairness = 1;                   // see below
  double disturbed = 0;                  // share of measurements
  int64_t trials = 0;
  int deadlines = 0, deadlines_met = 0;
  WaitSeconds waiting;
  std::vector<double> busy;  // per slot
  int64_t fail_overs = 0, preemptions = 0, batch_starts = 0;
  double node_hours = 0;  // of batch systems
  Spread queued;          // virtual seconds from events to decisions
  Spread decisions;       // seconds of this machine, if it was measured
  Spread take_overs;      // likewise
  double busiest = 0;     // cores that the busiest scheduler needs to decide in time, likewise
};

// Fairness: users that have work at the same time should be served alike. It is Jain's index
// (sum x)^2 / (n sum x^2), where x is the slot-seconds that a user got per second with an
// unfinished job. With a single user, x is per job. 1: all alike; 1/n: one has everything.
Report MakeReport(const Scenario& scenario, const std::string& policy, const WorldResult& result);

// A table with a row per figure and a column per policy.
std::string ReportTable(const Scenario& scenario, const std::vector<Report>& reports);
nlohmann::json ReportJson(const Scenario& scenario, const Report& report,
                          const WorldResult& result);

// A time such as "14.34 h", in the unit that suits the larger of `seconds` and `like`.
std::string HumanSeconds(double seconds, double like = 0);

}  // namespace heddle::sim
