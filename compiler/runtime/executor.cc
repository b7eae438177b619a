#include "compiler/runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/leading_part.h"
#include "base/status_macros.h"
#include "base/vocabulary/target.h"
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
constexpr int64_t kMostBytes = int64_t{1} << 47;  // of an address space
// A copy of at least kSharedCopyBytes is cut into pieces that all threads copy. One thread would take 10 us or more for it,
// which is many times what it costs to wake the others.
constexpr size_t kSharedCopyBytes = size_t{256} << 10;
constexpr size_t kCopyPieceBytes = size_t{4} << 10;
// Rows that threads share by ranges: so many for each of them take 10 us or more. Such a call has memory for each thread, unless
// one thread needs more than kMostOwnBytes.
constexpr int64_t kLeastOwnRows = 1024;
constexpr int64_t kMostOwnBytes = int64_t{64} << 20;
// A thread's share of so many of the largest blocks or more is taken block by block, so that a thread that the system stops delays
// the others by one block. Smaller shares are ranges of equal length, since one block more would take clearly longer.
constexpr int64_t kBlocksTakenSingly = 8;

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
    const Manifest& manifest = module.manifest;
    HEDDLE_RETURN_IF_ERROR(AllocateTensors(manifest, &own_));
    HEDDLE_RETURN_IF_ERROR(TakeParams(module.params));
    HEDDLE_RETURN_IF_ERROR(Bind(manifest, &own_));
    FindUses(manifest);
    if (manifest.independent_rows && BytesOf(manifest) <= kMostOwnBytes) {
      others_.resize(static_cast<size_t>(threads) - 1);
      for (Memory& other : others_) {
        absl::Status status = AllocateTensors(manifest, &other);
        if (status.ok()) status = Bind(manifest, &other);
        if (status.ok()) continue;
        // All threads compute each block together, then.
        others_.clear();
        break;
      }
    }
    pool_ = std::make_unique<ThreadPool>(threads, cpus);
    return absl::OkStatus();
  }

  void* InputData(int index, int thread) override {
    return MemoryOf(thread).inputs[static_cast<size_t>(index)].data();
  }
  const void* OutputData(int index, int thread) const override {
    return MemoryOf(thread).outputs[static_cast<size_t>(index)].data();
  }
  int RowThreads() const override { return 1 + static_cast<int>(others_.size()); }

  bool PlaceInput(int index, const void* data) override {
    // Kernels only read inputs.
    void* const at = data == nullptr ? InputData(index, 0) : const_cast<void*>(data);
    for (size_t use : input_uses_[static_cast<size_t>(index)]) own_.pointers[use] = at;
    return true;
  }
  bool PlaceOutput(int index, void* data) override {
    const auto i = static_cast<size_t>(index);
    void* const at = data == nullptr ? own_.outputs[i].data() : data;
    for (size_t use : output_uses_[i]) own_.pointers[use] = at;
    return true;
  }

  void ParallelFor(int64_t n, heddle_parallel_body body, void* closure) override {
    pool_->host()->parallel_for(pool_->host(), n, body, closure);
  }

  absl::Status Run(size_t block) override {
    // One change of the stack for all calls.
    OnPlacedStack([&] {
      for (const Call& call : own_.calls[block])
        call.kernel(call.buffers, own_.workspace.data(), pool_->host());
    });
    return absl::OkStatus();
  }

  void RunAlone(size_t block, int thread) override {
    // The whole loop is done by the thread that is here.
    static constexpr heddle_host kAlone = {
        1,
        [](const heddle_host* /*host*/, int64_t n, heddle_parallel_body body, void* closure) {
          if (n > 0) OnPlacedStack([&] { body(closure, 0, n, 0); });
        },
        nullptr};
    const Memory& memory = MemoryOf(thread);
    OnPlacedStack([&] {
      for (const Call& call : memory.calls[block])
        call.kernel(call.buffers, memory.workspace.data(), &kAlone);
    });
  }

  absl::Status Profile(size_t block, std::vector<double>* ns) override {
    using Clock = std::chrono::steady_clock;
    for (const Call& call : own_.calls[block]) {
      const Clock::time_point start = Clock::now();
      RunCall(call);
      const std::chrono::duration<double, std::nano> elapsed = Clock::now() - start;
      ns->push_back(elapsed.count());
    }
    return absl::OkStatus();
  }

 private:
  struct Call {
    heddle_kernel kernel;
    void* const* buffers;  // into Memory::pointers
  };

  // What the calls of one thread read and write, but for the parameters, which all share; and the calls with these addresses.
  struct Memory {
    std::vector<AlignedBuffer> inputs, outputs;
    AlignedBuffer arena, workspace;
    std::vector<void*> pointers;           // all calls' arguments, one after the other
    std::vector<std::vector<Call>> calls;  // by block
  };
  const Memory& MemoryOf(int thread) const {
    return thread == 0 ? own_ : others_[static_cast<size_t>(thread) - 1];
  }

  static int64_t BytesOf(const Manifest& manifest) {
    int64_t bytes = manifest.arena_bytes + manifest.workspace_bytes;
    for (const auto* specs : {&manifest.inputs, &manifest.outputs}) {
      for (const TensorSpec& spec : *specs) bytes += spec.SizeBytes();
    }
    return bytes;
  }

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

  absl::Status AllocateTensors(const Manifest& manifest, Memory* memory) {
    HEDDLE_RETURN_IF_ERROR(AllocateTensors(manifest.inputs, &memory->inputs));
    HEDDLE_RETURN_IF_ERROR(AllocateTensors(manifest.outputs, &memory->outputs));
    const struct {
      int64_t bytes;
      const char* what;
      AlignedBuffer* out;
    } blocks[] = {
        {manifest.arena_bytes, "intermediate results", &memory->arena},
        {manifest.workspace_bytes, "the kernels' workspace", &memory->workspace},
    };
    for (const auto& block : blocks) {
      HEDDLE_ASSIGN_OR_RETURN(AlignedBuffer buffer,
                              Allocate(block.bytes, NextColour(), block.what));
      *block.out = std::move(buffer);
    }
    return absl::OkStatus();
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

  void* Address(const BufferSlot& slot, const Memory& memory) const {
    switch (slot.place) {
      case Place::kInput:
        return memory.inputs[slot.index].data();
      case Place::kOutput:
        return memory.outputs[slot.index].data();
      case Place::kParam:
        return const_cast<char*>(params_) + slot.index;  // kernels only read them
      case Place::kArena:
        return memory.arena.data() + slot.index;
    }
    return nullptr;  // CheckModule allows no other place
  }

  absl::Status Bind(const Manifest& manifest, Memory* memory) {
    std::vector<heddle_kernel> kernels;
    for (const KernelSpec& spec : manifest.kernels) {
      HEDDLE_ASSIGN_OR_RETURN(heddle_kernel kernel, library_->Find(spec.symbol));
      kernels.push_back(kernel);
    }
    size_t total = 0;
    for (size_t b = 0; b < manifest.NumBlocks(); ++b) {
      for (const CallSpec& call : manifest.CallsOf(b)) total += call.buffers.size();
    }
    std::vector<void*>& pointers = memory->pointers;
    pointers.reserve(total);  // no reallocation, since calls keep addresses of elements
    for (size_t b = 0; b < manifest.NumBlocks(); ++b) {
      std::vector<Call>& calls = memory->calls.emplace_back();
      for (const CallSpec& call : manifest.CallsOf(b)) {
        calls.push_back({kernels[call.kernel], pointers.data() + pointers.size()});
        for (const BufferSlot& slot : call.buffers) pointers.push_back(Address(slot, *memory));
      }
    }
    return absl::OkStatus();
  }

  void FindUses(const Manifest& manifest) {
    input_uses_.resize(manifest.inputs.size());
    output_uses_.resize(manifest.outputs.size());
    size_t at = 0;
    for (size_t b = 0; b < manifest.NumBlocks(); ++b) {
      for (const CallSpec& call : manifest.CallsOf(b)) {
        for (const BufferSlot& slot : call.buffers) {
          if (slot.place == Place::kInput) input_uses_[slot.index].push_back(at);
          if (slot.place == Place::kOutput) output_uses_[slot.index].push_back(at);
          ++at;
        }
      }
    }
  }

  void RunCall(const Call& call) const {
    OnPlacedStack([&] { call.kernel(call.buffers, own_.workspace.data(), pool_->host()); });
  }

  std::unique_ptr<KernelLibrary> library_;
  std::unique_ptr<ThreadPool> pool_;
  SharedBytes given_params_;  // null: they are copied
  AlignedBuffer copied_params_;
  const char* params_ = nullptr;  // into one of the two
  int colour_ = 0;
  Memory own_;                  // of thread 0, and of calls that all threads work on
  std::vector<Memory> others_;  // of threads 1, 2, ..; empty: threads share no rows
  std::vector<std::vector<size_t>> input_uses_, output_uses_;  // by tensor: where in own_.pointers
};

