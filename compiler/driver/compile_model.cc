// From ONNX bytes and records to a module file.
#include <openssl/sha.h>

#include <algorithm>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/internal.h"
#include "compiler/driver/places.h"
#include "compiler/driver/prepack.h"
#include "compiler/driver/traffic.h"
#include "compiler/driver/verify_kernel.h"
#include "compiler/graph/fusion/memory_plan.h"
#include "compiler/ir/text.h"
#include "compiler/pass/overwrite.h"
#include "compiler/runtime/cpu_features.h"
#include "compiler/runtime/kernel_library.h"
#include "compiler/runtime/module.h"
#include "compiler/runtime/thread_pool.h"
#include "compiler/tensor/expression.h"

namespace heddle {
namespace {

std::string Sha256Hex(std::string_view bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest)));
}

// The kernels of a module: distinct workloads, in order of first use.
class KernelTable {
 public:
  KernelTable(const machine::TargetInfo& target, const std::map<std::string, BestRecord>& best,
              const CompileOptions& options, std::vector<std::string>* warnings)
      : target_(target), best_(best), options_(options), warnings_(warnings) {}

  // Index of the kernel for this workload. Internal: another workload has the key already.
  absl::StatusOr<int> Add(const std::string& key, const std::string& workload,
                          const std::string& label, double flops) {
    const auto [it, is_new] = index_.try_emplace(key, static_cast<int>(specs_.size()));
    if (is_new) {
      runtime::KernelSpec& spec = specs_.emplace_back();
      spec.symbol = absl::StrCat("kernel_", specs_.size() - 1);
      spec.task = key;
      spec.label = label;
      spec.flops = flops;
      workloads_.push_back(workload);
    } else if (workloads_[static_cast<size_t>(it->second)] != workload) {
      return absl::InternalError(
          absl::StrCat("two different kernels have the key ", key, ", one of them ", label));
    }
    return it->second;
  }

  // Schedules and lowers what was added since the last time.
  absl::Status Lower() {
    for (size_t i = lowered_.size(); i < specs_.size(); ++i) {
      if (options_.progress) options_.progress(static_cast<int>(i), Steps(), specs_[i].label);
      HEDDLE_ASSIGN_OR_RETURN(internal::LoweredWorkload lowered,
                              Schedule(workloads_[i], &specs_[i]));
      lowered_.push_back(std::move(lowered));
    }
    return absl::OkStatus();
  }

  const internal::LoweredWorkload& lowered(int kernel) const {
    return lowered_[static_cast<size_t>(kernel)];
  }

  // Compiles everything added, and fills in what the manifest says of it.
  absl::StatusOr<codegen::Artifact> Compile() {
    HEDDLE_RETURN_IF_ERROR(Lower());
    if (options_.progress) options_.progress(Steps() - 1, Steps(), "machine code");
    std::vector<ir::Program> lowered;
    for (const internal::LoweredWorkload& workload : lowered_) lowered.push_back(workload.kernel);
    HEDDLE_ASSIGN_OR_RETURN(codegen::Artifact artifact,
                            codegen::BackendOf(target_.target).Compile(lowered, target_.target));
    for (size_t i = 0; i < specs_.size(); ++i) {
      specs_[i].symbol = artifact.kernels[i].symbol;
      specs_[i].workspace_bytes = artifact.kernels[i].workspace_bytes;
      specs_[i].launches = artifact.kernels[i].launches;
    }
    if (options_.progress) options_.progress(Steps(), Steps(), "machine code");
    return artifact;
  }

  const std::vector<runtime::KernelSpec>& specs() const { return specs_; }
  const std::string& workload(int kernel) const { return workloads_[static_cast<size_t>(kernel)]; }

 private:
  // One for each kernel; the last is machine code, for all at once.
  int Steps() const { return static_cast<int>(specs_.size()) + 1; }

