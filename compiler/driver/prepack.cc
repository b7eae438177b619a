#include "compiler/driver/prepack.h"

#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/codegen/backend.h"
#include "compiler/interpreter/interpreter.h"
#include "compiler/measure/loaded_kernel.h"
#include "compiler/runtime/thread_pool.h"

namespace heddle::internal {

namespace {

using graph::ValueId;

class Prepacker {
 public:
  Prepacker(graph::FusedGraph* fused, bool interpret)
      : graph_(fused->graph), interpret_(interpret), host_(1) {}

  absl::Status Build(const std::vector<const LoweredWorkload*>& kernels) {
    std::vector<ir::Program> programs;
    for (const LoweredWorkload* kernel : kernels) {
      if (kernel->prepack && index_.emplace(kernel, programs.size()).second) {
        programs.push_back(*kernel->prepack);
      }
    }
    if (programs.empty() || interpret_) return absl::OkStatus();
    HEDDLE_ASSIGN_OR_RETURN(const Target here, codegen::ResolveTarget(Target()));
    HEDDLE_ASSIGN_OR_RETURN(artifact_, codegen::BackendOf(here).Compile(programs, here));
    HEDDLE_ASSIGN_OR_RETURN(library_, runtime::KernelLibrary::Load(artifact_.shared_object));
    return absl::OkStatus();
  }

  // Prepacks the constants of one group. Returns the inputs of its kernel, including the prepacked
  // constants.
  absl::StatusOr<std::vector<ValueId>> Run(const LoweredWorkload& kernel,
                                           const graph::Group& group) {
    MemoryByName memory;
    std::vector<runtime::AlignedBuffer> given;
    for (const ir::BufferRef& input : kernel.prepack->inputs) {
      HEDDLE_ASSIGN_OR_RETURN(const ValueId value, GroupInput(group, input->name));
      const auto constant = graph_.constants.find(value);
      if (constant == graph_.constants.end()) {
        return absl::InternalError(absl::StrCat(group.label, ": '", input->name,
                                                "' is to be prepacked but is no constant"));
      }
      HEDDLE_ASSIGN_OR_RETURN(memory[input->name],
                              MemoryOf(input->name, *constant->second.bytes, &given));
    }
    LoadedKernel loaded;
    if (interpret_) {
      HEDDLE_RETURN_IF_ERROR(Interpret(*kernel.prepack, &given, &memory));
    } else {
      HEDDLE_ASSIGN_OR_RETURN(
          loaded,
          LoadedKernel::LoadPrepack(*library_, artifact_.kernels[index_.at(&kernel)], &memory));
      loaded.Call(host_.host());
    }
    std::map<std::string, ValueId> made;
    for (const ir::BufferRef& output : kernel.prepack->outputs) {
      made[output->name] = AddConstant(*output, memory.at(output->name));
    }
    std::vector<ValueId> inputs;
    for (const ir::BufferRef& input : kernel.kernel.inputs) {
      const auto it = made.find(input->name);
      if (it != made.end()) {
        inputs.push_back(it->second);
      } else {
        HEDDLE_ASSIGN_OR_RETURN(const ValueId value, GroupInput(group, input->name));
        inputs.push_back(value);
      }
    }
    return inputs;
  }

 private:
  // Runs the program on `memory`. Allocates its outputs and adds them to `memory`.
  static absl::Status Interpret(const ir::Program& program,
                                std::vector<runtime::AlignedBuffer>* owned, MemoryByName* memory) {
    std::vector<interpreter::TensorRef> tensors;
    for (const auto* list : {&program.inputs, &program.outputs}) {
      for (const ir::BufferRef& buffer : *list) {
        if (!memory->contains(buffer->name)) {
          HEDDLE_ASSIGN_OR_RETURN(runtime::AlignedBuffer made,
                                  AllocateFor(buffer->name, buffer->SizeBytes()));
          (*memory)[buffer->name] = {made.data(), buffer->SizeBytes()};
          owned->push_back(std::move(made));
        }
        tensors.push_back({buffer->dtype, buffer->shape, memory->at(buffer->name).data});
      }
    }
    interpreter::InterpreterOptions options;
    options.check_uninitialized = false;  // a third faster; the program is verified
    return interpreter::Interpret(program, tensors, options);
  }

  // The group's input that workloads call p0, p1, ..
  absl::StatusOr<ValueId> GroupInput(const graph::Group& group, const std::string& name) const {
    for (size_t i = 0; i < group.inputs.size(); ++i) {
      if (name == absl::StrCat("p", i)) return group.inputs[i];
    }
    return absl::InternalError(absl::StrCat(group.label, " has no input '", name, "'"));
  }

  ValueId AddConstant(const ir::Buffer& buffer, const Memory& memory) {
    const auto value = static_cast<ValueId>(graph_.values.size());
    const graph::TensorType type{buffer.dtype, buffer.shape};
    graph_.values.push_back({absl::StrCat(buffer.name, "#", value), type});
    graph_.constants[value] = {type, SharedBytes::Copy({static_cast<const char*>(memory.data),
                                                        static_cast<size_t>(memory.bytes)})};
    return value;
  }

  graph::Graph& graph_;
  const bool interpret_;
  runtime::ThreadPool host_;
  std::map<const LoweredWorkload*, size_t> index_;
  codegen::Artifact artifact_;
  std::unique_ptr<runtime::KernelLibrary> library_;
};

}  // namespace

absl::Status PrepackConstants(const std::vector<const LoweredWorkload*>& kernel_of,
                              const machine::TargetInfo& target, graph::FusedGraph* fused) {
  Prepacker prepacker(fused, target.execution == machine::Execution::kGrid);
  HEDDLE_RETURN_IF_ERROR(prepacker.Build(kernel_of));
  for (size_t i = 0; i < kernel_of.size(); ++i) {
    if (!kernel_of[i]->prepack) continue;
    graph::Group& group = fused->groups[i];
    HEDDLE_ASSIGN_OR_RETURN(group.inputs, prepacker.Run(*kernel_of[i], group));
  }
  return absl::OkStatus();
}

}  // namespace heddle::internal