std::vector<int64_t> BlockRows(const Manifest& manifest) {
  std::vector<int64_t> rows;
  for (size_t b = 0; b < manifest.NumBlocks(); ++b) rows.push_back(manifest.RowsOf(b));
  return rows;
}

// What the kernels of each block took that were measured warm, or what the others took; empty if one kernel was not measured.
std::vector<double> BlockNs(const Manifest& manifest, bool warm) {
  std::vector<double> times;
  for (size_t b = 0; b < manifest.NumBlocks(); ++b) {
    double& sum = times.emplace_back(0);
    for (const CallSpec& call : manifest.CallsOf(b)) {
      const KernelSpec& kernel = manifest.kernels[static_cast<size_t>(call.kernel)];
      if (!(kernel.record_ms > 0)) return {};
      if (kernel.warm == warm) sum += kernel.record_ms * 1e6;
    }
  }
  return times;
}

// Whether a tensor can be there.
absl::Status CheckPlace(const TensorSpec& spec, const void* data) {
  if (reinterpret_cast<uintptr_t>(data) % kBufferAlignment == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensor '", spec.name,
                                                 "' must lie at a multiple of ", kBufferAlignment,
                                                 " bytes; copy it to memory that does"));
}

absl::Status NoPlaces(const TensorSpec& spec) {
  return absl::FailedPreconditionError(absl::StrCat(
      "tensor '", spec.name, "' of a GPU module cannot be used where it is; set a copy of it"));
}

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
    : manifest_(std::move(manifest)),
      backend_(std::move(backend)),
      block_rows_(BlockRows(manifest_)),
      cut_(block_rows_, BlockNs(manifest_, /*warm=*/false), BlockNs(manifest_, /*warm=*/true)),
      most_rows_(kMostBytes) {
  const auto describe = [&](const std::vector<TensorSpec>& specs, std::vector<Tensor>* tensors) {
    for (const TensorSpec& spec : specs) {
      Tensor& tensor = tensors->emplace_back();
      tensor.bytes = static_cast<size_t>(spec.SizeBytes());
      if (block_rows_[0] > 0) {
        const int64_t row = spec.SizeBytes() / block_rows_[0];
        most_rows_ = std::min(most_rows_, kMostBytes / std::max<int64_t>(row, 1));
        tensor.row_bytes = static_cast<size_t>(row);
      }
      tensor.element_bytes = static_cast<size_t>(TensorSpec{"", spec.dtype, {}}.SizeBytes());
      tensor.shape = spec.shape;
    }
  };
  describe(manifest_.inputs, &inputs_);
  describe(manifest_.outputs, &outputs_);
  for (size_t i = 0; i < inputs_.size(); ++i)
    inputs_[i].own = static_cast<char*>(backend_->InputData(static_cast<int>(i), 0));
  for (size_t i = 0; i < outputs_.size(); ++i)
    outputs_[i].own_output = static_cast<const char*>(backend_->OutputData(static_cast<int>(i), 0));
  if (const int threads = backend_->RowThreads(); threads > 1)
    least_shared_rows_ = threads * std::max(kLeastOwnRows, block_rows_[0]);
  SetShapes(0);
}
Executor::~Executor() = default;

