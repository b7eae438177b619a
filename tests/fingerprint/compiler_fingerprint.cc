#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "client/zoo/zoo.h"
#include "compiler/codegen/backend.h"
#include "compiler/codegen/cuda/emitter.h"
#include "compiler/codegen/llvm/llvm_backend.h"
#include "compiler/driver/compile.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/ir/text.h"
#include "compiler/machine/group_products.h"
#include "compiler/pass/hoist_constants.h"
#include "compiler/pass/lower.h"
#include "compiler/schedule/space.h"
#include "compiler/schedule/trace.h"
#include "cost_model/features/features.h"
#include "cost_model/search.h"
#include "tests/fingerprint/fingerprint.h"

namespace heddle::fingerprint {
namespace {

// The target's numbers, with caches of a fixed size: those of the machine this runs on would show.
absl::StatusOr<machine::TargetInfo> Describe(const std::string& text) {
  HEDDLE_ASSIGN_OR_RETURN(Target target, ParseTarget(text));
  HEDDLE_ASSIGN_OR_RETURN(target, codegen::ResolveTarget(target));
  HEDDLE_ASSIGN_OR_RETURN(machine::TargetInfo info, codegen::DescribeTarget(target));
  info.l1_bytes = 48 << 10;
  info.l2_bytes = 2 << 20;
  return info;
}

std::string GraphText(const graph::Graph& graph) {
  std::string text = graph::Print(graph);
  for (const auto& [value, data] : graph.constants)
    absl::StrAppend(&text, "constant %", value, " ", Digest(*data.bytes), "\n");
  return text;
}

class TaskFingerprint {
 public:
  TaskFingerprint(const CompilerOptions& options, const machine::TargetInfo& target,
                  const std::string& name, const Sink& sink)
      : options_(options), target_(target), name_(name), sink_(sink) {}

  absl::Status Run(const std::string& workload) {
    Say("workload", workload);
    HEDDLE_ASSIGN_OR_RETURN(const ir::Program naive, ir::Parse(workload));
    HEDDLE_ASSIGN_OR_RETURN(const schedule::Trace trace, schedule::DefaultTrace(naive, target_));
    HEDDLE_RETURN_IF_ERROR(Schedule(naive, trace, "default", options_.machine_code));
    HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<schedule::Space> space,
                            schedule::MakeSpace(naive, target_));
    std::string decisions = absl::StrFormat("%.17g points\n", space->Size());
    for (int i = 0; i < space->NumDecisions(); ++i)
      absl::StrAppend(&decisions, space->Describe(i), ": ", space->Choices(i), "\n");
    Say("space", decisions);
    schedule::Rng rng(1);
    for (int i = 0; i < options_.points; ++i) {
      const schedule::Point point = space->Random(rng);
      const absl::StatusOr<schedule::Trace> drawn = space->Expand(point);
      const std::string what = absl::StrCat("point-", i);
      if (!drawn.ok()) {
        Say(what, drawn.status().ToString());
        continue;
      }
      HEDDLE_RETURN_IF_ERROR(Schedule(naive, *drawn, what, false));
    }
    for (const std::string& strategy : options_.strategies)
      HEDDLE_RETURN_IF_ERROR(Search(workload, strategy));
    return absl::OkStatus();
  }

 private:
  void Say(const std::string& what, std::string_view text) {
    sink_(absl::StrCat(name_, " ", what), text);
  }

  absl::Status Schedule(const ir::Program& naive, const schedule::Trace& trace,
                        const std::string& what, bool machine_code) {
    Say(absl::StrCat(what, " trace"), schedule::ToText(trace));
    const absl::StatusOr<ir::Program> scheduled = schedule::Replay(naive, trace);
    if (!scheduled.ok()) {
      Say(absl::StrCat(what, " refused"), scheduled.status().ToString());
      return absl::OkStatus();
    }
    Say(absl::StrCat(what, " scheduled"), ir::Print(*scheduled));
    std::string features;
    for (const float f : cost_model::ExtractFeatures(*scheduled, target_))
      absl::StrAppendFormat(&features, "%.5g ", f);
    Say(absl::StrCat(what, " features"), features);
    const pass::HoistedProgram hoisted = pass::HoistConstants(*scheduled);
    std::vector<ir::Program> programs{hoisted.kernel};
    if (hoisted.prepack) programs.push_back(*hoisted.prepack);
    std::string text;
    pass::LowerOptions lower;
    lower.target = target_;
    lower.verify_each = false;
    for (size_t i = 0; i < programs.size(); ++i) {
      const absl::StatusOr<ir::Program> lowered = pass::Lower(programs[i], lower);
      if (!lowered.ok()) {
        Say(absl::StrCat(what, " not lowered"), lowered.status().ToString());
        return absl::OkStatus();
      }
      programs[i] = *lowered;
      programs[i].name = i == 0 ? "kernel" : "kernel.prepack";
      absl::StrAppend(&text, ir::Print(programs[i]));
    }
    Say(absl::StrCat(what, " lowered"), text);
    return machine_code ? Code(programs, what) : absl::OkStatus();
  }