  // The best schedule that works: the record's, the default one, naive loops.
  absl::StatusOr<internal::LoweredWorkload> Schedule(const std::string& workload,
                                                     runtime::KernelSpec* spec) {
    HEDDLE_ASSIGN_OR_RETURN(const ir::Program naive, internal::ParseWorkload(workload));
    spec->untouched_bytes = internal::UntouchedBytes(naive);
    ScheduleChoice choice = options_.choice;
    const auto record = best_.find(spec->task);
    if (choice == ScheduleChoice::kTrace && record == best_.end())
      choice = ScheduleChoice::kDefault;
    while (true) {
      const bool tuned = choice == ScheduleChoice::kTrace;
      absl::StatusOr<internal::LoweredWorkload> program = internal::ScheduleAndLower(
          naive, choice, tuned ? record->second.trace : std::string(), target_, spec->symbol);
      if (program.ok() || choice == ScheduleChoice::kNaive) {
        spec->schedule = internal::Name(choice);
        spec->winograd = program.ok() && program->winograd;
        spec->tf32 = program.ok() && program->tf32;
        spec->record_ms = tuned ? record->second.median_ns / 1e6 : 0;
        return program;
      }
      const ScheduleChoice next = tuned ? ScheduleChoice::kDefault : ScheduleChoice::kNaive;
      Warn(*spec, choice, next, program.status());
      choice = next;
    }
  }

  void Warn(const runtime::KernelSpec& spec, ScheduleChoice failed, ScheduleChoice next,
            const absl::Status& status) {
    if (warnings_ == nullptr) return;
    warnings_->push_back(
        absl::StrCat("task ", spec.task, " (", spec.label, "): its ",
                     std::string(internal::Name(failed)), " schedule does not apply, the ",
                     std::string(internal::Name(next)), " one is used: ", status.message()));
  }

  const machine::TargetInfo& target_;
  const std::map<std::string, BestRecord>& best_;
  const CompileOptions& options_;
  std::vector<std::string>* warnings_;
  std::map<std::string, int> index_;  // by workload key
  std::vector<runtime::KernelSpec> specs_;
  std::vector<std::string> workloads_;  // of the kernel of the same index
  std::vector<internal::LoweredWorkload> lowered_;
};

std::vector<runtime::TensorSpec> SpecsOf(const graph::Graph& graph,
                                         const std::vector<graph::ValueId>& values) {
  std::vector<runtime::TensorSpec> specs;
  for (graph::ValueId v : values) {
    const graph::Value& value = graph.values[v];
    specs.push_back({value.name, std::string(ir::Name(value.type.dtype)), value.type.shape});
  }
  return specs;
}

// A call by the values it works on.
struct ValueCall {
  int kernel = 0;
  std::vector<graph::ValueId> given;  // inputs before constants were prepacked
  std::vector<graph::ValueId> taken;  // and after
};

// Workload of a kernel that copies a tensor of `type`; its shape does not matter.
absl::StatusOr<std::string> CopyWorkload(const graph::TensorType& type) {
  tensor::Builder builder("copy");
  const int64_t length = graph::NumElements(type);
  const tensor::Tensor x = builder.Input("x", type.dtype, {length});
  const tensor::Tensor y = builder.Compute("y", {length}, [&](tensor::Iters i) { return x(i[0]); });
  HEDDLE_ASSIGN_OR_RETURN(const tensor::TensorProgram program, builder.Build({y}));
  HEDDLE_ASSIGN_OR_RETURN(const ir::Program loops, tensor::LowerToLoops(program));
  return ir::Print(loops);
}

absl::Status AddCopies(const graph::Graph& graph, const internal::Places& places,
                       KernelTable* kernels, std::vector<runtime::CallSpec>* calls,
                       std::vector<ValueCall>* value_calls) {
  for (const auto& [from, to] : places.copies) {
    const graph::TensorType& type = graph.values[from].type;
    HEDDLE_ASSIGN_OR_RETURN(const std::string workload, CopyWorkload(type));
    HEDDLE_ASSIGN_OR_RETURN(const int kernel,
                            kernels->Add(tensor::WorkloadKey(workload), workload,
                                         absl::StrCat("copy ", graph::ToText(type)), 0));
    calls->push_back({kernel, {places.slots.at(from), to}});
    value_calls->push_back({kernel, {from}, {from}});
  }
  return absl::OkStatus();
}

