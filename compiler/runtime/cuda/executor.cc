// Runs whole models on a GPU. All memory is allocated when the executor is made: the parameters,
// and one block for intermediate results, laid out by the memory plan. A run copies the inputs,
// launches all kernels and copies the outputs in one stream, and waits once.
//
// The second run of a block records these steps as a CUDA graph. That run and all later ones launch the
// graph, so that the GPU does not wait for a launch between two kernels. The first run launches each
// kernel by itself, because the driver may load a kernel at its first launch, and a recording does not
// allow that. If recording fails, all runs are like the first.
#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/runtime/cuda/cuda_devices.h"
#include "compiler/runtime/cuda/device.h"
#include "compiler/runtime/cuda/kernel.h"
#include "compiler/runtime/executor_backend.h"
#include "compiler/runtime/module_check.h"

namespace heddle::runtime {
namespace {

// The number of an architecture: "sm_90" gives 90; "sm_90a" gives 90 and sets *exact.
int Capability(std::string_view arch, bool* exact) {
  constexpr std::string_view kPrefix = "sm_";
  int number = 0;
  if (arch.substr(0, kPrefix.size()) != kPrefix) return 0;
  const char* end = arch.data() + arch.size();
  const auto [stop, error] = std::from_chars(arch.data() + kPrefix.size(), end, number);
  *exact = stop != end;
  return error == std::errc() ? number : 0;
}

// Code runs on its own architecture and on later ones of the same generation. Architecture-specific
// code ("sm_90a") runs only on its own.
absl::Status CheckArch(const std::string& target, const CudaInfo& gpu) {
  const size_t at = target.find("sm_");
  const std::string arch =
      at == std::string::npos ? "" : target.substr(at, target.find(' ', at) - at);
  bool exact = false, ignored = false;
  const int wanted = Capability(arch, &exact), found = Capability(gpu.arch, &ignored);
  const bool runs = exact ? wanted == found : wanted / 10 == found / 10 && wanted <= found;
  if (runs) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("module is made for ", target, "; this GPU (", gpu.name, ") is ", gpu.arch,
                   ": compile it for \"cuda -arch=", gpu.arch, "\""));
}

class CudaBackend final : public ExecutorBackend {
 public:
  absl::Status Prepare(const Module& module, int gpu) {
    HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device, CudaDevice::Open(gpu));
    device_ = std::move(device);
    const Manifest& manifest = module.manifest;
    absl::Status status = CheckArch(manifest.target, device_->info());
    if (status.ok()) status = AllocateTensors(manifest.inputs, &inputs_, &host_inputs_);
    if (status.ok()) status = AllocateTensors(manifest.outputs, &outputs_, &host_outputs_);
    if (status.ok()) status = Allocate(static_cast<int64_t>(module.params->size()), &params_);
    if (status.ok()) status = Allocate(manifest.arena_bytes, &arena_);
    if (status.ok()) status = Allocate(manifest.workspace_bytes, &workspace_);
    if (status.ok()) {
      status = device_->Upload(params_.address(), module.params->data(), params_.size());
    }
    if (status.ok()) status = device_->Synchronize();
    if (status.ok()) status = Bind(module);
    recordings_.resize(manifest.NumBlocks());
    for (size_t b = 0; b < manifest.NumBlocks(); ++b) {
      Sizes& sizes = sizes_.emplace_back();
      for (const TensorSpec& spec : manifest.inputs)
        sizes.inputs.push_back(manifest.BytesInBlock(spec, b));
      for (const TensorSpec& spec : manifest.outputs)
        sizes.outputs.push_back(manifest.BytesInBlock(spec, b));
    }
    return status;
  }

  void* InputData(int index, int /*thread*/) override {
    return host_inputs_[static_cast<size_t>(index)].data();
  }
  const void* OutputData(int index, int /*thread*/) const override {
    return host_outputs_[static_cast<size_t>(index)].data();
  }

  absl::Status Run(size_t block) override {
    absl::Status status = device_->Enter();
    if (!status.ok()) return status;
    Recording& recording = recordings_[block];
    if (recording.graph == nullptr && recording.runs == 1) {
      auto captured = device_->Capture([&] { return Enqueue(block); });
      if (captured.ok()) recording.graph = *std::move(captured);
    }
    recording.runs = std::min(recording.runs + 1, 2);
    status = recording.graph != nullptr ? device_->Launch(*recording.graph) : Enqueue(block);
    return status.ok() ? device_->Synchronize() : status;
  }

