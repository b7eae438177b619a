// heddle-kernel-bench: the speed of the compiler's kernels on this machine, next to its limits. For
// each workload: naive loops, the default schedule, and the best of some random points of the
// search space, all measured in this process.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/command_documents.h"
#include "base/status_macros.h"
#include "bench/common/line_server.h"
#include "bench/common/operator_table.h"
#include "bench/common/workloads.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/compile.h"
#include "compiler/ir/text.h"
#include "compiler/measure/measure.h"
#include "compiler/runtime/machine_limits.h"
#include "compiler/schedule/space.h"

namespace heddle::bench {
namespace {

struct Flags {
  std::vector<std::string> names;
  int points = 16;
  int threads = 1;
  std::vector<int> cpus;
  uint64_t seed = 0;
  bool naive = true;
  bool print_best = false;
  bool print_default = false;
  bool print_workload = false;
  bool errors = false;
  bool warm = false;
  bool free_layout = false;
  std::string trace_file;
};

struct Row {
  double ns = 0;
  std::string error;  // when not measured
};

class Runner {
 public:
  Runner(const Flags& flags, machine::TargetInfo target)
      : flags_(flags), target_(std::move(target)) {
    options_.threads = flags.threads;
    options_.cpus = flags.cpus;
    if (flags.warm) options_.timing = RoundTiming();
  }

  absl::Status Run(const Workload& workload) {
    if (flags_.print_workload) std::printf("%s\n", workload.text.c_str());
    std::printf("%-14s %s: %.3f GFLOP\n", workload.name.c_str(), workload.label.c_str(),
                workload.flops * 1e-9);
    std::fflush(stdout);
    HEDDLE_ASSIGN_OR_RETURN(bench_, WorkloadBench::Create(workload.text, options_));
    peak_ = runtime::MeasureFmaPeak() * flags_.threads;
    if (flags_.naive) Print("naive", workload, Measure(workload, ScheduleChoice::kNaive, ""));
    Print("default", workload, Measure(workload, ScheduleChoice::kDefault, ""));
    HEDDLE_ASSIGN_OR_RETURN(const ir::Program naive, ir::Parse(workload.text));
    if (flags_.print_default) {
      HEDDLE_ASSIGN_OR_RETURN(const schedule::Trace trace, schedule::DefaultTrace(naive, target_));
      std::printf("%s", schedule::ToText(trace).c_str());
    }
    if (!flags_.trace_file.empty()) {
      HEDDLE_ASSIGN_OR_RETURN(const std::string trace, ReadTrace());
      Print("trace", workload, Measure(workload, ScheduleChoice::kTrace, trace));
    }
    return flags_.points > 0 ? RunSpace(workload, naive) : absl::OkStatus();
  }

 private:
  absl::Status RunSpace(const Workload& workload, const ir::Program& naive) {
    HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<schedule::Space> space,
                            schedule::MakeSpace(naive, target_));
    schedule::Rng rng(flags_.seed);
    Row best;
    std::string best_trace;
    int measured = 0, infeasible = 0, failed = 0;
    for (int i = 0; i < flags_.points; ++i) {
      const auto trace = space->Expand(space->Random(rng));
      if (!trace.ok()) {
        ++infeasible;
        continue;
      }
      const std::string text = schedule::ToText(*trace);
      const Row row = Measure(workload, ScheduleChoice::kTrace, text);
      if (!row.error.empty()) {
        ++failed;
        if (flags_.errors) std::printf("  %s\n%s", row.error.c_str(), text.c_str());
        continue;
      }
      ++measured;
      if (best.ns == 0 || row.ns < best.ns) {
        best = row;
        best_trace = text;
      }
    }
    if (measured == 0) best.error = "no point was measured";
    Print(absl::StrCat("best of ", measured), workload, best);
    std::printf("  space of %.2g points, %d decisions; drawn %d: %d infeasible, %d failed\n",
                space->Size(), space->NumDecisions(), flags_.points, infeasible, failed);
    if (flags_.print_best) std::printf("%s", best_trace.c_str());
    return absl::OkStatus();
  }

