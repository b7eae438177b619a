// space-show WORKLOAD|FILE [TARGET] shows by hand what rules make of a program: the naive program,
// which rule took which stage, the decisions, and what the preferred ones come to. A FILE holds a
// naive program as text. docs/schedule-spaces.md shows the output.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "base/status_macros.h"
#include "base/vocabulary/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/ir/text.h"
#include "compiler/schedule/space.h"
#include "tests/schedule/workloads.h"

namespace heddle::schedule {
namespace {

// The workload of that name, or the program in that file.
absl::StatusOr<ir::Program> Load(const std::string& workload) {
  std::ifstream file(workload);
  if (!file) return MakeWorkload(workload);
  return ir::Parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

absl::Status Show(const std::string& workload, const std::string& target_text) {
  HEDDLE_ASSIGN_OR_RETURN(const ir::Program naive, Load(workload));
  HEDDLE_ASSIGN_OR_RETURN(const Target target, ParseTarget(target_text));
  HEDDLE_ASSIGN_OR_RETURN(machine::TargetInfo info, codegen::DescribeTarget(target));
  // The same on every host, whatever its caches are.
  info.l1_bytes = machine::TargetInfo().l1_bytes;
  info.l2_bytes = machine::TargetInfo().l2_bytes;
  HEDDLE_ASSIGN_OR_RETURN(const auto space, MakeSpace(naive, info));
  const Point preferred = space->Preferred();
  HEDDLE_ASSIGN_OR_RETURN(const Trace trace, space->Expand(preferred));
  HEDDLE_ASSIGN_OR_RETURN(const ir::Program scheduled, Replay(naive, trace));
  std::printf("---- naive\n%s", ir::Print(naive).c_str());
  std::printf("---- rules\n");
  for (const Offer& offer : space->Offers()) {
    std::printf("%s: %s%s\n", offer.stage.c_str(), offer.rule.c_str(),
                offer.status.ok() ? "" : (" refused: " + offer.status.ToString()).c_str());
  }
  std::printf("---- decisions: %.1e points\n", space->Size());
  for (int k = 0; k < space->NumDecisions(); ++k)
    std::printf("%2d of %2d  %s\n", preferred[k], space->Choices(k), space->Describe(k).c_str());
  std::printf("---- trace\n%s", ToText(trace).c_str());
  std::printf("---- scheduled\n%s", ir::Print(scheduled).c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace heddle::schedule

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: space-show WORKLOAD [TARGET]\n");
    return 2;
  }
  const absl::Status status =
      heddle::schedule::Show(argv[1], argc > 2 ? argv[2] : "llvm -mcpu=sapphirerapids");
  if (!status.ok()) std::fprintf(stderr, "space-show: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
