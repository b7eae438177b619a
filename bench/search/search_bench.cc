// heddle-search-bench: the program behind `bench/run.sh search`.
//   collect  measures candidates of operators and keeps them as replay tables
//   compare  runs methods on tables and writes a line of JSON a run: {"operator", "method", "seed",
//            "best": after each trial the share of the best known speed, the default schedule left
//            out, "untuned": the default's, "propose_s", "update_s"}
//   rank     how well models rank unseen candidates, a line of JSON each: {"operator",
//            "model", "records", "across": fitted to other operators, "pairs", "recall", "first"}
//   fit      how well a transfer model ranks the tables of other workloads, by how much it is fitted to, a line
//            of JSON each: {"operator", "table", "model", "seed", "tasks", "samples", "pairs", "recall", "first",
//            "regret", "correlation", "fit_s", "fit_mib"}. --sample N compares two models: one fitted to
//            N records of other operators, one fitted to all of them as a worker does. They are fitted one after
//            another, so that their times and memory are comparable
//   live     runs methods on this machine, a line each: {"operator", "method", "seed", "best_ns",
//            "untuned_ns", "propose_s", "build_s", "measure_s", "update_s"}
//   time     what the search itself costs on one core, a line each: {"operator", "method",
//            "records", "batch", "propose_s", "update_s", "candidates_per_s"}
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/command_documents.h"
#include "base/status_macros.h"
#include "bench/common/fork_map.h"
#include "bench/common/line_server.h"
#include "bench/common/workloads.h"
#include "bench/search/collect.h"
#include "bench/search/compare.h"
#include "bench/search/search_machine.h"
#include "bench/search/variant.h"
#include "compiler/codegen/backend.h"
#include "cost_model/features/features.h"
#include "cost_model/transfer/transfer_samples.h"

