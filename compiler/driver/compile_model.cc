// Compiles ONNX bytes and records to a module file.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "base/vocabulary/workload_key.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/import_model.h"
#include "compiler/driver/kernel_table.h"
#include "compiler/driver/places.h"
#include "compiler/driver/prepack.h"
#include "compiler/driver/verify_kernel.h"
#include "compiler/graph/fusion/memory_plan.h"
#include "compiler/graph/fusion/row_blocks.h"
#include "compiler/ir/text.h"
#include "compiler/pass/overwrite.h"
#include "compiler/runtime/cpu_features.h"
#include "compiler/runtime/module.h"
#include "compiler/tensor/expression.h"

namespace heddle {
namespace {

using internal::KernelTable;
using internal::Places;
using internal::ValueCall;

// Adds a kernel for each group of the model. Returns the index of the kernel of each group.
absl::StatusOr<std::vector<int>> AddGroups(const graph::FusedGraph& fused, KernelTable* kernels) {
  std::vector<int> kernel_of;
  for (const graph::Group& group : fused.groups) {
    HEDDLE_ASSIGN_OR_RETURN(
        kernel_of.emplace_back(),
        kernels->Add({group.key, group.workload, group.naive, group.label, group.flops}));
  }
  return kernel_of;
}

// Puts prepacked constants into the graph. Returns the calls of the groups.
absl::StatusOr<std::vector<ValueCall>> Prepack(const KernelTable& kernels,
                                               const std::vector<int>& kernel_of,
                                               const machine::TargetInfo& target,
                                               graph::FusedGraph* fused) {
  std::vector<ValueCall> calls;
  std::vector<const internal::LoweredWorkload*> lowered;
  for (size_t i = 0; i < kernel_of.size(); ++i) {
    calls.push_back({kernel_of[i], fused->groups[i].inputs, {}});
    lowered.push_back(&kernels.lowered(kernel_of[i]));
  }
  HEDDLE_RETURN_IF_ERROR(internal::PrepackConstants(lowered, target, fused));
  for (size_t i = 0; i < calls.size(); ++i) calls[i].taken = fused->groups[i].inputs;
  return calls;
}

graph::MemoryPlan PlanMemory(const graph::FusedGraph& fused, const KernelTable& kernels,
                             const std::vector<int>& kernel_of, bool share) {
  graph::MemoryPlanOptions options = {.share = share};
  for (int kernel : kernel_of) {
    auto& pairs = options.may_overwrite.emplace_back();
    for (const pass::Overwrite& pair : pass::FindOverwrites(kernels.lowered(kernel).kernel))
      pairs.emplace_back(pair.output, pair.input);
  }
  return graph::PlanMemory(fused, options);
}

// The calls of each block of rows (graph::GroupsByBlock).
using BlockCalls = std::vector<std::vector<runtime::CallSpec>>;

BlockCalls GroupCalls(const graph::FusedGraph& fused, const std::vector<int>& kernel_of,
                      const Places& places) {
  BlockCalls calls;
  for (const graph::BlockGroups& block : graph::GroupsByBlock(fused)) {
    std::vector<runtime::CallSpec>& of_block = calls.emplace_back();
    for (int g : block.groups) {
      const graph::Group& group = fused.groups[static_cast<size_t>(g)];
      runtime::CallSpec& call = of_block.emplace_back();
      call.kernel = kernel_of[static_cast<size_t>(g)];
      for (const auto* values : {&group.inputs, &group.outputs}) {
        for (graph::ValueId v : *values) call.buffers.push_back(places.slots.at(v));
      }
    }
  }
  return calls;
}

// A kernel that copies a tensor of `type` as one dimension.
absl::StatusOr<KernelTable::Workload> CopyWorkload(const graph::TensorType& type) {
  tensor::Builder builder("copy");
  const int64_t length = graph::NumElements(type);
  const tensor::Tensor x = builder.Input("x", type.dtype, {length});
  const tensor::Tensor y = builder.Compute("y", {length}, [&](tensor::Iters i) { return x(i[0]); });
  HEDDLE_ASSIGN_OR_RETURN(const tensor::TensorProgram program, builder.Build({y}));
  KernelTable::Workload workload;
  HEDDLE_ASSIGN_OR_RETURN(workload.naive, tensor::LowerToLoops(program));
  workload.text = ir::Print(workload.naive);
  workload.key = WorkloadKey(workload.text);
  workload.label = absl::StrCat("copy ", graph::ToText(type));
  return workload;
}

// Adds calls that write the outputs that no group writes.
absl::Status AddCopies(const graph::Graph& graph, const Places& places, KernelTable* kernels,
                       BlockCalls* calls, std::vector<ValueCall>* value_calls) {
  const size_t outputs = graph.outputs.size() / calls->size();  // of a block
  for (const auto& [from, to] : places.copies) {
    HEDDLE_ASSIGN_OR_RETURN(KernelTable::Workload copy, CopyWorkload(graph.values[from].type));
    HEDDLE_ASSIGN_OR_RETURN(const int kernel, kernels->Add(std::move(copy)));
    (*calls)[static_cast<size_t>(to.index) / outputs].push_back(
        {kernel, {places.slots.at(from), to}});
    value_calls->push_back({kernel, {from}, {from}});
  }
  return absl::OkStatus();
}

// Puts the calls into the manifest, which has the inputs and outputs of the first block.
void SetCalls(BlockCalls calls, const std::vector<int64_t>& rows, runtime::Manifest* manifest) {
  const auto inputs = static_cast<int64_t>(manifest->inputs.size());
  const auto outputs = static_cast<int64_t>(manifest->outputs.size());
  for (std::vector<runtime::CallSpec>& of_block : calls) {
    for (runtime::CallSpec& call : of_block) {
      for (runtime::BufferSlot& slot : call.buffers) {
        if (slot.place == runtime::Place::kInput) slot.index %= inputs;
        if (slot.place == runtime::Place::kOutput) slot.index %= outputs;
      }
    }
  }
  manifest->calls = std::move(calls[0]);
  for (size_t b = 1; b < calls.size(); ++b)
    manifest->smaller_blocks.push_back({rows[b], std::move(calls[b])});
}

static_assert(graph::kMostSamples == runtime::kMostSamples);

// Of the inputs or outputs of the first of `blocks` blocks of rows.
std::vector<runtime::TensorSpec> SpecsOf(const graph::Graph& graph,
                                         const std::vector<graph::ValueId>& values,
                                         const std::vector<graph::TensorNames>& names,
                                         size_t blocks) {
  std::vector<runtime::TensorSpec> specs;
  for (size_t i = 0; i < values.size() / blocks; ++i) {
    const graph::Value& value = graph.values[values[i]];
    specs.push_back({value.name, std::string(ir::Name(value.type.dtype)), value.type.shape, {}});
    if (i >= names.size()) continue;
    specs[i].text = names[i].text;
    specs[i].columns = names[i].columns;
    specs[i].labels = names[i].labels;
    specs[i].samples = names[i].samples;
  }
  return specs;
}

// The features of the target that the runtime can check for.
std::vector<std::string> FeaturesOf(const Target& target) {
  std::vector<std::string> features;
  for (std::string& name : codegen::BackendOf(target).Features(target)) {
    if (runtime::IsKnownCpuFeature(name)) features.push_back(std::move(name));
  }
  return features;
}

// What WriteModule needs.
struct CompiledModel {
  runtime::Manifest manifest;
  std::string code;
  std::vector<SharedBytes> params;
};

// Compiles the module with the schedules of `best`. Tasks whose tuned kernel computes a wrong
// result go to *wrong; if there are any, the module must not be used.
absl::StatusOr<CompiledModel> TryCompile(std::string_view onnx, graph::FusedGraph fused,
                                         const ModelOptions& options,
                                         const machine::TargetInfo& target,
                                         const std::map<std::string, BestRecord>& best,
                                         const CompileOptions& compile,
                                         std::vector<std::string>* warnings,
                                         std::set<std::string>* wrong) {
  const Target& resolved = target.target;
  CompiledModel module;
  runtime::Manifest& manifest = module.manifest;
  KernelTable kernels(target, best, compile, warnings);
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<int> kernel_of, AddGroups(fused, &kernels));
  HEDDLE_RETURN_IF_ERROR(kernels.Lower());
  HEDDLE_ASSIGN_OR_RETURN(std::vector<ValueCall> calls,
                          Prepack(kernels, kernel_of, target, &fused));
  const graph::MemoryPlan plan = PlanMemory(fused, kernels, kernel_of, options.share_memory);
  HEDDLE_ASSIGN_OR_RETURN(Places places, internal::AssignPlaces(fused, plan));
  BlockCalls block_calls = GroupCalls(fused, kernel_of, places);
  HEDDLE_RETURN_IF_ERROR(AddCopies(fused.graph, places, &kernels, &block_calls, &calls));
  HEDDLE_ASSIGN_OR_RETURN(codegen::Artifact artifact, kernels.Compile());
  if (codegen::BackendOf(resolved).RunsHere(resolved)) {
    HEDDLE_ASSIGN_OR_RETURN(
        const std::vector<internal::WrongKernel> found,
        internal::FindWrongKernels(artifact, kernels, calls, fused.graph, resolved.threads));
    for (const internal::WrongKernel& kernel : found) {
      const runtime::KernelSpec& spec = kernels.specs()[kernel.kernel];
      wrong->insert(spec.task);
      if (warnings == nullptr) continue;
      warnings->push_back(absl::StrCat("task ", spec.task, " (", spec.label,
                                       "): its tuned schedule is not used: ", kernel.message));
    }
  }