  absl::Status Code(const std::vector<ir::Program>& programs, const std::string& what) {
    if (target_.target.kind == TargetKind::kCuda) {
      std::string source;
      for (const ir::Program& program : programs) {
        const auto kernel =
            codegen::EmitCuda(program, "kernel", machine::MakesGroupProducts(target_));
        absl::StrAppend(&source, kernel.ok() ? kernel->source : kernel.status().ToString(), "\n");
      }
      Say(absl::StrCat(what, " cuda"), source);
      return absl::OkStatus();
    }
    HEDDLE_ASSIGN_OR_RETURN(const codegen::Artifact artifact,
                            codegen::CompileLlvm(programs, target_.target));
    Say(absl::StrCat(what, " object"), artifact.shared_object);
    return absl::OkStatus();
  }

  // Two rounds, the second by a model of the first one's results, which are made up.
  absl::Status Search(const std::string& workload, const std::string& strategy) {
    HEDDLE_ASSIGN_OR_RETURN(
        const std::unique_ptr<cost_model::Search> search,
        cost_model::MakeSearch(workload, target_, {.strategy = strategy, .seed = 7}));
    std::string text;
    for (int round = 0; round < 2; ++round) {
      HEDDLE_ASSIGN_OR_RETURN(const std::vector<cost_model::Candidate> candidates,
                              search->Propose(16));
      std::vector<cost_model::Result> results;
      for (const cost_model::Candidate& c : candidates) {
        absl::StrAppend(&text, c.origin, "\n", c.trace, "\n");
        const unsigned char first = static_cast<unsigned char>(Digest(c.trace)[0]);
        results.push_back({c.trace, first % 8 != 0, 1e-6 * (1 + first)});
      }
      HEDDLE_RETURN_IF_ERROR(search->Update(results));
    }
    Say(absl::StrCat("search ", strategy), text);
    return absl::OkStatus();
  }

  const CompilerOptions& options_;
  const machine::TargetInfo& target_;
  const std::string name_;
  const Sink& sink_;
};

}  // namespace

absl::Status FingerprintCompiler(const CompilerOptions& options, const Sink& sink) {
  std::set<std::pair<std::string, std::string>> seen;  // target and task
  for (const std::string& model : options.models) {
    HEDDLE_ASSIGN_OR_RETURN(const std::string onnx, zoo::MakeZooModel(model, 1));
    for (const std::string& text : options.targets) {
      HEDDLE_ASSIGN_OR_RETURN(const machine::TargetInfo target, Describe(text));
      const std::string name = absl::StrCat(model, " {", text, "}");
      ModelOptions prepare;
      prepare.passes.observer = [&](const std::string& pass, const graph::Graph& graph, double) {
        sink(absl::StrCat(name, " graph after ", pass), GraphText(graph));
      };
      HEDDLE_ASSIGN_OR_RETURN(const graph::FusedGraph fused,
                              PrepareModel(onnx, prepare, target.target));
      std::string groups;
      for (const graph::Group& group : fused.groups) {
        absl::StrAppend(&groups, group.key, " ", group.label, " of");
        for (const graph::ValueId v : group.inputs) absl::StrAppend(&groups, " ", v);
        absl::StrAppend(&groups, " to");
        for (const graph::ValueId v : group.outputs) absl::StrAppend(&groups, " ", v);
        absl::StrAppend(&groups, "\n");
      }
      sink(absl::StrCat(name, " groups"), groups);
      std::string list;
      const std::vector<graph::Task> tasks = graph::ExtractTasks(fused);
      for (const graph::Task& task : tasks) {
        absl::StrAppendFormat(&list, "%s x%d %.17g %s\n", task.key, task.weight, task.flops,
                              task.label);
      }
      sink(absl::StrCat(name, " tasks"), list);
      for (const graph::Task& task : tasks) {
        if (!seen.emplace(text, task.key).second) continue;
        HEDDLE_RETURN_IF_ERROR(
            TaskFingerprint(options, target, absl::StrCat("{", text, "} ", task.key), sink)
                .Run(task.workload));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace heddle::fingerprint