namespace heddle::bench {
namespace {

using nlohmann::json;

// A method with this suffix also learns from the tables of --sources.
constexpr std::string_view kWithOthers = "+others";
// With this last suffix it sees a candidate's decisions instead of features of its program.
constexpr std::string_view kWithKnobs = "+knobs";
constexpr absl::Duration kRunLimit = absl::Minutes(20);  // for one search; they take seconds

struct CollectFlags {
  std::vector<std::string> names;
  std::string directory;
  std::vector<int> cpus;
  int candidates = 1600;
  int check = 64;
  double seconds = 3600;
  uint64_t seed = 0;
};

absl::Status RunCollect(const CollectFlags& flags) {
  CollectOptions options;
  options.build_cpus = AllowedCpus();
  options.cpus = flags.cpus;
  options.candidates = flags.candidates;
  options.check = flags.check;
  options.seed = flags.seed;
  ConfineTo(flags.cpus);
  Target target;
  target.threads = static_cast<int>(flags.cpus.size());
  HEDDLE_ASSIGN_OR_RETURN(target, codegen::ResolveTarget(target));
  HEDDLE_ASSIGN_OR_RETURN(const machine::TargetInfo info, codegen::DescribeTarget(target));
  options.device_key = target.cpu + "-warm";
  std::error_code failed;
  std::filesystem::create_directories(flags.directory, failed);
  for (const std::string& name : flags.names) {
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Workload> workloads, FindWorkloads(name));
    if (workloads.size() != 1) return absl::InvalidArgumentError(name + " is a model");
    options.time = absl::Seconds(flags.seconds);
    options.command =
        absl::StrCat("bench/run.sh search --collect --only ", name, " --trials ", flags.candidates,
                     " --seed ", flags.seed, " --threads ", target.threads);
    options.progress = [&](int have, double best_ns) {
      std::fprintf(stderr, "%s: %d of %d candidates, best %.1f us\n", name.c_str(), have,
                   flags.candidates, best_ns * 1e-3);
    };
    const std::string path = flags.directory + "/" + name + ".jsonl.gz";
    HEDDLE_ASSIGN_OR_RETURN(const Collected done, Collect(workloads[0], info, path, options));
    std::printf("%s: %d candidates, %d of them new, %d checked, in %.0f s%s\n", name.c_str(),
                done.have, done.fresh, done.checked, done.seconds,
                done.complete ? "" : "; the same command goes on");
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

struct CompareFlags {
  std::vector<std::string> tables;
  std::vector<std::string> methods;
  std::vector<std::string> sources;
  int each = static_cast<int>(cost_model::kMaxTransferSamples);  // as many as the service gives
  int seeds = 5;
  int trials = 800;
  std::vector<int> records = {64, 256, 1024};
};

absl::StatusOr<std::vector<std::unique_ptr<ReplayProblem>>> ReadTables(
    const std::vector<std::string>& paths) {
  std::vector<std::unique_ptr<ReplayProblem>> problems;
  for (const std::string& path : paths) {
    HEDDLE_ASSIGN_OR_RETURN(ReplayTable table, ReadReplayTable(path));
    HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<ReplayProblem> problem,
                            ReplayProblem::Make(std::move(table)));
    if (problem->left_out() > 0) {
      std::fprintf(stderr, "%s: %d candidates no longer replay and are left out\n", path.c_str(),
                   problem->left_out());
    }
    problems.push_back(std::move(problem));
  }
  return problems;
}

// Makes them see decisions; `columns` is shared by all tables that are compared.
void SeeKnobs(const std::vector<std::unique_ptr<ReplayProblem>>& problems,
              std::map<std::string, size_t>* columns) {
  for (const auto& problem : problems) problem->SeeKnobs(columns);
}

// Prints the lines that `work` gives, in order, computed on all cores, or on the last one only.
absl::Status PrintLines(int n, const std::function<absl::StatusOr<std::string>(int)>& work,
                        bool one_core = false) {
  std::vector<std::vector<int>> core_sets;
  for (const int cpu : AllowedCpus()) core_sets.push_back({cpu});
  if (one_core) core_sets.erase(core_sets.begin(), core_sets.end() - 1);
  for (const absl::StatusOr<std::string>& line : ForkMap(n, core_sets, kRunLimit, work)) {
    HEDDLE_RETURN_IF_ERROR(line.status());
    std::printf("%s\n", line->c_str());
  }
  return absl::OkStatus();
}

// "annealing@3" runs at a pipeline depth of 3.
absl::StatusOr<int> TakeDepth(std::string* method) {
  const size_t at = method->rfind('@');
  if (at == std::string::npos) return 1;
  int depth = 0;
  if (!absl::SimpleAtoi(method->substr(at + 1), &depth) || depth < 1 || depth > 64)
    return absl::InvalidArgumentError(*method + ": a depth from 1 to 64 comes after the @");
  method->resize(at);
  return depth;
}

absl::Status CheckCompare(const CompareFlags& flags,
                          const std::vector<std::unique_ptr<ReplayProblem>>& problems,
                          const std::vector<std::unique_ptr<ReplayProblem>>& sources) {
  size_t longest = 0;
  bool others = false;
  for (const std::string& method : flags.methods) {
    longest = std::max(longest, static_cast<size_t>(TrialsOf(method, flags.trials)));
    others |= method.find(kWithOthers) != std::string::npos;
  }
  if (others && sources.empty()) {
    return absl::InvalidArgumentError("a method named ..+others needs --sources");
  }
  for (const auto& problem : problems) {
    const std::string& name = problem->table().header.name;
    const size_t rows = problem->table().rows.size() + static_cast<size_t>(problem->left_out());
    if (rows < kRowsPerTrial * longest) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", rows, " candidates are too few for runs of ", longest,
                       " trials; take --trials ",
                       rows / kRowsPerTrial * static_cast<size_t>(flags.trials) / longest,
                       ", or --collect ", kRowsPerTrial * longest));
    }
    if (others && TakeOthers(sources, *problem, 1, 0)->empty()) {
      return absl::InvalidArgumentError(name +
                                        ": no table of --sources is of another workload; name one");
    }
  }
  return absl::OkStatus();
}