const Manifest& Executor::manifest() const { return manifest_; }
void* Executor::InputData(int index) { return backend_->InputData(index, 0); }
const void* Executor::OutputData(int index) const {
  const void* const bound = outputs_[static_cast<size_t>(index)].bound;
  return bound != nullptr ? bound : backend_->OutputData(index, 0);
}

absl::Status Executor::BindInput(int index, const void* data) {
  const TensorSpec& spec = manifest_.inputs[static_cast<size_t>(index)];
  HEDDLE_RETURN_IF_ERROR(CheckPlace(spec, data));
  if (!backend_->PlaceInput(index, data)) return NoPlaces(spec);
  inputs_[static_cast<size_t>(index)].bound = data;
  any_bound_ |= data != nullptr;
  return absl::OkStatus();
}

absl::Status Executor::BindOutput(int index, void* data) {
  const TensorSpec& spec = manifest_.outputs[static_cast<size_t>(index)];
  HEDDLE_RETURN_IF_ERROR(CheckPlace(spec, data));
  if (!backend_->PlaceOutput(index, data)) return NoPlaces(spec);
  outputs_[static_cast<size_t>(index)].bound = data;
  any_bound_ |= data != nullptr;
  return absl::OkStatus();
}

void Executor::Unbind() {
  if (!std::exchange(any_bound_, false)) return;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (std::exchange(inputs_[i].bound, nullptr) != nullptr)
      backend_->PlaceInput(static_cast<int>(i), nullptr);
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (std::exchange(outputs_[i].bound, nullptr) != nullptr)
      backend_->PlaceOutput(static_cast<int>(i), nullptr);
  }
}

