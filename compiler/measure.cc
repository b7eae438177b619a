#include "compiler/measure.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/interpreter.h"
#include "compiler/codegen/tolerance.h"
#include "compiler/compile_internal.h"
#include "compiler/ir/status_macros.h"
#include "compiler/ir/visit.h"
#include "compiler/runtime/aligned_buffer.h"
#include "compiler/runtime/kernel_library.h"
#include "compiler/runtime/thread_pool.h"
#include "compiler/tensor/expression.h"

namespace heddle {
namespace {

using ir::DType;
using runtime::AlignedBuffer;

// Quiet NaNs no arithmetic produces by itself: found in an output, they were left there.
constexpr uint32_t kPoison32 = 0x7fe5a5a5;
constexpr uint64_t kPoison64 = 0x7ffca5a5a5a5a5a5;
constexpr char kPoisonByte = '\x5a';  // of integers; no bool either
// Single-precision operations a second of one core that no CPU reaches (two 16-lane units at 6 GHz
// give 0.4e12), with room for work the optimiser may rightly hoist out of the loops.
constexpr double kImpossibleFlops = 4e12;

// The splitmix64 generator: any seed gives a good sequence, and it is the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

template <typename T>
void FillWith(const ir::Buffer& buffer, void* data, const std::function<T()>& next) {
  T* out = static_cast<T*>(data);
  const int64_t count = buffer.NumElements();
  for (int64_t i = 0; i < count; ++i) out[i] = next();
}

// Floats in [-1, 1). Integers from 1 to 4: nothing divides by zero, and an index stays near the
// front.
void FillInput(const ir::Buffer& buffer, void* data, Random& random) {
  const auto small = [&] { return static_cast<int>(random.Next() % 4) + 1; };
  const auto real = [&] { return 2 * random.Unit() - 1; };
  switch (buffer.dtype) {
    case DType::kBool:
      return FillWith<uint8_t>(buffer, data, [&] { return random.Next() & 1; });
    case DType::kI8:
    case DType::kU8:
      return FillWith<uint8_t>(buffer, data, small);
    case DType::kI32:
      return FillWith<int32_t>(buffer, data, small);
    case DType::kI64:
      return FillWith<int64_t>(buffer, data, small);
    case DType::kF32:
      return FillWith<float>(buffer, data, real);
    case DType::kF64:
      return FillWith<double>(buffer, data, real);
  }
}

void Poison(const ir::Buffer& buffer, void* data) {
  if (buffer.dtype == DType::kF32) {
    FillWith<uint32_t>(buffer, data, [] { return kPoison32; });
  } else if (buffer.dtype == DType::kF64) {
    FillWith<uint64_t>(buffer, data, [] { return kPoison64; });
  } else {
    std::memset(data, kPoisonByte, buffer.SizeBytes());
  }
}

template <typename T>
int64_t Find(const ir::Buffer& buffer, const void* data, T wanted) {
  const T* begin = static_cast<const T*>(data);
  const T* end = begin + buffer.NumElements();
  const T* found = std::find(begin, end, wanted);
  return found == end ? -1 : found - begin;
}

// The first element that still holds the poison, -1 if there is none or the type cannot tell.
int64_t FindPoison(const ir::Buffer& buffer, const void* data) {
  if (buffer.dtype == DType::kF32) return Find<uint32_t>(buffer, data, kPoison32);
  if (buffer.dtype == DType::kF64) return Find<uint64_t>(buffer, data, kPoison64);
  return -1;
}

double ReadElement(DType dtype, const void* data, int64_t i) {
  switch (dtype) {
    case DType::kBool:  // as it is: a bool that is neither 0 nor 1 is wrong
    case DType::kU8:
      return static_cast<const uint8_t*>(data)[i];
    case DType::kI8:
      return static_cast<const int8_t*>(data)[i];
    case DType::kI32:
      return static_cast<const int32_t*>(data)[i];
    case DType::kI64:
      return static_cast<double>(static_cast<const int64_t*>(data)[i]);
    case DType::kF32:
      return static_cast<const float*>(data)[i];
    case DType::kF64:
      return static_cast<const double*>(data)[i];
  }
  return 0;
}

std::string ElementText(const ir::Program& program, int output, int64_t element) {
  const ir::Buffer& buffer = *program.outputs[output];
  std::string index;
  for (size_t d = buffer.shape.size(); d-- > 0;) {
    index = absl::StrCat(element % buffer.shape[d], index.empty() ? "" : ",", index);
    element /= buffer.shape[d];
  }
  return absl::StrCat("output ", output, " ('", buffer.name, "'), element [", index, "]");
}

// Corners of the index space (at most 16 per output), then random elements until every output has
// `per_output`.
std::vector<codegen::OutputPoint> ChoosePoints(const ir::Program& program, int per_output,
                                               Random& random) {
  std::vector<codegen::OutputPoint> points;
  for (size_t output = 0; output < program.outputs.size(); ++output) {
    const ir::Buffer& buffer = *program.outputs[output];
    const int corners = 1 << std::min<size_t>(buffer.shape.size(), 4);
    std::vector<int64_t> elements;
    for (int corner = 0; corner < corners; ++corner) {
      int64_t element = 0;
      for (size_t d = 0; d < buffer.shape.size(); ++d) {
        element = element * buffer.shape[d] + ((corner >> (d % 4)) & 1) * (buffer.shape[d] - 1);
      }
      elements.push_back(element);
    }
    while (static_cast<int>(elements.size()) < per_output) {
      elements.push_back(static_cast<int64_t>(random.Next() % buffer.NumElements()));
    }
    std::sort(elements.begin(), elements.end());
    elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
    for (int64_t element : elements) points.push_back({static_cast<int>(output), element});
  }
  return points;
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
    Random random(seed);
    std::vector<codegen::TensorRef> inputs;
    for (const auto* list : {&program_.inputs, &program_.outputs}) {
      for (const ir::BufferRef& buffer : *list) {
        AlignedBuffer memory = AlignedBuffer::Allocate(buffer->SizeBytes());
        if (!memory.ok()) {
          return absl::ResourceExhaustedError(
              absl::StrCat("no memory for '", buffer->name, "' (", buffer->SizeBytes(), " bytes)"));
        }
        pointers_.push_back(memory.data());
        if (list == &program_.inputs) {
          FillInput(*buffer, memory.data(), random);
          inputs.push_back({buffer->dtype, buffer->shape, memory.data()});
        }
        memory_.push_back(std::move(memory));
      }
    }
    points_ = ChoosePoints(program_, options_.check_points, random);
    HEDDLE_ASSIGN_OR_RETURN(expected_, codegen::EvaluatePoints(program_, inputs, points_));
    return absl::OkStatus();
  }

