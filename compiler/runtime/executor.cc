#include "compiler/runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/leading_part.h"
#include "base/status_macros.h"
#include "base/target.h"
#include "compiler/runtime/aligned_buffer.h"
#include "compiler/runtime/cpu_features.h"
#include "compiler/runtime/device_kind.h"
#include "compiler/runtime/executor_backend.h"
#include "compiler/runtime/kernel_library.h"
#include "compiler/runtime/module_check.h"
#include "compiler/runtime/placed_stack.h"
#include "compiler/runtime/thread_pool.h"

namespace heddle::runtime {
namespace {

constexpr int kMaxThreads = 256;  // the most that a target may have
constexpr size_t kLargeParams = size_t{1} << 30;

absl::StatusOr<AlignedBuffer> Allocate(int64_t bytes, int colour, const std::string& what) {
  AlignedBuffer buffer = AlignedBuffer::Allocate(bytes, colour);
  if (buffer.ok()) return buffer;
  return absl::ResourceExhaustedError(absl::StrCat("no memory for ", what, " (", bytes, " bytes)"));
}

absl::Status CheckCpu(const Manifest& manifest) {
  const std::vector<std::string> missing = MissingCpuFeatures(manifest.cpu_features);
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("module is made for ", manifest.target, "; this CPU lacks ",
                   absl::StrJoin(missing, ", "), ": compile it for this machine's target"));
}

class CpuBackend final : public ExecutorBackend {
 public:
  absl::Status Prepare(const Module& module, int threads, const std::vector<int>& cpus) {
    HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<KernelLibrary> library,
                            KernelLibrary::Load(module.code));
    library_ = std::move(library);
    HEDDLE_RETURN_IF_ERROR(AllocateMemory(module));
    HEDDLE_RETURN_IF_ERROR(Bind(module.manifest));
    pool_ = std::make_unique<ThreadPool>(threads, cpus);
    return absl::OkStatus();
  }

  void* InputData(int index) override { return inputs_[static_cast<size_t>(index)].data(); }
  const void* OutputData(int index) const override {
    return outputs_[static_cast<size_t>(index)].data();
  }

  absl::Status Run() override {
    for (const Call& call : calls_) Run(call);
    return absl::OkStatus();
  }

  absl::Status Profile(std::vector<double>* ns) override {
    using Clock = std::chrono::steady_clock;
    for (const Call& call : calls_) {
      const Clock::time_point start = Clock::now();
      Run(call);
      const std::chrono::duration<double, std::nano> elapsed = Clock::now() - start;
      ns->push_back(elapsed.count());
    }
    return absl::OkStatus();
  }

 private:
  struct Call {
    heddle_kernel kernel;
    void* const* buffers;  // into pointers_
  };

  // Every buffer of a module has a colour of its own, so that their places do not depend on luck.
  int NextColour() { return colour_++; }

  absl::Status AllocateTensors(const std::vector<TensorSpec>& specs,
                               std::vector<AlignedBuffer>* out) {
    for (const TensorSpec& spec : specs) {
      HEDDLE_ASSIGN_OR_RETURN(AlignedBuffer buffer,
                              Allocate(spec.SizeBytes(), NextColour(), "tensor " + spec.name));
      out->push_back(std::move(buffer));
    }
    return absl::OkStatus();
  }

  absl::Status AllocateMemory(const Module& module) {
    const Manifest& manifest = module.manifest;
    HEDDLE_RETURN_IF_ERROR(AllocateTensors(manifest.inputs, &inputs_));
    HEDDLE_RETURN_IF_ERROR(AllocateTensors(manifest.outputs, &outputs_));
    const struct {
      int64_t bytes;
      const char* what;
      AlignedBuffer* out;
    } blocks[] = {
        {manifest.arena_bytes, "intermediate results", &arena_},
        {manifest.workspace_bytes, "the kernels' workspace", &workspace_},
    };
    for (const auto& block : blocks) {
      HEDDLE_ASSIGN_OR_RETURN(AlignedBuffer buffer,
                              Allocate(block.bytes, NextColour(), block.what));
      *block.out = std::move(buffer);
    }
    return TakeParams(module.params);
  }

  // Parameters are used where they are if they are large, since a copy would need as much memory
  // again. Others are copied to huge pages, from which kernels read a little faster.
  absl::Status TakeParams(const SharedBytes& params) {
    const bool aligned = reinterpret_cast<uintptr_t>(params->data()) % kBufferAlignment == 0;
    if (aligned && params->size() >= kLargeParams) {
      given_params_ = params;
      params_ = params->data();
      return absl::OkStatus();
    }
    HEDDLE_ASSIGN_OR_RETURN(copied_params_, Allocate(static_cast<int64_t>(params->size()),
                                                     NextColour(), "the parameters"));
    std::memcpy(copied_params_.data(), params->data(), params->size());
    params_ = copied_params_.data();
    return absl::OkStatus();
  }

  void* Address(const BufferSlot& slot) const {
    switch (slot.place) {
      case Place::kInput:
        return inputs_[slot.index].data();
      case Place::kOutput:
        return outputs_[slot.index].data();
      case Place::kParam:
        return const_cast<char*>(params_) + slot.index;  // kernels only read them
      case Place::kArena:
        return arena_.data() + slot.index;
    }
    return nullptr;  // CheckModule allows no other place
  }