// The shapes of outputs with independent rows depend on the block, those of others on data.
void Executor::SetShapes(size_t block) {
  if (block_rows_[block] > 0 && std::exchange(shaped_, block) == block) return;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const TensorSpec& spec = manifest_.outputs[i];
    std::vector<int64_t>& shape = outputs_[i].shape;
    if (block_rows_[block] > 0) shape[0] = block_rows_[block];
    for (const DimLength& length : spec.lengths) {
      int64_t held = 0;
      std::memcpy(&held, OutputData(length.output), sizeof held);
      const auto axis = static_cast<size_t>(length.axis);
      shape[axis] = std::clamp<int64_t>(held, 0, spec.shape[axis]);
    }
  }
}

void Executor::CopyOutput(int index, char* to) const {
  const Tensor& tensor = outputs_[static_cast<size_t>(index)];
  CopyLeadingPart(static_cast<const char*>(OutputData(index)),
                  manifest_.outputs[static_cast<size_t>(index)].shape, tensor.shape,
                  tensor.element_bytes, to);
}

size_t Executor::OutputBytes(int index) const {
  const Tensor& tensor = outputs_[static_cast<size_t>(index)];
  size_t bytes = tensor.element_bytes;
  for (int64_t extent : tensor.shape) bytes *= static_cast<size_t>(extent);
  return bytes;
}

std::string Executor::Output(int index) const {
  std::string bytes(OutputBytes(index), '\0');
  CopyOutput(index, bytes.data());
  return bytes;
}

const absl::Status& Executor::status() const { return status_; }

absl::Status Executor::Run(size_t block) {
  absl::Status status = backend_->Run(block);
  SetShapes(block);
  status_.Update(status);
  return status;
}

