// The compiler as its users see it: the worker's import, build and compile stages and the client's
// local commands are these calls. Everything here works on untrusted bytes and must run in a
// disposable process.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/onnx/import.h"

namespace heddle {

struct ModelOptions {
  graph::ImportOptions import;
  graph::PassOptions passes;
  graph::FuseOptions fuse;
  bool share_memory = true;
};

// Import, optimise, fuse, in layouts for `target` (this machine's unless said). Deterministic: the
// same bytes, options, width of the target's vectors and threads give the same groups and keys.
// InvalidArgument: the model, or what ResolveTarget says of the target.
absl::StatusOr<graph::FusedGraph> PrepareModel(std::string_view onnx, const ModelOptions& options,
                                               const Target& target = {});

// ---- One candidate
// -------------------------------------------------------------------------------------------------

// Which schedule a kernel gets.
enum class ScheduleChoice { kNaive, kDefault, kTrace };

// workload text -> program -> schedule -> lowered -> machine code. The artifact's first kernel is
// "kernel"; if the schedule prepacks constants, the second one, "kernel.prepack", makes them.
// Arguments have the names of the workload's buffers; prepacked ones have names of their own.
// `trace` is used for kTrace only. InvalidArgument: malformed workload or trace.
// FailedPrecondition: a step refuses, or the program does not verify. ResourceExhausted: the
// schedule exceeds the limits of the architecture. Unavailable: no compiler for a cuda target on
// this machine.
absl::StatusOr<codegen::Artifact> BuildCandidate(std::string_view workload, ScheduleChoice choice,
                                                 std::string_view trace, const Target& target);

// Whether a schedule computes in Winograd's form, whose results are compared within a tolerance of
// their own (codegen/tolerance.h): Artifact.winograd of what BuildCandidate makes of it.
bool UsesWinograd(std::string_view trace);
// Likewise whether it rounds f32 to tf32.
bool UsesTf32(std::string_view trace);

// ---- Whole models
// --------------------------------------------------------------------------------------------------

// The best known schedule of one task.
struct BestRecord {
  std::string trace;
  double median_ns = 0;
};

struct CompileOptions {
  ScheduleChoice choice =
      ScheduleChoice::kTrace;  // kTrace: `best` where it has the task, else the default schedule
  std::string model_name;
  std::function<void(int done, int total, const std::string& label)>
      progress;  // per distinct kernel, when set
};

// The serialised module (runtime/module.h). A record whose trace no longer replays, or whose kernel
// computes something else than its workload says (checked at a few elements where the target runs
// on this machine), gives way to the default schedule and is named in `warnings` (optional).
absl::StatusOr<std::string> CompileModel(std::string_view onnx, const ModelOptions& options,
                                         const Target& target,
                                         const std::map<std::string, BestRecord>& best,
                                         const CompileOptions& compile,
                                         std::vector<std::string>* warnings = nullptr);

// The reference result: the imported graph, unoptimised and unfused, every operator interpreted as
// naive loops. Inputs and outputs are dense row-major bytes in the model's order. Slow (a ResNet
// takes about a minute) and independent of every optimisation.
absl::StatusOr<std::vector<std::string>> InterpretModel(
    std::string_view onnx, const ModelOptions& options, const std::vector<std::string>& inputs,
    const std::function<void(int done, int total)>& progress = nullptr);

}  // namespace heddle
