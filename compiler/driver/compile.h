// The compiler's interface for its users: the worker's import, build and compile stages, and the
// client's local commands. All functions work on untrusted bytes and must run in a disposable
// process.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/vocabulary/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/machine/measured_machine.h"
#include "compiler/onnx/import.h"
#include "compiler/plan/plan.h"
#include "compiler/runtime/module.h"

namespace heddle {

struct ModelOptions {
  graph::ImportOptions import;
  graph::PassOptions passes;
  graph::FuseOptions fuse;
  bool share_memory = true;
  // What was measured on the target's device; nullopt: what the table of CPU families says. It
  // enters what a plan leaves open, and the schedules of kernels without a trace.
  std::optional<machine::MeasuredMachine> machine;
};

// Imports, optimises and fuses a model for `target` (default: this machine), as the plan says. What the
// plan leaves open is estimated for the target. `complete` (optional) receives the plan with nothing left
// open. A pure function: equal bytes, options, plan and target give equal groups and keys. If the plan
// has nothing left open, options.machine changes nothing, and of the target only the vector width and the
// number of threads matter. InvalidArgument: the model is bad, the plan does not fit the model, or as ResolveTarget.
absl::StatusOr<graph::FusedGraph> PrepareModel(std::string_view onnx, const ModelOptions& options,
                                               const Target& target = {},
                                               const plan::Plan& plan = {},
                                               plan::Plan* complete = nullptr);

// ---- One candidate ----

// The schedule of a kernel.
enum class ScheduleChoice { kNaive, kDefault, kTrace };

// Parses the workload's text, applies the schedule, lowers and compiles. The artifact's first
// kernel is "kernel". If the schedule prepacks constants, the second one, "kernel.prepack", makes
// them. Arguments have the names of the workload's buffers; prepacked ones have their own names.
// `trace` is used for kTrace only. InvalidArgument: malformed workload or trace, or as
// ResolveTarget. FailedPrecondition: a step refuses, the program does not verify, or the target
// forbids an approximation. Other errors as Backend::Compile. `machine`: as ModelOptions::machine.
absl::StatusOr<codegen::Artifact> BuildCandidate(
    std::string_view workload, ScheduleChoice choice, std::string_view trace, const Target& target,
    const std::optional<machine::MeasuredMachine>& machine = std::nullopt);

// ---- Whole models ----

// The best known schedule of one task.
struct BestRecord {
  std::optional<std::string> trace;  // nullopt: the default schedule
  double median_ns = 0;              // what a call took when it was measured
};

struct CompileOptions {
  // With kTrace, tasks in `best` get their trace and others the default schedule. A module says what was measured of a schedule that
  // it has (KernelSpec::record_ms).
  ScheduleChoice choice = ScheduleChoice::kTrace;
  std::string model_name;
  plan::Plan plan = {};  // as for PrepareModel
  // If set, called for each distinct kernel.
  std::function<void(int done, int total, const std::string& label)> progress;
};

// Compiles a model to a module file (runtime/module.h), which `sink` takes piece by piece. A model that is imported for several
// numbers of rows (graph/core/row_blocks.h) gives one module for all of them. The default
// schedule replaces a record whose trace no longer replays, or whose kernel does not compute what its
// workload says. The latter is checked at a few elements if the target runs on this machine.
// `warnings` (optional) receives a line for each such record. Weights are not copied: the module is
// written from where they are.
absl::Status WriteCompiledModel(std::string_view onnx, const ModelOptions& options,
                                const Target& target, const std::map<std::string, BestRecord>& best,
                                const CompileOptions& compile, const runtime::ByteSink& sink,
                                std::vector<std::string>* warnings = nullptr);

// The same as one string.
absl::StatusOr<std::string> CompileModel(std::string_view onnx, const ModelOptions& options,
                                         const Target& target,
                                         const std::map<std::string, BestRecord>& best,
                                         const CompileOptions& compile,
                                         std::vector<std::string>* warnings = nullptr);

// The reference result: all operators of the imported graph, unoptimised and unfused, are
// interpreted as naive loops. It does not depend on any optimisation, and is slow: a ResNet takes
// about a minute. Inputs and outputs are dense row-major bytes in the model's order; a model with independent rows takes any
// number of them.
absl::StatusOr<std::vector<std::string>> InterpretModel(
    std::string_view onnx, const ModelOptions& options, const std::vector<std::string>& inputs,
    const std::function<void(int done, int total)>& progress = nullptr);

}  // namespace heddle