// A thread copies the rows that it will compute, since loops over them are shared out in the same way. If one thread copied all,
// the others would fetch their rows from its cache, and it would fetch the places of these rows back for the next ones.
void Executor::CopyRows(char* to, const char* from, size_t bytes) {
  if (bytes < kSharedCopyBytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  struct Copied {
    char* to;
    const char* from;
    size_t bytes;
  } copied{to, from, bytes};
  backend_->ParallelFor(
      static_cast<int64_t>((bytes + kCopyPieceBytes - 1) / kCopyPieceBytes),
      [](void* closure, int64_t begin, int64_t end, int32_t /*worker*/) {
        const Copied& all = *static_cast<const Copied*>(closure);
        const size_t first = static_cast<size_t>(begin) * kCopyPieceBytes,
                     last = std::min(static_cast<size_t>(end) * kCopyPieceBytes, all.bytes);
        std::memcpy(all.to + first, all.from + first, last - first);
      },
      &copied);
}

void Executor::ShareRows(int64_t rows, const void* const* inputs, void* const* outputs) {
  struct Shared {
    Executor& executor;
    int64_t rows, range;
    const void* const* inputs;
    void* const* outputs;
  } shared{*this, rows, 0, inputs, outputs};
  const int64_t threads = backend_->RowThreads(), share = (rows + threads - 1) / threads;
  shared.range = share < kBlocksTakenSingly * block_rows_[0] ? share : block_rows_[0];
  backend_->ParallelFor((rows + shared.range - 1) / shared.range,
                        [](void* closure, int64_t begin, int64_t end, int32_t worker) {
                          const Shared& all = *static_cast<const Shared*>(closure);
                          for (int64_t k = begin; k < end; ++k) {
                            const int64_t first = k * all.range;
                            all.executor.RunRange(first, std::min(first + all.range, all.rows),
                                                  worker, all.inputs, all.outputs);
                          }
                        },
                        &shared);
}

void Executor::RunRange(int64_t begin, int64_t end, int thread, const void* const* inputs,
                        void* const* outputs) {
  for (int64_t done = begin; done < end;) {
    const RowCut::Piece piece = cut_.Next(end - done);
    const auto first = static_cast<size_t>(done), count = static_cast<size_t>(piece.rows);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const size_t row = inputs_[i].row_bytes;
      std::memcpy(backend_->InputData(static_cast<int>(i), thread),
                  static_cast<const char*>(inputs[i]) + first * row, count * row);
    }
    backend_->RunAlone(piece.block, thread);
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs[i] == nullptr) continue;
      const size_t row = outputs_[i].row_bytes;
      std::memcpy(static_cast<char*>(outputs[i]) + first * row,
                  backend_->OutputData(static_cast<int>(i), thread), count * row);
    }
    done += piece.rows;
  }
}

absl::Status Executor::RunRows(int64_t rows, const void* const* inputs, void* const* outputs) {
  if (block_rows_[0] == 0)
    return absl::InvalidArgumentError(
        "the rows of this model depend on each other: set its inputs, and run it as it is");
  if (rows < 0 || rows > most_rows_) {
    return absl::InvalidArgumentError(
        absl::StrCat(rows, " rows: the number of rows must be between 0 and ", most_rows_));
  }
  if (rows == 0) return absl::OkStatus();
  if (inputs == nullptr || outputs == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the array of ", inputs == nullptr ? "inputs" : "outputs", " is null"));
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs[i] == nullptr)
      return absl::InvalidArgumentError(
          absl::StrCat("input '", manifest_.inputs[i].name, "' is null"));
  }
  Unbind();
  if (rows >= least_shared_rows_) {
    ShareRows(rows, inputs, outputs);
    SetShapes(0);
    return absl::OkStatus();
  }
  for (int64_t done = 0; done < rows;) {
    const RowCut::Piece piece = cut_.Next(rows - done);
    const auto begin = static_cast<size_t>(done), count = static_cast<size_t>(piece.rows);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const size_t row = inputs_[i].row_bytes;
      CopyRows(inputs_[i].own, static_cast<const char*>(inputs[i]) + begin * row, count * row);
    }
    const absl::Status status = backend_->Run(piece.block);
    if (!status.ok()) {
      status_.Update(status);
      SetShapes(piece.block);
      return status;
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs[i] == nullptr) continue;
      const size_t row = outputs_[i].row_bytes;
      CopyRows(static_cast<char*>(outputs[i]) + begin * row, outputs_[i].own_output, count * row);
    }
    done += piece.rows;
  }
  SetShapes(0);
  return absl::OkStatus();
}

std::vector<double> Executor::ProfileNs(int rounds, size_t block) {
  std::vector<Timing> timings(manifest_.CallsOf(block).size());
  std::vector<double> ns;
  for (int round = 0; round < rounds; ++round) {
    ns.clear();
    if (absl::Status s = backend_->Profile(block, &ns); !s.ok()) {
      status_.Update(s);
      return {};
    }
    for (size_t i = 0; i < ns.size(); ++i) timings[i].samples_ns.push_back(ns[i]);
  }
  SetShapes(block);
  std::vector<double> medians;
  for (const Timing& timing : timings) medians.push_back(timing.MedianNs());
  return medians;
}

}  // namespace heddle::runtime