  absl::StatusOr<Measurement> Run(const codegen::Artifact& artifact) override {
    if (artifact.kernels.size() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("artifact has ", artifact.kernels.size(), " kernels, not one"));
    }
    HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::KernelLibrary> library,
                            runtime::KernelLibrary::Load(artifact.shared_object));
    const absl::StatusOr<heddle_kernel> kernel = library->Find(artifact.kernels[0].symbol);
    if (!kernel.ok()) return absl::InvalidArgumentError(kernel.status().message());
    AlignedBuffer workspace = AlignedBuffer::Allocate(artifact.kernels[0].workspace_bytes);
    if (!workspace.ok()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "no memory for a workspace of ", artifact.kernels[0].workspace_bytes, " bytes"));
    }
    const ScopedPin pin(options_.cpus);
    const auto call = [&] { (*kernel)(pointers_.data(), workspace.data(), pool_.host()); };
    Measurement result;
    HEDDLE_RETURN_IF_ERROR(Check(call, workspace, &result.max_error));
    result.timing = runtime::TimeCalls(call, options_.timing);
    HEDDLE_RETURN_IF_ERROR(CheckPlausible(result.timing));
    return result;
  }

 private:
  void* Output(int index) const { return pointers_[program_.inputs.size() + index]; }

  // Two runs: the first finds what is not written or read before it is written (everything holds
  // NaNs), the second what survives from one call to the next.
  absl::Status Check(const std::function<void()>& call, const AlignedBuffer& workspace,
                     double* max_error) {
    std::memset(workspace.data(), 0xff, workspace.size());
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      Poison(*program_.outputs[i], Output(static_cast<int>(i)));
    }
    call();
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      const int output = static_cast<int>(i);
      const int64_t element = FindPoison(*program_.outputs[i], Output(output));
      if (element < 0) continue;
      return absl::DataLossError(absl::StrCat(
          "wrong result: ", ElementText(program_, output, element), " is not written"));
    }
    HEDDLE_RETURN_IF_ERROR(ComparePoints("", max_error));
    call();
    return ComparePoints(" in the second run", max_error);
  }

  absl::Status ComparePoints(const std::string& when, double* max_error) const {
    for (size_t k = 0; k < points_.size(); ++k) {
      const auto [output, element] = points_[k];
      const double found = ReadElement(program_.outputs[output]->dtype, Output(output), element);
      if (!codegen::Close(found, expected_[k])) {
        return absl::DataLossError(absl::StrCat("wrong result", when, ": ",
                                                ElementText(program_, output, element), " is ",
                                                found, ", expected ", expected_[k]));
      }
      if (std::isfinite(expected_[k])) {
        const double scale = std::max({std::fabs(found), std::fabs(expected_[k]), 1.0});
        *max_error = std::max(*max_error, std::fabs(found - expected_[k]) / scale);
      }
    }
    return absl::OkStatus();
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
  std::vector<void*> pointers_;  // inputs, then outputs
  std::vector<codegen::OutputPoint> points_;
  std::vector<double> expected_;  // by point
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
