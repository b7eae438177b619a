// Measures candidates on a GPU. Inputs stay on the device for all candidates of a workload.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/measure/data.h"
#include "compiler/runtime/cuda/device.h"
#include "compiler/runtime/cuda/kernel.h"
#include "compiler/runtime/cuda/timing.h"

namespace heddle::internal {
namespace {

using runtime::CudaDevice;
using runtime::CudaKernel;
using runtime::DeviceMemory;

// Operations per second that no GPU reaches: one of 2024 does 2e15 on 8-bit matrices.
constexpr double kImpossibleGpuFlops = 20e15;

class CudaBench final : public WorkloadBench {
 public:
  CudaBench(ir::Program program, const MeasureOptions& options, std::unique_ptr<CudaDevice> device)
      : data_(std::move(program)), options_(options), device_(std::move(device)) {}

  absl::Status Prepare(uint64_t seed) {
    HEDDLE_RETURN_IF_ERROR(data_.Prepare(seed, options_.check_points));
    for (const auto& [name, memory] : data_.memory()) {
      HEDDLE_ASSIGN_OR_RETURN(DeviceMemory block, device_->Allocate(memory.bytes));
      HEDDLE_RETURN_IF_ERROR(device_->Upload(block.address(), memory.data, memory.bytes));
      blocks_.emplace(name, std::move(block));
    }
    return device_->Synchronize();
  }

  absl::StatusOr<Measurement> Run(const codegen::Artifact& artifact) override {
    HEDDLE_RETURN_IF_ERROR(CheckKernelCount(artifact));
    HEDDLE_RETURN_IF_ERROR(device_->Enter());
    HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::CudaModule> module,
                            device_->Load(artifact.shared_object));
    Blocks made;  // results of the kernel that prepacks
    if (artifact.kernels.size() == 2) {
      for (const codegen::Argument& argument : artifact.kernels[1].arguments) {
        if (blocks_.contains(argument.name)) continue;
        HEDDLE_ASSIGN_OR_RETURN(made[argument.name], device_->Allocate(argument.bytes));
      }
      HEDDLE_ASSIGN_OR_RETURN(const Bound prepack, Bind(*module, artifact.kernels[1], made));
      HEDDLE_RETURN_IF_ERROR(prepack.kernel.Launch(*device_));
      HEDDLE_RETURN_IF_ERROR(device_->Synchronize());
    }
    HEDDLE_ASSIGN_OR_RETURN(const Bound bound, Bind(*module, artifact.kernels[0], made));
    Measurement result;
    HEDDLE_RETURN_IF_ERROR(data_.Check([&] { return Compute(bound.kernel); },
                                       artifact.numerics.Allowed(), &result.max_error));
    result.references_replaced = data_.references_replaced();
    runtime::TimingOptions timing = options_.timing;
    timing.rival_ns = fastest_ns_;
    HEDDLE_ASSIGN_OR_RETURN(result.timing,
                            runtime::TimeOnDevice(
                                *device_, [&] { return bound.kernel.Launch(*device_); }, timing));
    HEDDLE_RETURN_IF_ERROR(data_.CheckPlausible(result.timing, kImpossibleGpuFlops));
    const double ns = result.timing.MedianNs();
    if (fastest_ns_ == 0 || ns < fastest_ns_) fastest_ns_ = ns;
    return result;
  }

 private:
  using Blocks = std::map<std::string, DeviceMemory>;
  struct Bound {
    CudaKernel kernel;
    DeviceMemory workspace;
  };

  // Binds the kernel to the memory that its arguments name, and to a workspace full of NaNs.
  absl::StatusOr<Bound> Bind(const runtime::CudaModule& module, const codegen::KernelInfo& info,
                             const Blocks& made) {
    std::vector<runtime::CuPointer> buffers;
    for (const codegen::Argument& argument : info.arguments) {
      const Blocks& given = blocks_;
      const auto own = given.find(argument.name), other = made.find(argument.name);
      if (own == given.end() && other == made.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("kernel ", info.symbol, " takes '", argument.name, "', which nobody has"));
      }
      const DeviceMemory& block = own != given.end() ? own->second : other->second;
      if (block.size() != argument.bytes) {
        return absl::InvalidArgumentError(
            absl::StrCat("kernel ", info.symbol, " takes ", argument.bytes, " bytes for '",
                         argument.name, "', which has ", block.size()));
      }
      buffers.push_back(block.address());
    }
    Bound bound;
    HEDDLE_ASSIGN_OR_RETURN(bound.workspace, device_->Allocate(info.workspace_bytes));
    HEDDLE_RETURN_IF_ERROR(device_->Fill(bound.workspace.address(), 0xff, info.workspace_bytes));
    HEDDLE_ASSIGN_OR_RETURN(
        bound.kernel, CudaKernel::Bind(module, info.launches, buffers, bound.workspace.address(),
                                       info.workspace_bytes));
    return bound;
  }

  // One run: uploads the host's outputs, launches, downloads the outputs.
  absl::Status Compute(const CudaKernel& kernel) {
    for (const ir::BufferRef& output : data_.program().outputs) {
      const Memory& memory = data_.memory().at(output->name);
      HEDDLE_RETURN_IF_ERROR(
          device_->Upload(blocks_.at(output->name).address(), memory.data, memory.bytes));
    }
    HEDDLE_RETURN_IF_ERROR(kernel.Launch(*device_));
    for (const ir::BufferRef& output : data_.program().outputs) {
      const Memory& memory = data_.memory().at(output->name);
      HEDDLE_RETURN_IF_ERROR(
          device_->Download(memory.data, blocks_.at(output->name).address(), memory.bytes));
    }
    return device_->Synchronize();
  }

  MeasureData data_;
  const MeasureOptions options_;
  std::unique_ptr<CudaDevice> device_;
  Blocks blocks_;          // the workload's inputs and outputs
  double fastest_ns_ = 0;  // of the candidates so far; 0: none
};

}  // namespace

absl::StatusOr<std::unique_ptr<WorkloadBench>> CreateCudaBench(ir::Program program, uint64_t seed,
                                                               int ordinal,
                                                               const MeasureOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device, CudaDevice::Open(ordinal));
  auto bench = std::make_unique<CudaBench>(std::move(program), options, std::move(device));
  HEDDLE_RETURN_IF_ERROR(bench->Prepare(seed));
  return bench;
}

}  // namespace heddle::internal
