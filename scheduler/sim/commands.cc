#include "scheduler/sim/commands.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/sim/deadlines.h"
#include "scheduler/sim/plot.h"
#include "scheduler/sim/recorded.h"
#include "scheduler/sim/report.h"
#include "scheduler/sim/thesis.h"
#include "scheduler/sim/world/fuzz.h"

namespace heddle::sim {
namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "heddle-sim: %s\n", std::string(status.message()).c_str());
  if (absl::IsNotFound(status)) return 4;
  return absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ? 2 : 1;
}

}  // namespace

int RunScenarios(const Flags& flags) {
  absl::StatusOr<Scenario> scenario;
  Recorded recorded;
  if (flags.replay.empty()) {
    scenario = ReadScenario(flags.scenario);
  } else if (absl::StatusOr<Recorded> read = ReadRecorded(flags.replay); read.ok()) {
    recorded = *std::move(read);
    scenario = recorded.scenario;
  } else {
    scenario = read.status();
  }
  if (!scenario.ok()) return Fail(scenario.status());
  if (flags.has_seed) scenario->seed = flags.seed;
  for (SimJob& job : scenario->jobs) {
    if (flags.depth > 0) job.pipeline_depth = flags.depth;
  }
  std::vector<std::string> policies = flags.policies;
  if (policies.empty()) policies.push_back(scenario->policy);
  std::vector<Report> reports;
  std::vector<WorldResult> results;
  for (const std::string& policy : policies) {
    WorldOptions options;
    options.waiting = !flags.clock;  // it looks at everything after each event
    options.clock = flags.clock;
    options.spans = !flags.plot.empty();
    options.durable = scenario->NeedsStore();
    absl::StatusOr<WorldResult> result = RunWorld(*scenario, policy, options);
    if (!result.ok()) return Fail(result.status());
    reports.push_back(MakeReport(*scenario, policy, *result));
    results.push_back(*std::move(result));
    if (flags.json)
      std::printf("%s\n", ReportJson(*scenario, reports.back(), results.back()).dump().c_str());
  }
  if (!flags.plot.empty()) {
    std::vector<PlotRun> runs;
    for (size_t i = 0; i < reports.size(); ++i) {
      runs.push_back(
          {absl::StrFormat(
               "%s: makespan %s, mean completion %s, CPU slots %.0f %% and devices %.0f %% busy",
               reports[i].policy, HumanSeconds(reports[i].makespan),
               HumanSeconds(reports[i].mean_completion, reports[i].makespan),
               100 * reports[i].cpu_busy, 100 * reports[i].device_busy),
           &results[i]});
    }
    PlotWindow window;
    if (flags.window.size() == 2) window = {flags.window[0], flags.window[1]};
    std::ofstream out(flags.plot);
    out << Plot(*scenario, runs, window);
    out.close();
    if (!out)
      return Fail(absl::InvalidArgumentError(absl::StrCat(
          flags.plot, ": cannot be written; --plot wants a file in a folder there is")));
    std::fprintf(stderr, "drawn: %s\n", flags.plot.c_str());
  }
  if (flags.json) return 0;
  std::printf("%s: %zu jobs on %zu slots\n%s", scenario->name.c_str(), scenario->jobs.size(),
              scenario->slots.size(), ReportTable(*scenario, reports).c_str());
  if (recorded.makespan > 0) {
    std::printf("recorded makespan %s; simulated %+.1f %%\n",
                HumanSeconds(recorded.makespan).c_str(),
                100 * (reports.front().makespan / recorded.makespan - 1));
  }
  if (recorded.truncated)
    std::printf("the trace lacks the first stages of a job: its others stand for them\n");
  return 0;
}

int RunThesis(const Flags& flags) {
  constexpr int kTrials = 2000, kBatch = 46;
  std::vector<std::string> policies = flags.policies;
  if (policies.empty()) policies.push_back("round_robin");
  bool met = true;
  for (const std::string& policy : policies) {
    const absl::StatusOr<std::vector<ThesisRow>> rows = ThesisRows(policy, kTrials, kBatch);
    if (!rows.ok()) return Fail(rows.status());
    for (const ThesisRow& row : *rows) {
      met &= row.met;
      if (!flags.json) continue;
      const nlohmann::json json = {{"schema_version", 1},
                                   {"policy", policy},
                                   {"setup", row.setup},
                                   {"makespan_s", row.makespan},
                                   {"speedup", row.speedup},
                                   {"bound", row.bound},
                                   {"client_idle", row.client_idle},
                                   {"device_idle", row.device_idle},
                                   {"disturbed", row.disturbed},
                                   {"wanted", row.wanted},
                                   {"met", row.met}};
      std::printf("%s\n", json.dump().c_str());
    }
    if (!flags.json)
      std::printf("%s%s", &policy == policies.data() ? "" : "\n",
                  ThesisTable(policy, *rows).c_str());
  }
  return met ? 0 : 1;
}

