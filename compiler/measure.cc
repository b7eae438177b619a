#include "compiler/measure.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/interpreter.h"
#include "compiler/codegen/tolerance.h"
#include "compiler/compile_internal.h"
#include "compiler/ir/status_macros.h"
#include "compiler/ir/visit.h"
#include "compiler/loaded_kernel.h"
#include "compiler/measure_check.h"
#include "compiler/random_input.h"
#include "compiler/runtime/aligned_buffer.h"
#include "compiler/runtime/kernel_library.h"
#include "compiler/runtime/thread_pool.h"
#include "compiler/splitmix.h"
#include "compiler/tensor/expression.h"

namespace heddle {
namespace {

using ir::DType;
using runtime::AlignedBuffer;

// Quiet NaNs no arithmetic produces by itself: found in an output, they were left there.
constexpr uint32_t kPoison32 = 0x7fe5a5a5;
constexpr uint64_t kPoison64 = 0x7ffca5a5a5a5a5a5;
// Integers have no such value: they hold another one in each of two runs, and what is not written
// differs. No bools either.
constexpr char kPoisonBytes[] = {'\x5a', '\x33'};
// Single-precision operations a second of one core that no CPU reaches (two 16-lane units at 6 GHz
// give 0.4e12), with room for work the optimiser may rightly hoist out of the loops.
constexpr double kImpossibleFlops = 4e12;

void Poison(const ir::Buffer& buffer, void* data, int run) {
  if (buffer.dtype == DType::kF32) {
    std::fill_n(static_cast<uint32_t*>(data), buffer.NumElements(), kPoison32);
  } else if (buffer.dtype == DType::kF64) {
    std::fill_n(static_cast<uint64_t*>(data), buffer.NumElements(), kPoison64);
  } else {
    std::memset(data, kPoisonBytes[run], buffer.SizeBytes());
  }
}

template <typename T>
int64_t Find(const ir::Buffer& buffer, const void* data, T wanted) {
  const T* begin = static_cast<const T*>(data);
  const T* end = begin + buffer.NumElements();
  const T* found = std::find(begin, end, wanted);
  return found == end ? -1 : found - begin;
}

// The first float that still holds the poison, -1 if there is none.
int64_t FindPoison(const ir::Buffer& buffer, const void* data) {
  if (buffer.dtype == DType::kF32) return Find<uint32_t>(buffer, data, kPoison32);
  if (buffer.dtype == DType::kF64) return Find<uint64_t>(buffer, data, kPoison64);
  return -1;
}

// Keeps the calling thread, which is worker 0 of the pool, on one core for its lifetime.
class ScopedPin {
 public:
  explicit ScopedPin(const std::vector<int>& cpus) {
    if (cpus.empty() || cpus[0] < 0 || cpus[0] >= CPU_SETSIZE) return;
    if (sched_getaffinity(0, sizeof(before_), &before_) != 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpus[0], &one);
    pinned_ = sched_setaffinity(0, sizeof(one), &one) == 0;
  }
  ~ScopedPin() {
    if (pinned_) sched_setaffinity(0, sizeof(before_), &before_);
  }
  ScopedPin(const ScopedPin&) = delete;
  ScopedPin& operator=(const ScopedPin&) = delete;

 private:
  cpu_set_t before_;
  bool pinned_ = false;
};

class Bench : public WorkloadBench {
 public:
  Bench(ir::Program program, const MeasureOptions& options)
      : program_(std::move(program)),
        options_(options),
        flops_(ir::CountFlops(program_)),
        pool_(options.threads, options.cpus) {}

  absl::Status Prepare(uint64_t seed) {
    SplitMix random(seed);
    std::vector<codegen::TensorRef> inputs;
    for (const auto* list : {&program_.inputs, &program_.outputs}) {
      for (const ir::BufferRef& buffer : *list) {
        HEDDLE_ASSIGN_OR_RETURN(
            AlignedBuffer memory,
            internal::AllocateFor(absl::StrCat("'", buffer->name, "'"), buffer->SizeBytes()));
        given_[buffer->name] = {memory.data(), buffer->SizeBytes()};
        if (list == &program_.inputs) {
          internal::FillInput(*buffer, memory.data(), random);
          inputs.push_back({buffer->dtype, buffer->shape, memory.data()});
        } else {
          outputs_.push_back(memory.data());
        }
        memory_.push_back(std::move(memory));
      }
    }
    return checker_.Prepare(program_, std::move(inputs), options_.check_points, random);
  }

