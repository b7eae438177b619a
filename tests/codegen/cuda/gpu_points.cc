// gpu-points MODEL|WORKLOAD|C1-C12.. [POINTS]: draws points of the GPU spaces of a zoo model's
// tasks or of workloads and counts what becomes of them before any compiler sees them, by hand.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/zoo/zoo.h"
#include "compiler/codegen/cuda/cuda_backend.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/schedule_and_lower.h"
#include "compiler/ir/text.h"
#include "compiler/ir/workload.h"
#include "compiler/schedule/trace.h"
#include "tests/codegen/cuda/gpu_testing.h"
#include "tests/schedule/workloads.h"

namespace heddle::testing {
namespace {

struct Named {
  std::string name;
  ir::Program program;
};

absl::StatusOr<std::vector<Named>> ProgramsOf(const std::string& name) {
  std::vector<Named> programs;
  const auto model = zoo::MakeZooModel(name, 1);
  if (!model.ok()) {
    const auto workload = schedule::MakeWorkload(name);
    if (!workload.ok()) return workload.status();
    programs.push_back({name, *workload});
    return programs;
  }
  const auto prepared = PrepareModel(*model, {}, GpuTarget().target);
  if (!prepared.ok()) return prepared.status();
  for (const graph::Task& task : graph::ExtractTasks(*prepared)) {
    const auto program = ir::ParseWorkload(task.workload);
    if (!program.ok()) return program.status();
    programs.push_back({task.label, *program});
  }
  return programs;
}

// Messages of one kind together: without their numbers and, of a verifier's, without the place.
std::string Kind(absl::string_view message) {
  std::string kind;
  for (const char c : message.substr(0, message.find('\n'))) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) kind += c;
    if (digit && (kind.empty() || kind.back() != '#')) kind += '#';
  }
  return kind.substr(0, 100);
}

int Main(int argc, char** argv) {
  const machine::TargetInfo target = GpuTarget();
  int points = 200;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const int n = std::atoi(argv[i]);
    n > 0 && absl::StrCat(n) == argv[i] ? void(points = n) : names.push_back(argv[i]);
  }
  std::map<std::string, int> all;
  int drawn = 0, good = 0;
  for (const std::string& name : names) {
    const auto programs = ProgramsOf(name);
    if (!programs.ok()) {
      std::fprintf(stderr, "gpu-points: %s\n", std::string(programs.status().message()).c_str());
      return 1;
    }
    for (const Named& named : *programs) {
      const auto space = schedule::MakeSpace(named.program, target);
      if (!space.ok()) return 1;
      schedule::Rng rng(1);
      std::map<std::string, int> refused;
      int expanded = 0, lowered = 0;
      for (int i = 0; i < points; ++i) {
        const auto trace = (*space)->Expand((*space)->Random(rng));
        if (!trace.ok()) {
          ++refused[Kind(trace.status().message())];
          continue;
        }
        ++expanded;
        const std::string text = schedule::ToText(*trace);
        const auto result = internal::ScheduleAndLower(named.program, ScheduleChoice::kTrace, text,
                                                       target, "kernel");
        if (!result.ok()) {
          const std::string kind = "LOWERING " + Kind(result.status().message());
          if (++refused[kind] == 1)
            std::printf("--- %s\n%s\n%s", std::string(result.status().message()).c_str(),
                        ir::Print(named.program).c_str(), text.c_str());
          continue;
        }
        if (const absl::Status fits =
                codegen::CudaBackend().CheckLimits(result->kernel, target.target);
            !fits.ok()) {
          ++refused["LIMITS " + Kind(fits.message())];
          continue;
        }
        ++lowered;
      }
      std::printf("%5d %5d of %d  %s (%.3g points)\n", expanded, lowered, points,
                  named.name.c_str(), (*space)->Size());
      drawn += points;
      good += lowered;
      for (const auto& [why, times] : refused) all[why] += times;
    }
  }
  std::printf("%.1f %% of %d points are refused\n", 100.0 * (drawn - good) / std::max(1, drawn),
              drawn);
  for (const auto& [why, times] : all) std::printf("%6d x %s\n", times, why.c_str());
  return 0;
}

}  // namespace
}  // namespace heddle::testing

int main(int argc, char** argv) { return heddle::testing::Main(argc, argv); }
