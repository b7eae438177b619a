// heddle-sim: flags, and nothing else.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "scheduler/sim/report.h"
#include "scheduler/sim/scenario.h"
#include "scheduler/sim/world.h"

namespace heddle::sim {
namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "heddle-sim: %s\n", std::string(status.message()).c_str());
  if (absl::IsNotFound(status)) return 4;
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

struct Flags {
  std::string scenario;
  std::vector<std::string> policies;
  bool json = false;
};

int RunScenario(const Flags& flags) {
  absl::StatusOr<Scenario> scenario = ReadScenario(flags.scenario);
  if (!scenario.ok()) return Fail(scenario.status());
  std::vector<std::string> policies = flags.policies;
  if (policies.empty()) policies.push_back(scenario->policy);
  std::vector<Report> reports;
  for (const std::string& policy : policies) {
    WorldOptions options;
    options.waiting = true;
    absl::StatusOr<WorldResult> result = RunWorld(*scenario, policy, options);
    if (!result.ok()) return Fail(result.status());
    reports.push_back(MakeReport(*scenario, policy, *result));
    if (flags.json)
      std::printf("%s\n", ReportJson(*scenario, reports.back(), *result).dump().c_str());
  }
  if (flags.json) return 0;
  std::printf("%s: %zu jobs on %zu slots\n%s", scenario->name.c_str(), scenario->jobs.size(),
              scenario->slots.size(), ReportTable(*scenario, reports).c_str());
  return 0;
}

}  // namespace
}  // namespace heddle::sim

int main(int argc, char** argv) {
  heddle::sim::Flags flags;
  CLI::App app("heddle-sim: the scheduler's dispatcher under a virtual clock");
  app.add_option("SCENARIO", flags.scenario, "scenario file (docs/simulator.md)")->required();
  app.add_option("--policy", flags.policies, "policies to compare, with commas")->delimiter(',');
  app.add_flag("--json", flags.json, "one JSON object a policy");
  app.set_version_flag("--version", "heddle-sim 0.1.0");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return heddle::sim::RunScenario(flags);
}
