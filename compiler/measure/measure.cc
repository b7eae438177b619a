#include "compiler/measure/measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/vocabulary/workload_key.h"
#include "compiler/ir/visit.h"
#include "compiler/ir/workload.h"
#include "compiler/measure/cache_age.h"
#include "compiler/measure/data.h"
#include "compiler/measure/loaded_kernel.h"
#include "compiler/measure/scoped_pin.h"
#include "compiler/runtime/aligned_buffer.h"
#include "compiler/runtime/device_kind.h"
#include "compiler/runtime/kernel_library.h"
#include "compiler/runtime/thread_pool.h"

namespace heddle {
namespace {

using runtime::AlignedBuffer;

// Operations per second that no core of a CPU reaches. Two 16-lane units at 6 GHz reach 0.4e12 in
// single precision; the rest is a margin for work that the optimiser correctly moves out of loops.
constexpr double kImpossibleFlops = 4e12;
// Constants of more bytes are not read before a timed call: no cache holds them.
constexpr int64_t kMostWarmBytes = int64_t{32} << 20;
// More than this evicts most of itself with each call, and to evict it would take longer than to touch other memory.
constexpr int64_t kMostEvictedBytes = machine::kFlushBytes;
// About how long ago other kernels of a model last used the memory that this one writes to.
constexpr absl::Duration kAge = absl::Milliseconds(2);
constexpr int kLeastCalls = 5;  // for which a sample has time, however short it is
// Some fifty times what reading the clock takes.
constexpr double kLeastWarmNs = 5000;

class Bench : public WorkloadBench {
 public:
  Bench(ir::Program program, const MeasureOptions& options)
      : data_(std::move(program)),
        timed_warm_(ir::IsTimedWarm(data_.program())),
        options_(options),
        pool_(options.threads, options.cpus) {}

  absl::Status Prepare(uint64_t seed) { return data_.Prepare(seed, options_.check_points); }

  absl::StatusOr<Measurement> Run(const codegen::Artifact& artifact) override {
    HEDDLE_RETURN_IF_ERROR(internal::CheckKernelCount(artifact));
    HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::KernelLibrary> library,
                            runtime::KernelLibrary::Load(artifact.shared_object));
    internal::MemoryByName memory = data_.memory();
    internal::LoadedKernel prepack;
    if (artifact.kernels.size() == 2) {
      HEDDLE_ASSIGN_OR_RETURN(
          prepack, internal::LoadedKernel::LoadPrepack(*library, artifact.kernels[1], &memory));
      prepack.Call(pool_.host());
    }
    HEDDLE_ASSIGN_OR_RETURN(const internal::LoadedKernel kernel,
                            internal::LoadedKernel::Load(*library, artifact.kernels[0], memory));
    const internal::ScopedPin pin(options_.cpus.empty() ? -1 : options_.cpus[0]);
    const auto call = [&] { kernel.Call(pool_.host()); };
    const AlignedBuffer& workspace = kernel.workspace();
    std::memset(workspace.data(), 0xff, workspace.size());
    Measurement result;
    HEDDLE_RETURN_IF_ERROR(data_.Check(
        [&] {
          call();
          return absl::OkStatus();
        },
        artifact.numerics.Allowed(), &result.max_error));
    result.references_replaced = data_.references_replaced();
    runtime::TimingOptions timing = options_.timing;
    const std::vector<internal::Memory> constants = ConstantsOf(artifact.kernels[0], memory);
    int64_t constant_bytes = 0;
    for (const internal::Memory& constant : constants) constant_bytes += constant.bytes;
    const bool ages =
        options_.warm_activations && internal::CanEvict() && constant_bytes <= kMostEvictedBytes;
    if (ages) {
      timing.evict = [&] {
        if (timed_warm_) return;
        for (const internal::Memory& constant : constants)
          internal::EvictLines(constant.data, constant.bytes);
        Age();
      };
    }
    std::vector<internal::Memory> activations;
    if (options_.warm_activations)
      activations = ages && !timed_warm_ ? data_.Fresh() : internal::WarmByAge(data_, workspace);
    timing.warm = [&] {
      if (timed_warm_) {
        call();
        if (constant_bytes <= kMostWarmBytes) {
          for (const internal::Memory& constant : constants) Read(constant);
        }
      }
      for (const internal::Memory& activation : activations) Read(activation);
    };
    if (timed_warm_) timing.least_ns = kLeastWarmNs;
    timing.rival_ns = fastest_ns_;
    result.timing = runtime::TimeCalls(call, timing);
    HEDDLE_RETURN_IF_ERROR(
        data_.CheckPlausible(result.timing, kImpossibleFlops * options_.threads));
    const double ns = result.timing.MedianNs();
    if (fastest_ns_ == 0 || ns < fastest_ns_) fastest_ns_ = ns;
    return result;
  }