absl::Status RunCompare(const CompareFlags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(const auto problems, ReadTables(flags.tables));
  HEDDLE_ASSIGN_OR_RETURN(const auto sources, ReadTables(flags.sources));
  HEDDLE_RETURN_IF_ERROR(CheckCompare(flags, problems, sources));
  const bool any_knobs = std::any_of(flags.methods.begin(), flags.methods.end(),
                                     [](const auto& m) { return m.ends_with(kWithKnobs); });
  const std::vector<std::string> none;
  HEDDLE_ASSIGN_OR_RETURN(const auto knob_problems, ReadTables(any_knobs ? flags.tables : none));
  HEDDLE_ASSIGN_OR_RETURN(const auto knob_sources, ReadTables(any_knobs ? flags.sources : none));
  std::map<std::string, size_t> columns;
  SeeKnobs(knob_sources, &columns);
  SeeKnobs(knob_problems, &columns);
  const int methods = static_cast<int>(flags.methods.size());
  const int n = static_cast<int>(problems.size()) * methods * flags.seeds;
  return PrintLines(n, [&](int i) -> absl::StatusOr<std::string> {
    const auto p = static_cast<size_t>(i / methods / flags.seeds);
    RunOptions options;
    options.strategy = flags.methods[static_cast<size_t>(i / flags.seeds % methods)];
    options.seed = static_cast<uint64_t>(i % flags.seeds);
    const std::string method = options.strategy;
    const bool knobs = method.ends_with(kWithKnobs);
    if (knobs) options.strategy.resize(method.size() - kWithKnobs.size());
    const ReplayProblem& problem = knobs ? *knob_problems[p] : *problems[p];
    HEDDLE_ASSIGN_OR_RETURN(options.depth, TakeDepth(&options.strategy));
    const bool others = options.strategy.ends_with(kWithOthers);
    if (others) options.strategy.resize(options.strategy.size() - kWithOthers.size());
    absl::StatusOr<cost_model::Method> variant;
    if (others || knobs || options.strategy.find(':') != std::string::npos) {
      HEDDLE_ASSIGN_OR_RETURN(variant, ParseVariant(options.strategy));
      if (knobs) {  // decisions contain no estimate and are not quantities
        variant->cold_start = 0;
        variant->without = {};
        variant->relative = false;
      }
      options.method = &*variant;
    }
    if (others) {
      options.others = TakeOthers(knobs ? knob_sources : sources, problem, flags.each, options.seed,
                                  variant->relative);
    }
    options.trials = TrialsOf(method, flags.trials);
    HEDDLE_ASSIGN_OR_RETURN(const SearchRun run, RunSearch(problem, options));
    json best = json::array();
    for (const double share : run.best) best.push_back(std::round(share * 1e4) / 1e4);
    return json{{"operator", problem.table().header.name},
                {"method", method},
                {"seed", options.seed},
                {"best", best},
                {"untuned", run.untuned},
                {"propose_s", run.propose_s},
                {"update_s", run.update_s}}
        .dump();
  });
}

absl::Status RunRank(const CompareFlags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(const auto problems, ReadTables(flags.tables));
  struct Variant {
    std::string name;
    RankOptions options;
    bool knobs = false;
  };
  std::vector<Variant> variants(3);
  // The default model, then each feature group left out, or added if it is off by default.
  const cost_model::Method& ours = cost_model::Methods()[0];
  const cost_model::Method& regression = *cost_model::FindMethod("regression");
  variants[0].name = "rank";
  variants[0].options = {.model = ours.model, .score_levels = ours.score_levels};
  variants[0].options.without = ours.without;
  variants[1].name = "regression";
  variants[1].options = {.model = regression.model, .score_levels = regression.score_levels};
  variants[1].options.without = regression.without;
  variants[2].name = "roofline";
  variants[2].options.roofline = true;
  for (const std::string& group : cost_model::FeatureGroups()) {
    const bool seen =
        std::find(ours.without.begin(), ours.without.end(), group) == ours.without.end();
    variants.push_back({(seen ? "rank without " : "rank with ") + group, variants[0].options});
    std::vector<std::string>& without = variants.back().options.without;
    seen ? without.push_back(group) : static_cast<void>(std::erase(without, group));
  }
  variants.push_back({"knobs", variants[0].options, true});
  variants.back().options.relative = false;
  variants.back().options.without.clear();
  if (!flags.methods.empty()) variants.clear();
  for (const std::string& name : flags.methods) {
    HEDDLE_ASSIGN_OR_RETURN(const cost_model::Method method, ParseVariant(name));
    variants.push_back({name, {.model = method.model, .score_levels = method.score_levels}});
    variants.back().options.without = method.without;
    variants.back().options.relative = method.relative;
  }
  const bool knobs = flags.methods.empty();
  const std::vector<std::string> none;
  HEDDLE_ASSIGN_OR_RETURN(const auto sources, ReadTables(flags.sources));
  HEDDLE_ASSIGN_OR_RETURN(const auto knob_problems, ReadTables(knobs ? flags.tables : none));
  HEDDLE_ASSIGN_OR_RETURN(const auto knob_sources, ReadTables(knobs ? flags.sources : none));
  std::map<std::string, size_t> columns;
  SeeKnobs(knob_sources, &columns);
  SeeKnobs(knob_problems, &columns);
  // Fitted to the operator itself and to the other tables; with sources to those alone.
  const int across = sources.empty() && problems.size() > 1 ? 2 : 1,
            sizes = static_cast<int>(flags.records.size());
  const int each = sizes * across * static_cast<int>(problems.size());
  return PrintLines(
      each * static_cast<int>(variants.size()), [&](int i) -> absl::StatusOr<std::string> {
        Variant variant = variants[static_cast<size_t>(i / each)];
        const auto held_out = static_cast<size_t>(i % each / sizes / across);
        const bool others = !sources.empty() || i % across == 1;
        variant.options.records = flags.records[static_cast<size_t>(i % each / across % sizes)];
        RankQuality sum;
        for (int seed = 0; seed < flags.seeds; ++seed) {
          variant.options.seed = static_cast<uint64_t>(seed);
          const auto& tables = variant.knobs ? knob_problems : problems;
          const auto& others_tables = sources.empty() ? tables
                                      : variant.knobs ? knob_sources
                                                      : sources;
          HEDDLE_ASSIGN_OR_RETURN(
              const RankQuality found,
              others ? RankAcross(others_tables, *tables[held_out], variant.options)
                     : RankWithin(*tables[held_out], variant.options));
          sum.pairs += found.pairs / flags.seeds;
          sum.recall += found.recall / flags.seeds;
          sum.first += std::log(found.first) / flags.seeds;
        }
        return json{{"operator", problems[held_out]->table().header.name},
                    {"model", variant.name},
                    {"records", variant.options.records},
                    {"across", others},
                    {"pairs", sum.pairs},
                    {"recall", sum.recall},
                    {"first", std::exp(sum.first)}}
            .dump();
      });
}

