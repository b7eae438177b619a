#include "compiler/runtime/executor.h"

#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/runtime/aligned_buffer.h"
#include "compiler/runtime/cpu_features.h"
#include "compiler/runtime/kernel_library.h"
#include "compiler/runtime/module_check.h"
#include "compiler/runtime/thread_pool.h"

namespace heddle::runtime {
namespace {

constexpr int kMaxThreads = 256;  // as many as a target may name

absl::StatusOr<AlignedBuffer> Allocate(int64_t bytes, const std::string& what) {
  AlignedBuffer buffer = AlignedBuffer::Allocate(bytes);
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

}  // namespace

struct Executor::Impl {
  struct Call {
    heddle_kernel kernel;
    void* const* buffers;  // into `pointers`
  };

  Manifest manifest;
  std::unique_ptr<KernelLibrary> library;
  std::unique_ptr<ThreadPool> pool;
  std::vector<AlignedBuffer> inputs;
  std::vector<AlignedBuffer> outputs;
  AlignedBuffer params;
  AlignedBuffer arena;
  AlignedBuffer workspace;
  std::vector<void*> pointers;  // all calls' arguments, one after the other
  std::vector<Call> calls;

  absl::Status AllocateTensors(const std::vector<TensorSpec>& specs,
                               std::vector<AlignedBuffer>* out);
  absl::Status AllocateMemory(const std::string& constants);
  absl::Status Prepare();
  void* Address(const BufferSlot& slot) const;

  void Run(const Call& call) const { call.kernel(call.buffers, workspace.data(), pool->host()); }
};

absl::Status Executor::Impl::AllocateTensors(const std::vector<TensorSpec>& specs,
                                             std::vector<AlignedBuffer>* out) {
  for (const TensorSpec& spec : specs) {
    absl::StatusOr<AlignedBuffer> buffer = Allocate(spec.SizeBytes(), "tensor " + spec.name);
    if (!buffer.ok()) return buffer.status();
    out->push_back(*std::move(buffer));
  }
  return absl::OkStatus();
}

absl::Status Executor::Impl::AllocateMemory(const std::string& constants) {
  if (absl::Status s = AllocateTensors(manifest.inputs, &inputs); !s.ok()) return s;
  if (absl::Status s = AllocateTensors(manifest.outputs, &outputs); !s.ok()) return s;
  const struct {
    int64_t bytes;
    const char* what;
    AlignedBuffer* out;
  } blocks[] = {
      {static_cast<int64_t>(constants.size()), "the parameters", &params},
      {manifest.arena_bytes, "intermediate results", &arena},
      {manifest.workspace_bytes, "the kernels' workspace", &workspace},
  };
  for (const auto& block : blocks) {
    absl::StatusOr<AlignedBuffer> buffer = Allocate(block.bytes, block.what);
    if (!buffer.ok()) return buffer.status();
    *block.out = *std::move(buffer);
  }
  std::memcpy(params.data(), constants.data(), constants.size());
  return absl::OkStatus();
}

void* Executor::Impl::Address(const BufferSlot& slot) const {
  switch (slot.place) {
    case Place::kInput:
      return inputs[slot.index].data();
    case Place::kOutput:
      return outputs[slot.index].data();
    case Place::kParam:
      return params.data() + slot.index;
    case Place::kArena:
      return arena.data() + slot.index;
  }
  return nullptr;  // CheckModule admits no other place
}

absl::Status Executor::Impl::Prepare() {
  std::vector<heddle_kernel> kernels;
  for (const KernelSpec& spec : manifest.kernels) {
    absl::StatusOr<heddle_kernel> kernel = library->Find(spec.symbol);
    if (!kernel.ok()) return kernel.status();
    kernels.push_back(*kernel);
  }
  size_t total = 0;
  for (const CallSpec& call : manifest.calls) total += call.buffers.size();
  pointers.reserve(total);  // calls keep addresses of its elements
  for (const CallSpec& call : manifest.calls) {
    calls.push_back({kernels[call.kernel], pointers.data() + pointers.size()});
    for (const BufferSlot& slot : call.buffers) pointers.push_back(Address(slot));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(Module module, const Options& options) {
  if (absl::Status s = CheckModule(module); !s.ok()) return s;
  const int threads = options.threads == 0 ? module.manifest.threads : options.threads;
  if (threads < 1 || threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads is ", threads, "; it must be between 1 and ", kMaxThreads));
  }
  if (absl::Status s = CheckCpu(module.manifest); !s.ok()) return s;
  auto impl = std::make_unique<Impl>();
  absl::StatusOr<std::unique_ptr<KernelLibrary>> library = KernelLibrary::Load(module.code);
  if (!library.ok()) return library.status();
  impl->library = *std::move(library);
  impl->manifest = std::move(module.manifest);
  if (absl::Status s = impl->AllocateMemory(module.params); !s.ok()) return s;
  if (absl::Status s = impl->Prepare(); !s.ok()) return s;
  impl->pool = std::make_unique<ThreadPool>(threads, options.cpus);
  return std::unique_ptr<Executor>(new Executor(std::move(impl)));
}

Executor::Executor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executor::~Executor() = default;

const Manifest& Executor::manifest() const { return impl_->manifest; }
void* Executor::InputData(int index) { return impl_->inputs[index].data(); }
const void* Executor::OutputData(int index) const { return impl_->outputs[index].data(); }

void Executor::Run() {
  for (const Impl::Call& call : impl_->calls) impl_->Run(call);
}

std::vector<double> Executor::ProfileNs(int rounds) {
  using Clock = std::chrono::steady_clock;
  std::vector<Timing> timings(impl_->calls.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < impl_->calls.size(); ++i) {
      const Clock::time_point start = Clock::now();
      impl_->Run(impl_->calls[i]);
      const std::chrono::duration<double, std::nano> elapsed = Clock::now() - start;
      timings[i].samples_ns.push_back(elapsed.count());
    }
  }
  std::vector<double> medians;
  for (const Timing& timing : timings) medians.push_back(timing.MedianNs());
  return medians;
}

}  // namespace heddle::runtime