  absl::Status Profile(size_t block, std::vector<double>* ns) override {
    absl::Status status = device_->Enter();
    if (status.ok()) status = CopyInputs(block);
    size_t mark = 0;
    if (status.ok()) status = device_->Record(mark++);
    for (const CudaKernel& call : calls_[block]) {
      if (status.ok()) status = call.Launch(*device_);
      if (status.ok()) status = device_->Record(mark++);
      if (!status.ok()) return status;
    }
    if (status.ok()) status = CopyOutputs(block);
    if (status.ok()) status = device_->Synchronize();
    if (!status.ok()) return status;
    for (size_t i = 0; i < calls_[block].size(); ++i) {
      HEDDLE_ASSIGN_OR_RETURN(const double time, device_->ElapsedNs(i, i + 1));
      ns->push_back(time);
    }
    return absl::OkStatus();
  }

 private:
  // Bytes of the tensors.
  struct Sizes {
    std::vector<int64_t> inputs, outputs;
  };
  struct Recording {
    int runs = 0;  // of the block so far; 2 means at least 2
    std::unique_ptr<CudaGraph> graph;
  };

  absl::Status Allocate(int64_t bytes, DeviceMemory* out) {
    HEDDLE_ASSIGN_OR_RETURN(DeviceMemory memory, device_->Allocate(bytes));
    *out = std::move(memory);
    return absl::OkStatus();
  }

  absl::Status AllocateTensors(const std::vector<TensorSpec>& specs,
                               std::vector<DeviceMemory>* there, std::vector<HostMemory>* here) {
    for (const TensorSpec& spec : specs) {
      HEDDLE_RETURN_IF_ERROR(Allocate(spec.SizeBytes(), &there->emplace_back()));
      HEDDLE_ASSIGN_OR_RETURN(HostMemory host, device_->AllocateHost(spec.SizeBytes()));
      std::fill_n(host.data(), host.size(), '\0');
      here->push_back(std::move(host));
    }
    return absl::OkStatus();
  }

  CuPointer Address(const BufferSlot& slot) const {
    const auto index = static_cast<size_t>(slot.index);
    switch (slot.place) {
      case Place::kInput:
        return inputs_[index].address();
      case Place::kOutput:
        return outputs_[index].address();
      case Place::kParam:
        return params_.address() + index;
      case Place::kArena:
        return arena_.address() + index;
    }
    return 0;  // CheckModule allows no other place
  }

  absl::Status Bind(const Module& module) {
    HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<CudaModule> code, device_->Load(module.code));
    code_ = std::move(code);
    for (size_t b = 0; b < module.manifest.NumBlocks(); ++b) {
      calls_.emplace_back();
      for (const CallSpec& call : module.manifest.CallsOf(b)) {
        const KernelSpec& spec = module.manifest.kernels[static_cast<size_t>(call.kernel)];
        std::vector<CuPointer> buffers;
        for (const BufferSlot& slot : call.buffers) buffers.push_back(Address(slot));
        HEDDLE_ASSIGN_OR_RETURN(CudaKernel kernel,
                                CudaKernel::Bind(*code_, spec.launches, buffers,
                                                 workspace_.address(), spec.workspace_bytes));
        calls_.back().push_back(std::move(kernel));
      }
    }
    return absl::OkStatus();
  }

  // Everything that a run does, without waiting for it.
  absl::Status Enqueue(size_t block) {
    absl::Status status = CopyInputs(block);
    for (const CudaKernel& call : calls_[block]) {
      if (status.ok()) status = call.Launch(*device_);
    }
    return status.ok() ? CopyOutputs(block) : status;
  }

  absl::Status CopyInputs(size_t block) {
    absl::Status status;
    for (size_t i = 0; status.ok() && i < inputs_.size(); ++i) {
      status =
          device_->Upload(inputs_[i].address(), host_inputs_[i].data(), sizes_[block].inputs[i]);
    }
    return status;
  }

  absl::Status CopyOutputs(size_t block) {
    absl::Status status;
    for (size_t i = 0; status.ok() && i < outputs_.size(); ++i) {
      status = device_->Download(host_outputs_[i].data(), outputs_[i].address(),
                                 sizes_[block].outputs[i]);
    }
    return status;
  }

  std::unique_ptr<CudaDevice> device_;  // destroyed last
  std::vector<DeviceMemory> inputs_, outputs_;
  std::vector<HostMemory> host_inputs_, host_outputs_;
  DeviceMemory params_, arena_, workspace_;
  std::unique_ptr<CudaModule> code_;
  std::vector<std::vector<CudaKernel>> calls_;  // by block
  std::vector<Sizes> sizes_;                    // by block
  std::vector<Recording> recordings_;           // by block
};

}  // namespace

absl::StatusOr<std::unique_ptr<ExecutorBackend>> MakeCudaExecutor(const Module& module,
                                                                  int ordinal) {
  auto backend = std::make_unique<CudaBackend>();
  HEDDLE_RETURN_IF_ERROR(backend->Prepare(module, ordinal));
  return backend;
}

}  // namespace heddle::runtime
