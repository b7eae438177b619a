// heddle-sim: parses flags and calls a command.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/command_documents.h"
#include "scheduler/sim/commands.h"

int main(int argc, char** argv) {
  heddle::sim::Flags flags;
  CLI::App app("heddle-sim: the scheduler's dispatcher under a virtual clock (docs/simulator.md)");
  app.add_option("SCENARIO", flags.scenario, "scenario file; scheduler/sim/scenarios has some");
  app.add_option(
         "--policy", flags.policies,
         "policies to compare, with commas; uncoordinated is the baseline without a scheduler")
      ->delimiter(',');
  app.add_option("--plot", flags.plot, "draw Gantt chart and utilisation into this SVG file");
  app.add_option("--window", flags.window, "BEGIN END: seconds the plot shows")->expected(2);
  app.add_flag("--json", flags.json, "JSON: one object a policy, of --thesis one a row");
  CLI::Option* seed =
      app.add_option("--seed", flags.seed, "instead of the scenario's; with --fuzz the first one")
          ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 62));
  CLI::Option* depth = app.add_option("--depth", flags.depth,
                                      "pipeline_depth of every job, instead of the scenario's")
                           ->check(CLI::Range(1, 64));
  app.add_flag("--clock", flags.clock,
               "measure how long decisions take on this machine; leaves out what jobs wait for");
  app.add_option("--replay", flags.replay,
                 "a run that `heddle jobs trace` wrote, instead of a scenario");
  app.add_flag("--thesis", flags.thesis, "the thesis' set-ups beside what is wanted of them");
  app.add_option("--deadlines", flags.deadlines,
                 "share of deadlines met, over so many random instances in which all can be")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--fuzz", flags.fuzz,
                 "so many seeds of random worlds with faults; stops at the first broken promise")
      ->check(CLI::Range(1, 1'000'000'000));
  CLI::Option* planted = app.add_option("--planted", flags.planted, "with --fuzz: a bug to find");
  CLI::Option* threads = app.add_option("--threads", flags.threads, "of --fuzz; default: all cores")
                             ->check(CLI::Range(1, 1024));
  app.set_version_flag("--version", "heddle-sim " HEDDLE_VERSION);
  heddle::AddManPageFlag(&app);
  try {
    app.parse(argc, argv);
    const int modes = !flags.scenario.empty() + !flags.replay.empty() + flags.thesis +
                      (flags.deadlines > 0) + (flags.fuzz > 0);
    if (modes != 1)
      throw CLI::ValidationError(
          "give one of: a scenario file, --replay FILE, --thesis, --deadlines N, --fuzz N");
    if (planted->count() > 0 && flags.fuzz == 0)
      throw CLI::ValidationError("--planted: only with --fuzz N");
    if (threads->count() > 0 && flags.fuzz == 0)
      throw CLI::ValidationError("--threads: only with --fuzz N");
    if (depth->count() > 0 && flags.scenario.empty() && flags.replay.empty())
      throw CLI::ValidationError("--depth: only with a scenario file or --replay FILE");
    if (flags.clock && flags.scenario.empty() && flags.replay.empty())
      throw CLI::ValidationError("--clock: only with a scenario file or --replay FILE");
    if (!flags.plot.empty() && flags.scenario.empty() && flags.replay.empty())
      throw CLI::ValidationError("--plot: only with a scenario file or --replay FILE");
    if (!flags.window.empty() && flags.plot.empty())
      throw CLI::ValidationError("--window: only with --plot FILE");
    if (flags.window.size() == 2 && !(0 <= flags.window[0] && flags.window[0] < flags.window[1]))
      throw CLI::ValidationError("--window: BEGIN must be 0 or more, and END larger");
    if (flags.thesis && seed->count() > 0)
      throw CLI::ValidationError("--seed: there is no chance in --thesis");
    if (flags.fuzz > 0 && std::count(flags.policies.begin(), flags.policies.end(), "uncoordinated"))
      throw CLI::ValidationError(
          "--policy uncoordinated: promises nothing that --fuzz could check; take one of the "
          "scheduler's policies");
  } catch (const CLI::ParseError& error) {
    return heddle::EndOfParse(app, error);
  }
  flags.has_seed = seed->count() > 0;
  if (flags.thesis) return heddle::sim::RunThesis(flags);
  if (flags.deadlines > 0) return heddle::sim::RunDeadlines(flags);
  if (flags.fuzz > 0) return heddle::sim::RunFuzz(flags);
  return heddle::sim::RunScenarios(flags);
}