  Row Measure(const Workload& workload, ScheduleChoice choice, const std::string& trace) {
    const auto artifact = BuildCandidate(workload.text, choice, trace, target_.target);
    if (!artifact.ok()) return {0, absl::StrCat("build: ", artifact.status().message())};
    const auto result = bench_->Run(*artifact);
    if (!result.ok()) return {0, std::string(result.status().message())};
    return {result->timing.MedianNs(), ""};
  }

  void Print(const std::string& what, const Workload& workload, const Row& row) const {
    if (!row.error.empty()) {
      std::printf("  %-12s %s\n", what.c_str(), row.error.c_str());
    } else {
      const double gflops = workload.flops / row.ns;
      std::printf("  %-12s %10.1f us %8.2f GFLOP/s", what.c_str(), row.ns * 1e-3, gflops);
      if (peak_ > 0) std::printf(" %6.1f %% of %.0f", 100 * gflops / peak_, peak_);
      std::printf("\n");
    }
    std::fflush(stdout);
  }

  absl::StatusOr<std::string> ReadTrace() const {
    std::ifstream file(flags_.trace_file);
    if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", flags_.trace_file));
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }

  const Flags& flags_;
  const machine::TargetInfo target_;
  MeasureOptions options_;
  std::unique_ptr<WorkloadBench> bench_;
  double peak_ = 0;  // GFLOP/s of all threads
};

absl::Status RunAll(const Flags& flags) {
  Target target;
  target.threads = flags.threads;
  HEDDLE_ASSIGN_OR_RETURN(target, codegen::ResolveTarget(target));
  HEDDLE_ASSIGN_OR_RETURN(machine::TargetInfo info, codegen::DescribeTarget(target));
  std::printf("%s, FMA peak of one core %.0f GFLOP/s\n", ToText(target).c_str(),
              runtime::MeasureFmaPeak());
  Runner runner(flags, std::move(info));
  for (const std::string& name : flags.names) {
    HEDDLE_ASSIGN_OR_RETURN(
        const std::vector<Workload> workloads,
        FindWorkloads(name, {.target = target, .free_layout = flags.free_layout}));
    for (const Workload& workload : workloads) HEDDLE_RETURN_IF_ERROR(runner.Run(workload));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
  heddle::bench::Flags flags;
  CLI::App app("Measures kernels of the compiler beside the machine's FMA peak.");
  app.add_option(
      "name", flags.names,
      "C1..C12, D1..D9, MxNxK, BxMxNxK or a model of the zoo; all of the table if none is "
      "named");
  app.add_option("--points", flags.points, "random points of the search space")
      ->check(CLI::Range(0, 100000));
  app.add_option("--threads", flags.threads, "threads of a kernel")->check(CLI::Range(1, 256));
  app.add_option("--cpus", flags.cpus, "cores to pin to")->delimiter(',');
  app.add_option("--seed", flags.seed, "of the random points");
  app.add_option("--trace", flags.trace_file, "also measure the trace in this file");
  app.add_flag("!--no-naive", flags.naive, "skip the naive loops");
  app.add_flag("--print-best", flags.print_best, "print the trace of the best point");
  app.add_flag("--print-default", flags.print_default, "print the default trace");
  app.add_flag("--print-workload", flags.print_workload, "print the workload");
  app.add_flag("--warm", flags.warm, "leave the caches as the last call left them");
  app.add_flag("--free-layout", flags.free_layout,
               "convolutions in the layout that is cheapest for each");
  app.add_flag("--errors", flags.errors, "print failed points with their traces");
  if (const auto end = heddle::ParseCommandLine(&app, argc, argv)) return *end;
  if (flags.names.empty()) flags.names = heddle::bench::OperatorNames();
  const absl::Status status = heddle::bench::RunAll(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "heddle-kernel-bench: %s\n", std::string(status.message()).c_str());
  return status.code() == absl::StatusCode::kNotFound ? 4 : 1;
}