  absl::Status Bind(const Manifest& manifest) {
    std::vector<heddle_kernel> kernels;
    for (const KernelSpec& spec : manifest.kernels) {
      HEDDLE_ASSIGN_OR_RETURN(heddle_kernel kernel, library_->Find(spec.symbol));
      kernels.push_back(kernel);
    }
    size_t total = 0;
    for (const CallSpec& call : manifest.calls) total += call.buffers.size();
    pointers_.reserve(total);  // no reallocation, since calls keep addresses of elements
    for (const CallSpec& call : manifest.calls) {
      calls_.push_back({kernels[call.kernel], pointers_.data() + pointers_.size()});
      for (const BufferSlot& slot : call.buffers) pointers_.push_back(Address(slot));
    }
    return absl::OkStatus();
  }

  void Run(const Call& call) const {
    OnPlacedStack([&] { call.kernel(call.buffers, workspace_.data(), pool_->host()); });
  }

  std::unique_ptr<KernelLibrary> library_;
  std::unique_ptr<ThreadPool> pool_;
  std::vector<AlignedBuffer> inputs_;
  std::vector<AlignedBuffer> outputs_;
  SharedBytes given_params_;  // null: they are copied
  AlignedBuffer copied_params_;
  const char* params_ = nullptr;  // into one of the two
  AlignedBuffer arena_;
  AlignedBuffer workspace_;
  int colour_ = 0;
  std::vector<void*> pointers_;  // all calls' arguments, one after the other
  std::vector<Call> calls_;
};

absl::StatusOr<std::unique_ptr<ExecutorBackend>> MakeCpuBackend(const Module& module,
                                                                const Executor::Options& options) {
  const int threads = options.threads == 0 ? module.manifest.threads : options.threads;
  if (threads < 1 || threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads is ", threads, "; it must be between 1 and ", kMaxThreads));
  }
  HEDDLE_RETURN_IF_ERROR(CheckCpu(module.manifest));
  auto backend = std::make_unique<CpuBackend>();
  HEDDLE_RETURN_IF_ERROR(backend->Prepare(module, threads, options.cpus));
  return backend;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(Module module, const Options& options) {
  HEDDLE_RETURN_IF_ERROR(CheckModule(module));
  const DeviceKind* const device = FindDeviceKind(KindOf(module.manifest.target));
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<ExecutorBackend> backend,
                          device != nullptr ? device->MakeExecutor(module, options.gpu)
                                            : MakeCpuBackend(module, options));
  return std::unique_ptr<Executor>(new Executor(std::move(module.manifest), std::move(backend)));
}

Executor::Executor(Manifest manifest, std::unique_ptr<ExecutorBackend> backend)
    : manifest_(std::move(manifest)), backend_(std::move(backend)) {}
Executor::~Executor() = default;

const Manifest& Executor::manifest() const { return manifest_; }
void* Executor::InputData(int index) { return backend_->InputData(index); }
const void* Executor::OutputData(int index) const { return backend_->OutputData(index); }

std::vector<int64_t> Executor::OutputShape(int index) const {
  const TensorSpec& spec = manifest_.outputs[static_cast<size_t>(index)];
  std::vector<int64_t> shape = spec.shape;
  for (const DimLength& length : spec.lengths) {
    int64_t& extent = shape[static_cast<size_t>(length.axis)];
    int64_t held = 0;
    std::memcpy(&held, OutputData(length.output), sizeof held);
    extent = std::clamp<int64_t>(held, 0, extent);
  }
  return shape;
}

void Executor::CopyOutput(int index, char* to) const {
  const TensorSpec& spec = manifest_.outputs[static_cast<size_t>(index)];
  CopyLeadingPart(static_cast<const char*>(OutputData(index)), spec.shape, OutputShape(index),
                  static_cast<size_t>(TensorSpec{"", spec.dtype, {}}.SizeBytes()), to);
}

std::string Executor::Output(int index) const {
  const TensorSpec& spec = manifest_.outputs[static_cast<size_t>(index)];
  const TensorSpec found{"", spec.dtype, OutputShape(index)};
  std::string bytes(static_cast<size_t>(found.SizeBytes()), '\0');
  CopyOutput(index, bytes.data());
  return bytes;
}

const absl::Status& Executor::status() const { return status_; }

absl::Status Executor::Run() {
  absl::Status status = backend_->Run();
  status_.Update(status);
  return status;
}

std::vector<double> Executor::ProfileNs(int rounds) {
  std::vector<Timing> timings(manifest_.calls.size());
  std::vector<double> ns;
  for (int round = 0; round < rounds; ++round) {
    ns.clear();
    if (absl::Status s = backend_->Profile(&ns); !s.ok()) {
      status_.Update(s);
      return {};
    }
    for (size_t i = 0; i < ns.size(); ++i) timings[i].samples_ns.push_back(ns[i]);
  }
  std::vector<double> medians;
  for (const Timing& timing : timings) medians.push_back(timing.MedianNs());
  return medians;
}

}  // namespace heddle::runtime