std::vector<std::string> CpuFeatures(const Target& target) {
  std::vector<std::string> features;
  for (std::string& name : codegen::BackendOf(target).Features(target)) {
    if (runtime::IsKnownCpuFeature(name)) features.push_back(std::move(name));
  }
  return features;
}

// Checks every kernel with a tuned schedule at its first call, with as many threads as it is made
// for. Returns the tasks of those that compute something wrong, with one line each in *warnings.
// Other errors mean that the check could not be made.
absl::StatusOr<std::set<std::string>> WrongTasks(const codegen::Artifact& artifact,
                                                 const KernelTable& kernels,
                                                 const std::vector<ValueCall>& calls, int threads,
                                                 const graph::Graph& graph,
                                                 std::vector<std::string>* warnings) {
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::KernelLibrary> library,
                          runtime::KernelLibrary::Load(artifact.shared_object));
  const runtime::ThreadPool host(threads);
  std::set<int> seen;
  std::set<std::string> wrong;
  for (const ValueCall& call : calls) {
    const runtime::KernelSpec& spec = kernels.specs()[static_cast<size_t>(call.kernel)];
    if (spec.schedule != internal::Name(ScheduleChoice::kTrace)) continue;
    if (!seen.insert(call.kernel).second) continue;
    const internal::KernelUse use = {kernels.workload(call.kernel), call.given, call.taken,
                                     codegen::ToleranceFor(spec.winograd)};
    const absl::Status status = internal::VerifyKernel(
        use, graph, artifact.kernels[static_cast<size_t>(call.kernel)], *library, host.host());
    if (status.ok()) continue;
    if (!absl::IsDataLoss(status)) return status;
    wrong.insert(spec.task);
    if (warnings == nullptr) continue;
    warnings->push_back(absl::StrCat("task ", spec.task, " (", spec.label,
                                     "): its tuned schedule is not used: ", status.message()));
  }
  return wrong;
}