  module.code = std::move(artifact.shared_object);
  module.params = std::move(places.params);
  manifest.packed = std::move(places.packed);
  manifest.producer = absl::StrCat("heddle ", HEDDLE_VERSION);
  manifest.model = compile.model_name;
  manifest.model_digest = Sha256Hex(onnx);
  manifest.target = ToText(resolved);
  if (options.machine) manifest.machine = machine::ToText(*options.machine);
  manifest.cpu_features = FeaturesOf(resolved);
  manifest.threads = resolved.threads;
  const graph::Tables& tables = fused.graph.tables;
  manifest.inputs = SpecsOf(fused.graph, fused.graph.inputs, tables.inputs, block_calls.size());
  manifest.outputs = SpecsOf(fused.graph, fused.graph.outputs, tables.outputs, block_calls.size());
  SetCalls(std::move(block_calls), tables.blocks, &manifest);
  manifest.independent_rows = tables.independent_rows;
  for (const graph::OutputLength& l : fused.graph.lengths)
    manifest.outputs[static_cast<size_t>(l.output)].lengths.push_back({l.axis, l.length});
  manifest.kernels = kernels.specs();
  manifest.arena_bytes = plan.arena_bytes;
  manifest.unshared_bytes = plan.unshared_bytes;
  for (const runtime::KernelSpec& kernel : manifest.kernels) {
    manifest.workspace_bytes = std::max(manifest.workspace_bytes, kernel.workspace_bytes);
  }
  return module;
}

}  // namespace

