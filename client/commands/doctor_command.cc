#include "client/commands/doctor_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/views/json.h"

namespace heddle::client {
namespace {

const char* HealthWord(Health health) {
  return health == Health::kWell ? "well" : health == Health::kWarning ? "warning" : "problem";
}

int Count(const std::vector<Finding>& findings, Health health) {
  return static_cast<int>(
      std::count_if(findings.begin(), findings.end(),
                    [health](const Finding& f) { return f.verdict.health == health; }));
}

std::string Number(int count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

int Doctor(const GlobalOptions& global, const DoctorOptions& options) {
  if (CanAnimate(global.output)) {
    fmt::print(stderr, "looking at this machine ..");
    std::fflush(stderr);
  }
  const std::vector<Finding> findings = Examine(options, ThisMachine());
  if (CanAnimate(global.output)) fmt::print(stderr, "\r\x1b[K");
  const int problems = Count(findings, Health::kProblem);
  const int warnings = Count(findings, Health::kWarning);
  const bool well = problems + warnings == 0;
  if (global.output.json) {
    nlohmann::json list = nlohmann::json::array();
    for (const Finding& f : findings) {
      list.push_back({{"check", f.check},
                      {"health", HealthWord(f.verdict.health)},
                      {"found", f.verdict.found},
                      {"remedy", f.verdict.remedy}});
    }
    const nlohmann::json object = {
        {"schema_version", kJsonSchemaVersion}, {"well", well}, {"checks", std::move(list)}};
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return well ? kDone : kUsage;
  }
  for (const Finding& f : findings) {
    if (f.verdict.health == Health::kWell && global.output.verbosity == 0) continue;
    fmt::print("{:<8} {:<15} {}\n", HealthWord(f.verdict.health), f.check,
               Printable(f.verdict.found));
    if (!f.verdict.remedy.empty()) fmt::print("{:<25}-> {}\n", "", Printable(f.verdict.remedy));
  }
  if (well) {
    fmt::print("all is well ({})\n", Number(static_cast<int>(findings.size()), "check"));
    return kDone;
  }
  fmt::print("{} and {} in {}\n", Number(problems, "problem"), Number(warnings, "warning"),
             Number(static_cast<int>(findings.size()), "check"));
  return kUsage;
}

}  // namespace heddle::client