 private:
  // All workers compute until the same time.
  void Age() {
    std::chrono::steady_clock::time_point end =
        std::chrono::steady_clock::now() +
        absl::ToChronoNanoseconds(std::min(kAge, options_.timing.min_repeat / kLeastCalls));
    pool_.host()->parallel_for(
        pool_.host(), options_.threads,
        [](void* closure, int64_t, int64_t, int) {
          internal::ComputeUntil(*static_cast<std::chrono::steady_clock::time_point*>(closure));
        },
        &end);
  }

  // Each worker reads the parts that it would be given of a loop over the memory.
  void Read(internal::Memory memory) {
    pool_.host()->parallel_for(
        pool_.host(), (memory.bytes + kLine - 1) / kLine,
        [](void* closure, int64_t begin, int64_t end, int) {
          const char* bytes =
              static_cast<const char*>(static_cast<internal::Memory*>(closure)->data);
          for (int64_t i = begin; i < end; ++i) {
            char byte = bytes[i * kLine];
            asm volatile("" : : "r"(byte));
          }
        },
        &memory);
  }

  // The constants that the kernel reads, prepacked ones among them.
  std::vector<internal::Memory> ConstantsOf(const codegen::KernelInfo& kernel,
                                            const internal::MemoryByName& memory) const {
    std::set<std::string> activations;
    for (const auto* list : {&data_.program().inputs, &data_.program().outputs}) {
      for (const ir::BufferRef& buffer : *list) {
        if (!buffer->constant) activations.insert(buffer->name);
      }
    }
    std::vector<internal::Memory> constants;
    for (const codegen::Argument& argument : kernel.arguments) {
      if (activations.contains(argument.name)) continue;
      constants.push_back(memory.at(argument.name));
    }
    return constants;
  }

  static constexpr int64_t kLine = 64;
  internal::MeasureData data_;
  const bool timed_warm_;
  const MeasureOptions options_;
  runtime::ThreadPool pool_;
  double fastest_ns_ = 0;  // median of the fastest candidate so far
};

// The benches of the kinds of devices in runtime/device_kind.h.
struct DeviceBench {
  std::string_view kind;
  absl::StatusOr<std::unique_ptr<WorkloadBench>> (*create)(ir::Program program, uint64_t seed,
                                                           int ordinal,
                                                           const MeasureOptions& options);
};
constexpr DeviceBench kDeviceBenches[] = {{"cuda", internal::CreateCudaBench}};

}  // namespace

absl::StatusOr<std::unique_ptr<WorkloadBench>> WorkloadBench::Create(
    std::string_view workload, const MeasureOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(ir::Program program, ir::ParseWorkload(workload));
  const uint64_t seed = std::stoull(WorkloadKey(workload), nullptr, 16);
  if (!options.device.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(const runtime::DeviceName device, runtime::ParseDevice(options.device));
    for (const DeviceBench& row : kDeviceBenches) {
      if (row.kind != device.kind->name()) continue;
      return row.create(std::move(program), seed, device.ordinal, options);
    }
    return absl::UnimplementedError(
        absl::StrCat("nothing measures on devices like ", options.device));
  }
  auto bench = std::make_unique<Bench>(std::move(program), options);
  HEDDLE_RETURN_IF_ERROR(bench->Prepare(seed));
  return bench;
}

}  // namespace heddle