absl::Status WriteCompiledModel(std::string_view onnx, const ModelOptions& options,
                                const Target& target, const std::map<std::string, BestRecord>& best,
                                const CompileOptions& compile, const runtime::ByteSink& sink,
                                std::vector<std::string>* warnings) {
  HEDDLE_ASSIGN_OR_RETURN(const Target resolved, codegen::ResolveTarget(target));
  HEDDLE_ASSIGN_OR_RETURN(
      const machine::TargetInfo info,
      codegen::DescribeTarget(resolved, options.machine ? &*options.machine : nullptr));
  plan::Plan plan;
  HEDDLE_ASSIGN_OR_RETURN(const graph::FusedGraph fused,
                          PrepareModel(onnx, options, resolved, compile.plan, &plan));
  std::set<std::string> wrong;
  std::vector<std::string> found;
  absl::StatusOr<CompiledModel> module =
      TryCompile(onnx, fused, options, info, best, compile, &found, &wrong);
  if (module.ok() && !wrong.empty()) {
    // This is rare. The second attempt omits the wrong records; the other kernels were right, so
    // one more attempt is enough.
    std::map<std::string, BestRecord> right = best;
    for (const std::string& task : wrong) right.erase(task);
    wrong.clear();
    module = TryCompile(onnx, fused, options, info, right, compile, nullptr, &wrong);
    if (module.ok() && !wrong.empty()) {
      return absl::InternalError(absl::StrCat("task ", *wrong.begin(), " is right only at times"));
    }
  }
  if (warnings != nullptr) warnings->insert(warnings->end(), found.begin(), found.end());
  HEDDLE_RETURN_IF_ERROR(module.status());
  module->manifest.plan = plan::ToText(plan);
  return runtime::WriteModule(module->manifest, module->code, module->params, sink);
}

absl::StatusOr<std::string> CompileModel(std::string_view onnx, const ModelOptions& options,
                                         const Target& target,
                                         const std::map<std::string, BestRecord>& best,
                                         const CompileOptions& compile,
                                         std::vector<std::string>* warnings) {
  std::string bytes;
  const auto append = [&bytes](std::string_view piece) {
    bytes.append(piece);
    return absl::OkStatus();
  };
  HEDDLE_RETURN_IF_ERROR(
      WriteCompiledModel(onnx, options, target, best, compile, append, warnings));
  return bytes;
}

}  // namespace heddle
