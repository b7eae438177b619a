#include "scheduler/sim/deadlines.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/sim/report.h"

namespace heddle::sim {
namespace {

Scenario RandomLoad(Dice* dice) {
  Scenario scenario;
  auto slot = [&](const std::string& worker, const std::string& id, int core, bool device) {
    SimSlot made;
    made.info.id = {worker, id};
    made.info.host = worker;
    made.info.device = device;
    made.info.cores = {core};
    if (device) made.info.device_key = "d", made.info.target = "llvm -mcpu=any";
    scenario.slots.push_back(std::move(made));
  };
  const int cpus = 1 + dice->Below(2);
  for (int c = 0; c < cpus; ++c) slot("build", absl::StrCat("cpu", c), c, false);
  slot("device", "device0", 0, true);
  const int jobs = 4 + dice->Below(5);
  for (int j = 0; j < jobs; ++j) {
    SimJob job;
    job.name = absl::StrCat("job", j + 1);
    job.target = "llvm -mcpu=any";
    job.trials = 16 + 16 * dice->Below(4);
    job.batch = 16;
    job.gradient = false;
    auto time = [&](double low, double high, bool per_candidate) {
      return StageTime{
          {Distribution::kLognormal, dice->Between(low, high), 0.3, {}}, per_candidate, 1};
    };
    job.times.fill(time(0.5, 1.5, false));
    job.times[v1::STAGE_PROPOSE] = time(0.5, 2, false);
    job.times[v1::STAGE_UPDATE] = time(1, 6, false);
    job.times[v1::STAGE_BUILD] = time(0.2, 0.8, true);
    job.times[v1::STAGE_PROFILE] = time(0.3, 1.5, true);
    SimTask task;
    task.times = job.times;
    job.tasks.assign(static_cast<size_t>(2 + dice->Below(8)), task);
    scenario.jobs.push_back(std::move(job));
  }
  return scenario;
}

}  // namespace

absl::StatusOr<Scenario> DeadlineInstance(uint64_t seed, double slack) {
  Dice dice(Mix({seed, 5}));
  Scenario scenario = RandomLoad(&dice);
  scenario.name = absl::StrCat("deadlines ", seed);
  scenario.seed = seed;
  std::vector<size_t> order(scenario.jobs.size());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<size_t>(dice.Below(static_cast<int>(i)))]);
  // Jobs run one after another, each alone on the machines.
  double now = 0;
  for (size_t index : order) {
    Scenario alone = scenario;
    for (SimJob& job : alone.jobs) job.tasks.clear();
    alone.jobs[index].tasks = scenario.jobs[index].tasks;
    HEDDLE_ASSIGN_OR_RETURN(const WorldResult result, RunWorld(alone, "round_robin", {}));
    const double length = result.jobs[index].end;
    SimJob& job = scenario.jobs[index];
    // Some jobs arrive at once and others later, but no later than this schedule begins them.
    job.arrival = dice.Likely(0.5) ? 0 : dice.Between(0, now);
    now += length;
    if (dice.Likely(0.75)) job.deadline = (now - job.arrival) * (1 + slack);
  }
  return scenario;
}

absl::StatusOr<DeadlineTotals> MeetDeadlines(const std::string& policy, uint64_t first,
                                             uint64_t count, double slack) {
  DeadlineTotals totals;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    HEDDLE_ASSIGN_OR_RETURN(const Scenario scenario, DeadlineInstance(seed, slack));
    HEDDLE_ASSIGN_OR_RETURN(const WorldResult result, RunWorld(scenario, policy, {}));
    const Report report = MakeReport(scenario, policy, result);
    totals.jobs += report.deadlines;
    totals.met += report.deadlines_met;
  }
  return totals;
}

}  // namespace heddle::sim