// The module with the schedules of `best`; tasks whose tuned kernel turns out wrong go to *wrong,
// and then the module is not to be used.
absl::StatusOr<std::string> TryCompile(std::string_view onnx, graph::FusedGraph fused,
                                       const ModelOptions& options, const machine::TargetInfo& info,
                                       const std::map<std::string, BestRecord>& best,
                                       const CompileOptions& compile,
                                       std::vector<std::string>* warnings,
                                       std::set<std::string>* wrong) {
  const Target& resolved = info.target;

  KernelTable kernels(info, best, compile, warnings);
  std::vector<int> kernel_of;  // by group
  for (const graph::Group& group : fused.groups) {
    HEDDLE_ASSIGN_OR_RETURN(const int kernel,
                            kernels.Add(group.key, group.workload, group.label, group.flops));
    kernel_of.push_back(kernel);
  }
  HEDDLE_RETURN_IF_ERROR(kernels.Lower());
  std::vector<const internal::LoweredWorkload*> lowered_of;
  for (int kernel : kernel_of) lowered_of.push_back(&kernels.lowered(kernel));
  std::vector<ValueCall> value_calls;  // by group, then copies
  for (size_t i = 0; i < fused.groups.size(); ++i)
    value_calls.push_back({kernel_of[i], fused.groups[i].inputs, {}});
  HEDDLE_RETURN_IF_ERROR(internal::PrepackConstants(lowered_of, info, &fused));
  for (size_t i = 0; i < fused.groups.size(); ++i) value_calls[i].taken = fused.groups[i].inputs;
  graph::MemoryPlanOptions memory = {.share = options.share_memory};
  for (int kernel : kernel_of) {
    auto& pairs = memory.may_overwrite.emplace_back();
    for (const pass::Overwrite& pair : pass::FindOverwrites(kernels.lowered(kernel).kernel))
      pairs.emplace_back(pair.output, pair.input);
  }
  const graph::MemoryPlan plan = graph::PlanMemory(fused, memory);
  HEDDLE_ASSIGN_OR_RETURN(internal::Places places, internal::AssignPlaces(fused, plan));

  runtime::Module module;
  runtime::Manifest& manifest = module.manifest;
  for (size_t i = 0; i < fused.groups.size(); ++i) {
    const graph::Group& group = fused.groups[i];
    runtime::CallSpec& call = manifest.calls.emplace_back();
    call.kernel = kernel_of[i];
    for (graph::ValueId v : group.inputs) call.buffers.push_back(places.slots.at(v));
    for (graph::ValueId v : group.outputs) call.buffers.push_back(places.slots.at(v));
  }
  HEDDLE_RETURN_IF_ERROR(AddCopies(fused.graph, places, &kernels, &manifest.calls, &value_calls));
  HEDDLE_ASSIGN_OR_RETURN(codegen::Artifact artifact, kernels.Compile());
  if (codegen::BackendOf(resolved).RunsHere(resolved)) {
    HEDDLE_ASSIGN_OR_RETURN(*wrong, WrongTasks(artifact, kernels, value_calls, resolved.threads,
                                               fused.graph, warnings));
  }
  module.code = std::move(artifact.shared_object);

  manifest.producer = absl::StrCat("heddle ", HEDDLE_VERSION);
  manifest.model = compile.model_name;
  manifest.model_digest = Sha256Hex(onnx);
  manifest.target = ToText(resolved);
  manifest.cpu_features = CpuFeatures(resolved);
  manifest.threads = resolved.threads;
  manifest.inputs = SpecsOf(fused.graph, fused.graph.inputs);
  manifest.outputs = SpecsOf(fused.graph, fused.graph.outputs);
  manifest.kernels = kernels.specs();
  manifest.arena_bytes = plan.arena_bytes;
  manifest.unshared_bytes = plan.unshared_bytes;
  for (const runtime::KernelSpec& kernel : manifest.kernels) {
    manifest.workspace_bytes = std::max(manifest.workspace_bytes, kernel.workspace_bytes);
  }
  module.params = std::move(places.params);
  return runtime::SerializeModule(module);
}

}  // namespace

absl::StatusOr<std::string> CompileModel(std::string_view onnx, const ModelOptions& options,
                                         const Target& target,
                                         const std::map<std::string, BestRecord>& best,
                                         const CompileOptions& compile,
                                         std::vector<std::string>* warnings) {
  HEDDLE_ASSIGN_OR_RETURN(const Target resolved, codegen::ResolveTarget(target));
  HEDDLE_ASSIGN_OR_RETURN(const machine::TargetInfo info, codegen::DescribeTarget(resolved));
  HEDDLE_ASSIGN_OR_RETURN(const graph::FusedGraph fused, PrepareModel(onnx, options, resolved));
  std::set<std::string> wrong;
  std::vector<std::string> found;
  absl::StatusOr<std::string> module =
      TryCompile(onnx, fused, options, info, best, compile, &found, &wrong);
  if (module.ok() && !wrong.empty()) {
    // Rare: all of it again without them. What is left was right, so once is enough.
    std::map<std::string, BestRecord> right = best;
    for (const std::string& task : wrong) right.erase(task);
    module = TryCompile(onnx, fused, options, info, right, compile, nullptr, &wrong);
    if (module.ok() && !wrong.empty()) {
      return absl::InternalError(absl::StrCat("task ", *wrong.begin(), " is right only at times"));
    }
  }
  if (warnings != nullptr) warnings->insert(warnings->end(), found.begin(), found.end());
  return module;
}

}  // namespace heddle
