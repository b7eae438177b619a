#include "compiler/driver/verify_kernel.h"

#include <cstring>
#include <memory>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/splitmix.h"
#include "base/status_macros.h"
#include "compiler/measure/check.h"
#include "compiler/measure/loaded_kernel.h"
#include "compiler/measure/random_input.h"
#include "compiler/runtime/kernel_library.h"
#include "compiler/runtime/thread_pool.h"

namespace heddle::internal {
namespace {

using runtime::AlignedBuffer;

// The number of elements of each output that are compared. Corners are among them, because a wrong
// schedule is wrong in whole tiles, at their edges, or at the edges of the tensor.
constexpr int kPoints = 48;

// The memory of the arguments of a call, by name.
class Memories {
 public:
  explicit Memories(const graph::Graph& graph) : graph_(graph) {}

  // Fills `buffer`, an input of `program`, with the constant `value`, or with random elements if `value` is not a constant.
  absl::Status AddInput(const ir::Program& program, const ir::Buffer& buffer, graph::ValueId value,
                        SplitMix& random) {
    const auto constant = graph_.constants.find(value);
    if (constant != graph_.constants.end())
      return Give(buffer.name, buffer.SizeBytes(), *constant->second.bytes);
    HEDDLE_RETURN_IF_ERROR(Add(buffer.name, buffer.SizeBytes()));
    FillInput(program, buffer, by_name_.at(buffer.name).data, random);
    return absl::OkStatus();
  }

  absl::Status AddConstant(const codegen::Argument& argument, graph::ValueId value) {
    const auto constant = graph_.constants.find(value);
    if (constant == graph_.constants.end()) {
      return absl::InternalError(absl::StrCat("'", argument.name, "' is no constant"));
    }
    return Give(argument.name, argument.bytes, *constant->second.bytes);
  }

  // Fills the output with bytes 0xff, which form NaNs, so an element that is not written is wrong.
  absl::Status AddOutput(const ir::Buffer& buffer) {
    HEDDLE_RETURN_IF_ERROR(Add(buffer.name, buffer.SizeBytes()));
    std::memset(by_name_.at(buffer.name).data, 0xff, buffer.SizeBytes());
    return absl::OkStatus();
  }

  MemoryByName* by_name() { return &by_name_; }

 private:
  absl::Status Add(const std::string& name, int64_t bytes) {
    HEDDLE_ASSIGN_OR_RETURN(AlignedBuffer memory, AllocateFor(absl::StrCat("'", name, "'"), bytes));
    by_name_[name] = {memory.data(), bytes};
    owned_.push_back(std::move(memory));
    return absl::OkStatus();
  }

  absl::Status Give(const std::string& name, int64_t wanted, std::string_view bytes) {
    if (wanted != static_cast<int64_t>(bytes.size())) {
      return absl::InternalError(absl::StrCat("constant '", name, "' has ", bytes.size(),
                                              " bytes, its kernel takes ", wanted));
    }
    HEDDLE_ASSIGN_OR_RETURN(by_name_[name], MemoryOf(absl::StrCat("'", name, "'"), bytes, &owned_));
    return absl::OkStatus();
  }

  const graph::Graph& graph_;
  MemoryByName by_name_;
  std::vector<AlignedBuffer> owned_;
};

// Runs one call and compares its outputs. DataLoss "wrong result: ..".
absl::Status VerifyCall(const KernelTable& kernels, const ValueCall& call,
                        const graph::Graph& graph, const codegen::KernelInfo& info,
                        const runtime::KernelLibrary& library, const heddle_host* host) {
  const ir::Program& naive = kernels.naive(call.kernel);
  const runtime::KernelSpec& spec = kernels.specs()[call.kernel];
  SplitMix random(std::stoull(spec.task, nullptr, 16));
  Memories memories(graph);
  MemoryByName& by_name = *memories.by_name();
  std::vector<interpreter::TensorRef> inputs;
  for (size_t i = 0; i < naive.inputs.size(); ++i) {
    const ir::Buffer& buffer = *naive.inputs[i];
    HEDDLE_RETURN_IF_ERROR(memories.AddInput(naive, buffer, call.given.at(i), random));
    inputs.push_back({buffer.dtype, buffer.shape, by_name.at(buffer.name).data});
  }
  for (size_t i = 0; i < call.taken.size(); ++i) {
    const codegen::Argument& argument = info.arguments.at(i);
    if (by_name.contains(argument.name)) continue;
    HEDDLE_RETURN_IF_ERROR(memories.AddConstant(argument, call.taken[i]));
  }
  std::vector<void*> outputs;
  for (const ir::BufferRef& buffer : naive.outputs) {
    HEDDLE_RETURN_IF_ERROR(memories.AddOutput(*buffer));
    outputs.push_back(by_name.at(buffer->name).data);
  }
  ResultChecker checker;
  HEDDLE_RETURN_IF_ERROR(checker.Prepare(naive, std::move(inputs), kPoints, random));
  HEDDLE_ASSIGN_OR_RETURN(const LoadedKernel kernel, LoadedKernel::Load(library, info, by_name));
  kernel.Call(host);
  // The absolute tolerance is stated for operands in [-1, 1]. A model's constants have any size, so
  // results are compared relative to the largest.
  runtime::Tolerance tolerance = spec.numerics.Allowed();
  tolerance.absolute = tolerance.relative * checker.LargestExpected();
  double max_error = 0;
  return checker.CheckPoints(outputs, "", tolerance, &max_error);
}

}  // namespace

absl::StatusOr<std::vector<WrongKernel>> FindWrongKernels(const codegen::Artifact& artifact,
                                                          const KernelTable& kernels,
                                                          const std::vector<ValueCall>& calls,
                                                          const graph::Graph& graph, int threads) {
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::KernelLibrary> library,
                          runtime::KernelLibrary::Load(artifact.shared_object));
  const runtime::ThreadPool host(threads);
  std::set<int> seen;
  std::vector<WrongKernel> wrong;
  for (const ValueCall& call : calls) {
    if (kernels.specs()[call.kernel].schedule != Name(ScheduleChoice::kTrace)) continue;
    if (!seen.insert(call.kernel).second) continue;
    const absl::Status status =
        VerifyCall(kernels, call, graph, artifact.kernels[call.kernel], *library, host.host());
    if (absl::IsDataLoss(status)) {
      wrong.push_back({call.kernel, std::string(status.message())});
    } else if (!status.ok()) {
      return status;
    }
  }
  return wrong;
}

}  // namespace heddle::internal