absl::Status RunFit(const CompareFlags& flags, int copies, size_t sample) {
  HEDDLE_ASSIGN_OR_RETURN(const auto problems, ReadTables(flags.tables));
  HEDDLE_ASSIGN_OR_RETURN(const auto others, ReadTables(flags.sources));
  const auto& sources = flags.sources.empty() ? problems : others;
  const cost_model::Method& ours = cost_model::Methods()[0];
  constexpr size_t kEach = cost_model::kMaxTransferSamples, kWindow = 8;
  std::vector<std::pair<std::string, FitOptions>> variants;
  const auto add = [&](const std::string& name, FitOptions options) -> cost_model::ModelSpec& {
    options.model = ours.others;
    variants.emplace_back(name, options);
    return variants.back().second.model;
  };
  add("4 tasks", {.tasks = 4, .each = kEach});
  add("8 tasks", {.tasks = 8, .each = kEach});
  add("16 tasks", {.tasks = 16, .each = kEach});
  add("as the service", {.tasks = 32, .each = kEach});
  add("32 of each", {.each = kEach / 4});
  add("512 of each", {.each = 4 * kEach});
  add("all", {});
  add("all, streamed", {.streamed = true});
  add("all, streamed, 300 rounds", {.streamed = true}).rounds = 300;
  cost_model::ModelSpec* deep = &add("all, streamed, 300 rounds, depth 6", {.streamed = true});
  deep->rounds = 300;
  deep->depth = 6;
  deep = &add("as the service, 300 rounds, depth 6", {.tasks = 32, .each = kEach});
  deep->rounds = 300;
  deep->depth = 6;
  add("continued, 8 tasks at a time", {.each = kEach, .window = kWindow}).rounds = 25;
  add("continued, 8 tasks at a time, all", {.window = kWindow}).rounds = 25;
  if (copies > 1) {
    variants.clear();
    add("all, many times", {.copies = copies});
    add("all, many times, streamed", {.streamed = true, .copies = copies});
  }
  if (sample > 0) {
    variants.clear();
    add("sample", {.records = sample});
    add("all", {.paged = true});
  }
  // What is compared runs side by side.
  const int models = static_cast<int>(variants.size()), each = models * flags.seeds;
  return PrintLines(
      static_cast<int>(problems.size()) * each,
      [&](int i) -> absl::StatusOr<std::string> {
        auto [name, options] = variants[static_cast<size_t>(i % models)];
        options.seed = static_cast<uint64_t>(i % each / models);
        const ReplayProblem& problem = *problems[static_cast<size_t>(i / each)];
        HEDDLE_ASSIGN_OR_RETURN(const Fitted fitted, FitAndRank(sources, problem, options));
        return json{{"operator", problem.table().header.name},
                    {"table", flags.tables[static_cast<size_t>(i / each)]},
                    {"model", name},
                    {"seed", options.seed},
                    {"tasks", fitted.tasks},
                    {"samples", fitted.samples},
                    {"pairs", fitted.quality.pairs},
                    {"recall", fitted.quality.recall},
                    {"first", fitted.quality.first},
                    {"regret", fitted.quality.regret},
                    {"correlation", fitted.quality.correlation},
                    {"fit_s", fitted.seconds},
                    {"fit_mib", fitted.peak_mib}}
            .dump();
      },
      /*one_core=*/sample > 0);
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
  using namespace heddle::bench;
  CLI::App app("Compares search methods; bench/run.sh search drives it.");
  app.require_subcommand(1);
  CollectFlags collect;
  CLI::App* collecting = app.add_subcommand("collect", "measure candidates into replay tables");
  collecting->add_option("operators", collect.names, "C2, 128x768x768, ..")->required();
  collecting->add_option("--tables", collect.directory, "directory of the tables")->required();
  collecting->add_option("--cpus", collect.cpus, "cores of a kernel")->required()->delimiter(',');
  collecting->add_option("--candidates", collect.candidates)->check(CLI::Range(64, 100000));
  collecting->add_option("--seconds", collect.seconds, "per operator; the next run goes on")
      ->check(CLI::Range(1.0, 1e6));
  collecting->add_option("--seed", collect.seed);
  collecting->add_option("--check", collect.check, "of the best, measured again")
      ->check(CLI::Range(0, 100000));
  CompareFlags compare;
  CLI::App* comparing = app.add_subcommand("compare", "run methods on replay tables");
  CLI::App* ranking = app.add_subcommand("rank", "evaluate models on replay tables");
  CLI::App* fitting = app.add_subcommand("fit", "evaluate transfer models on replay tables");
  int copies = 1;
  fitting->add_option("--copies", copies, "of each record, to see what more of them cost")
      ->check(CLI::Range(1, 10000));
  size_t sample = 0;
  fitting->add_option("--sample", sample, "only a model of so many records, and one of all")
      ->check(CLI::Range(2, 1'000'000));
  for (CLI::App* command : {comparing, ranking, fitting}) {
    command->add_option("tables", compare.tables, "files")->required();
    command->add_option("--seeds", compare.seeds)->check(CLI::Range(1, 1000));
    command->add_option("--sources", compare.sources, "tables to learn from")->delimiter(',');
  }
  comparing->add_option("--methods", compare.methods)->required()->delimiter(',');
  comparing->add_option("--each", compare.each, "records of each of these")
      ->check(CLI::Range(1, 100000));
  comparing->add_option("--trials", compare.trials)->check(CLI::Range(1, 100000));
  ranking->add_option("--methods", compare.methods, "models of these alone")->delimiter(',');
  ranking->add_option("--records", compare.records)->delimiter(',')->check(CLI::Range(1, 100000));
  TimeFlags time;
  CLI::App* timing = app.add_subcommand("time", "time the search itself");
  timing->add_option("operators", time.names, "C2, 128x768x768, ..")->required();
  timing->add_option("--methods", time.methods)->required()->delimiter(',');
  timing->add_option("--records", time.records)->check(CLI::Range(8, 2000));
  timing->add_option("--batch", time.batch)->check(CLI::Range(1, 1024));
  LiveFlags live;
  CLI::App* living = app.add_subcommand("live", "run methods on this machine");
  living->add_option("operators", live.names, "C2, 128x768x768, ..")->required();
  living->add_option("--methods", live.methods)->required()->delimiter(',');
  living->add_option("--cpus", live.cpus, "cores of a kernel")->required()->delimiter(',');
  living->add_option("--seeds", live.seeds)->check(CLI::Range(1, 1000));
  living->add_option("--trials", live.trials)->check(CLI::Range(1, 100000));
  if (const auto end = heddle::ParseCommandLine(&app, argc, argv)) return *end;
  absl::Status status;
  if (collecting->parsed()) status = RunCollect(collect);
  if (comparing->parsed()) status = RunCompare(compare);
  if (timing->parsed()) status = RunTime(time);
  if (ranking->parsed()) status = RunRank(compare);
  if (fitting->parsed()) status = RunFit(compare, copies, sample);
  if (living->parsed()) status = RunLives(live);
  if (status.ok()) return 0;
  std::fprintf(stderr, "heddle-search-bench: %s\n", std::string(status.message()).c_str());
  return status.code() == absl::StatusCode::kInternal ? 1 : 2;
}