int RunDeadlines(const Flags& flags) {
  constexpr double kSlack = 0.02;
  std::vector<std::string> policies = flags.policies;
  if (policies.empty()) policies = {"round_robin", "predictive"};
  for (const std::string& policy : policies) {
    const absl::StatusOr<DeadlineTotals> totals =
        MeetDeadlines(policy, flags.seed, static_cast<uint64_t>(flags.deadlines), kSlack);
    if (!totals.ok()) return Fail(totals.status());
    const double share = static_cast<double>(totals->met) / std::max(1, totals->jobs);
    if (flags.json) {
      std::printf("%s\n", nlohmann::json({{"schema_version", 1},
                                          {"policy", policy},
                                          {"deadlines", totals->jobs},
                                          {"met", totals->met},
                                          {"share", share}})
                              .dump()
                              .c_str());
    } else {
      std::printf("%-14s %d of %d deadlines met: %.1f %%\n", policy.c_str(), totals->met,
                  totals->jobs, 100 * share);
    }
  }
  return 0;
}

int RunFuzz(const Flags& flags) {
  const uint64_t first = flags.has_seed ? flags.seed : 1;
  Planted planted = Planted::kNone;
  std::vector<std::string> names;
  for (Planted one : AllPlanted()) {
    names.push_back(PlantedName(one));
    if (names.back() == flags.planted) planted = one;
  }
  if (PlantedName(planted) != flags.planted)
    return Fail(absl::InvalidArgumentError(absl::StrCat(
        "--planted ", flags.planted, ": no such bug; there are ", absl::StrJoin(names, ", "))));
  std::vector<std::string> policies = flags.policies;
  if (policies.empty()) policies = {"round_robin", "predictive", "sequential"};
  const int threads = flags.threads > 0
                          ? flags.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const bool terminal = isatty(2) != 0;
  for (const std::string& policy : policies) {
    const auto begin = std::chrono::steady_clock::now();
    auto spent = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    double told = 0;
    const absl::StatusOr<FuzzTotals> totals =
        Fuzz(first, flags.fuzz, policy, planted, threads, [&](const FuzzTotals& now) {
          if (spent() - told < (terminal ? 0.5 : 10)) return;
          told = spent();
          std::fprintf(
              stderr,
              terminal ? "\r%s: %lld of %llu seeds, %.0f s " : "%s: %lld of %llu seeds, %.0f s\n",
              policy.c_str(), static_cast<long long>(now.seeds),
              static_cast<unsigned long long>(flags.fuzz), told);
        });
    if (terminal) std::fprintf(stderr, "\r");
    if (!totals.ok()) return Fail(totals.status());
    if (flags.json) {
      nlohmann::json json = {{"schema_version", 1},
                             {"policy", policy},
                             {"seeds", totals->seeds},
                             {"violation", totals->violation},
                             {"events", totals->steps},
                             {"trials", totals->trials},
                             {"restarts", totals->restarts},
                             {"fail_overs", totals->fail_overs},
                             {"late_writes", totals->late_writes},
                             {"infrastructure_faults", totals->faults},
                             {"dropped_builds", totals->dropped},
                             {"stale_answers", totals->stale},
                             {"lost_trials", totals->lost},
                             {"jobs_done", totals->done_jobs},
                             {"seconds", spent()}};
      if (!totals->violation.empty()) json["seed"] = totals->seed;
      std::printf("%s\n", json.dump().c_str());
      if (!totals->violation.empty()) return 1;
      continue;
    }
    if (!totals->violation.empty()) {
      std::printf("%s: VIOLATION: %s\nreplay: heddle-sim --fuzz 1 --seed %llu --policy %s%s\n",
                  policy.c_str(), totals->violation.c_str(),
                  static_cast<unsigned long long>(totals->seed), policy.c_str(),
                  planted == Planted::kNone ? "" : (" --planted " + flags.planted).c_str());
      return 1;
    }
    std::printf(
        "%s: %lld seeds, no violation: %lld events, %lld trials, %lld restarts, %lld fail-overs, "
        "%lld late writes refused, %lld infrastructure faults, "
        "%lld stale answers, %lld lost trials, %lld jobs done; %.1f s\n",
        policy.c_str(), static_cast<long long>(totals->seeds),
        static_cast<long long>(totals->steps), static_cast<long long>(totals->trials),
        static_cast<long long>(totals->restarts), static_cast<long long>(totals->fail_overs),
        static_cast<long long>(totals->late_writes), static_cast<long long>(totals->faults),
        static_cast<long long>(totals->stale), static_cast<long long>(totals->lost),
        static_cast<long long>(totals->done_jobs), spent());
  }
  return 0;
}

}  // namespace heddle::sim
