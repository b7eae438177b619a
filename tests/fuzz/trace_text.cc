// Traces (compiler/schedule/trace.h) and their replay on two programs; the first byte chooses one. Traces come from workers, records
// and clients.
#include "compiler/schedule/trace.h"

#include <array>
#include <string>

#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/pass/lower.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/trace_programs.h"

namespace heddle::fuzz {
namespace {

const ir::Program& ProgramOf(unsigned byte) {
  static const auto& programs = *[] {
    auto* parsed = new std::array<ir::Program, std::size(kTracePrograms)>;
    for (size_t i = 0; i < parsed->size(); ++i) {
      absl::StatusOr<ir::Program> program = ir::Parse(kTracePrograms[i]);
      Require(program.ok() && ir::Verify(*program).ok(), "this file's programs are programs");
      (*parsed)[i] = *std::move(program);
    }
    return parsed;
  }();
  return programs[byte % programs.size()];
}

}  // namespace

void Run(std::string_view input) {
  const ir::Program& naive = ProgramOf(TakeByte(&input));
  const absl::StatusOr<schedule::Trace> trace = schedule::ParseTrace(input);
  if (!trace.ok()) return;
  const absl::StatusOr<schedule::Trace> again = schedule::ParseTrace(schedule::ToText(*trace));
  Require(again.ok() && *again == *trace, "a trace's text round-trips");
  const absl::StatusOr<ir::Program> scheduled = schedule::Replay(naive, *trace);
  if (!scheduled.ok() || !ir::Verify(*scheduled).ok()) return;
  const absl::StatusOr<ir::Program> lowered = pass::Lower(*scheduled);
  if (!lowered.ok()) return;
  const absl::StatusOr<ir::Program> parsed = ir::Parse(ir::Print(*lowered));
  Require(parsed.ok() && ir::Print(*parsed) == ir::Print(*lowered),
          "a lowered program's text round-trips");
}

}  // namespace heddle::fuzz