  absl::StatusOr<Measurement> Run(const codegen::Artifact& artifact) override {
    if (artifact.kernels.empty() || artifact.kernels.size() > 2) {
      return absl::InvalidArgumentError(absl::StrCat("artifact has ", artifact.kernels.size(),
                                                     " kernels, not one and maybe a prepack"));
    }
    HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::KernelLibrary> library,
                            runtime::KernelLibrary::Load(artifact.shared_object));
    internal::MemoryByName memory = given_;
    internal::LoadedKernel prepack;
    if (artifact.kernels.size() == 2) {
      HEDDLE_ASSIGN_OR_RETURN(
          prepack, internal::LoadedKernel::LoadPrepack(*library, artifact.kernels[1], &memory));
      prepack.Call(pool_.host());
    }
    HEDDLE_ASSIGN_OR_RETURN(const internal::LoadedKernel kernel,
                            internal::LoadedKernel::Load(*library, artifact.kernels[0], memory));
    const ScopedPin pin(options_.cpus);
    const auto call = [&] { kernel.Call(pool_.host()); };
    Measurement result;
    HEDDLE_RETURN_IF_ERROR(Check(call, kernel.workspace(), codegen::ToleranceFor(artifact.winograd),
                                 &result.max_error));
    result.references_replaced = checker_.replaced();
    result.timing = runtime::TimeCalls(call, options_.timing);
    HEDDLE_RETURN_IF_ERROR(CheckPlausible(result.timing));
    return result;
  }

 private:
  // Two runs: the first finds what is not written or read before it is written (everything holds
  // NaNs), the second what survives from one call to the next. An integer that is not written holds
  // different values after the two, so it is wrong in one of them.
  absl::Status Check(const std::function<void()>& call, const AlignedBuffer& workspace,
                     const codegen::Tolerance& tolerance, double* max_error) {
    std::memset(workspace.data(), 0xff, workspace.size());
    for (size_t i = 0; i < outputs_.size(); ++i) Poison(*program_.outputs[i], outputs_[i], 0);
    call();
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const int64_t element = FindPoison(*program_.outputs[i], outputs_[i]);
      if (element < 0) continue;
      return absl::DataLossError(absl::StrCat(
          "wrong result: ", checker_.ElementText(static_cast<int>(i), element), " is not written"));
    }
    HEDDLE_RETURN_IF_ERROR(checker_.Check(outputs_, "", tolerance, max_error));
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (!ir::IsFloat(program_.outputs[i]->dtype)) Poison(*program_.outputs[i], outputs_[i], 1);
    }
    call();
    return checker_.Check(outputs_, " in the second run", tolerance, max_error);
  }

  absl::Status CheckPlausible(const runtime::Timing& timing) const {
    const double per_second = flops_ / (timing.MinNs() * 1e-9);
    if (per_second <= kImpossibleFlops * options_.threads) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("suspiciously fast: ", timing.MinNs(), " ns for ", flops_, " operations"));
  }

  const ir::Program program_;
  const MeasureOptions options_;
  const double flops_;
  runtime::ThreadPool pool_;
  std::vector<AlignedBuffer> memory_;
  internal::MemoryByName given_;  // of the workload's inputs and outputs
  std::vector<void*> outputs_;
  internal::ResultChecker checker_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WorkloadBench>> WorkloadBench::Create(
    std::string_view workload, const MeasureOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(ir::Program program, internal::ParseWorkload(workload));
  const uint64_t seed = std::stoull(tensor::WorkloadKey(std::string(workload)), nullptr, 16);
  auto bench = std::make_unique<Bench>(std::move(program), options);
  HEDDLE_RETURN_IF_ERROR(bench->Prepare(seed));
  return bench;
}

}  // namespace heddle
