#include "scheduler/sim/thesis.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "scheduler/sim/report.h"
#include "scheduler/sim/world/world.h"

namespace heddle::sim {
namespace {

constexpr int kTasks = 13;  // of ResNet-18
// Seconds. Update and propose take 44 s together, or 1 s when they are fast.
constexpr double kBuild = 8.3, kProfile = 39.5;
constexpr double kSlowUpdate = 43.0, kPropose = 1.0;
constexpr double kFastUpdate = 0.5, kFastPropose = 0.5;
// "Building and updating use 50-70 % of the client's CPU."
constexpr double kClientLoad = 0.6;

struct Setup {
  std::string name;
  int jobs, clients, depth;  // depth: of the pipeline
  bool fast;
  std::string policy;
  std::string wanted;
  std::function<bool(const ThesisRow&)> met;
  int tasks = kTasks;  // tasks that the work is divided among
};

Scenario MakeScenario(const Setup& setup, int trials, int batch) {
  Scenario scenario;
  scenario.name = setup.name;
  auto slot = [&](const std::string& worker, const std::string& id, bool device) {
    SimSlot made;
    made.info.id = {worker, id};
    made.info.host = worker;
    made.info.device = device;
    made.info.cores = {0};
    if (device) made.info.device_key = "k80", made.info.target = "llvm -mcpu=any";
    scenario.slots.push_back(std::move(made));
  };
  for (int c = 0; c < setup.clients; ++c) slot(absl::StrCat("client", c + 1), "cpu0", false);
  slot("gpu", "device0", true);
  auto time = [](double seconds, double load) {
    return StageTime{{Distribution::kConstant, seconds, 0, {}}, false, load};
  };
  StageTimes times;
  times.fill(time(1, kClientLoad));
  times[v1::STAGE_BUILD] = time(kBuild, kClientLoad);
  times[v1::STAGE_PROFILE] = time(kProfile, 1);
  times[v1::STAGE_UPDATE] = time(setup.fast ? kFastUpdate : kSlowUpdate, kClientLoad);
  times[v1::STAGE_PROPOSE] = time(setup.fast ? kFastPropose : kPropose, kClientLoad);
  for (int j = 0; j < setup.jobs; ++j) {
    SimJob job;
    job.name = absl::StrCat("resnet18-", j + 1);
    job.target = "llvm -mcpu=any";
    job.trials = trials * kTasks / setup.tasks;
    job.batch = batch;
    job.pipeline_depth = setup.depth;
    job.gradient = false;
    job.times = times;
    SimTask task;
    task.times = times;
    job.tasks.assign(static_cast<size_t>(setup.tasks), task);
    scenario.jobs.push_back(std::move(job));
  }
  return scenario;
}

double Bound(const Setup& setup) {
  const double cpu = kBuild + (setup.fast ? kFastUpdate + kFastPropose : kSlowUpdate + kPropose);
  const double alone = kBuild + kSlowUpdate + kPropose + kProfile;
  if (setup.jobs == 1 && setup.depth == 1) return alone / (cpu + kProfile);
  return alone / std::max(cpu / setup.clients, kProfile);
}

}  // namespace

absl::StatusOr<std::vector<ThesisRow>> ThesisRows(const std::string& policy, int trials,
                                                  int batch) {
  const auto near_bound = [](const ThesisRow& row) { return row.speedup >= 0.95 * row.bound; };
  const auto fed = [](const ThesisRow& row) {
    return row.device_idle <= 0.05 && row.speedup >= 2.2;
  };
  const std::string within = "within 5 % of the bound", two = "device idle <= 5 %, >= 2.2x";
  const std::vector<Setup> setups = {
      {"one job alone", 1, 1, 1, false, policy, "client idle 43-45 %, device 55-57 %",
       [](const ThesisRow& row) {
         return row.client_idle > 0.425 && row.client_idle < 0.455 && row.device_idle > 0.545 &&
                row.device_idle < 0.575;
       }},
      {"fast update, no scheduler", 1, 1, 1, true, policy, "1.88x",
       [](const ThesisRow& row) { return row.speedup > 1.86 && row.speedup < 1.90; }},
      {"2 jobs, uncoordinated", 2, 1, 1, false, "uncoordinated", "", nullptr},
      {"2 jobs", 2, 1, 1, false, policy, within, near_bound},
      {"3 jobs", 3, 1, 1, false, policy, within, near_bound},
      {"4 jobs", 4, 1, 1, false, policy, within, near_bound},
      {"one job, depth 2", 1, 1, 2, false, policy, within, near_bound},
      {"one job of one task", 1, 1, 1, false, policy, "", nullptr, 1},
      {"one job of one task, depth 2", 1, 1, 2, false, policy, within, near_bound, 1},
      {"one job of one task, depth 3", 1, 1, 3, false, policy, within, near_bound, 1},
      {"2 jobs, depth 2", 2, 1, 2, false, policy, within, near_bound},
      {"2 jobs, 2 clients, depth 2", 2, 2, 2, false, policy, two, fed},
      {"3 jobs, 2 clients", 3, 2, 1, false, policy, two, fed},
      {"4 jobs, 2 clients", 4, 2, 1, false, policy, two, fed},
      {"2 jobs, fast update", 2, 1, 1, true, policy, within, near_bound},
      {"4 jobs, fast update", 4, 1, 1, true, policy, within, near_bound}};
  std::vector<ThesisRow> rows;
  double alone = 0;
  for (const Setup& setup : setups) {
    const Scenario scenario = MakeScenario(setup, trials, batch);
    HEDDLE_ASSIGN_OR_RETURN(const WorldResult result, RunWorld(scenario, setup.policy, {}));
    const Report report = MakeReport(scenario, setup.policy, result);
    if (rows.empty()) alone = report.makespan;
    ThesisRow row;
    row.setup = setup.name;
    row.makespan = report.makespan;
    row.speedup = setup.jobs * alone / report.makespan;
    row.bound = Bound(setup);
    row.client_idle = 1 - report.cpu_busy;
    row.device_idle = 1 - report.device_busy;
    row.disturbed = report.disturbed;
    row.wanted = setup.wanted;
    row.met = !setup.met || setup.met(row);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string ThesisTable(const std::string& policy, const std::vector<ThesisRow>& rows) {
  std::string text = absl::StrFormat(
      "ResNet-18 with the thesis' stage times; policy %s; speed-up: jobs done in the time one "
      "alone takes\n"
      "%-32s %9s %8s %7s %12s %12s %10s  %s\n",
      policy, "", "makespan", "speed-up", "bound", "client idle", "device idle", "disturbed",
      "wanted");
  for (const ThesisRow& row : rows) {
    absl::StrAppendFormat(&text, "%-32s %7.2f h %7.2fx %6.2fx %10.1f %% %10.1f %% %8.0f %%  %s%s\n",
                          row.setup, row.makespan / 3600, row.speedup, row.bound,
                          100 * row.client_idle, 100 * row.device_idle, 100 * row.disturbed,
                          row.wanted,
                          row.wanted.empty() ? ""
                          : row.met          ? ": met"
                                             : ": NOT MET");
  }
  return text;
}

}  // namespace heddle::sim
