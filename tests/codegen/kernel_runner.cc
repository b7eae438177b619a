#include "tests/codegen/kernel_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/measure/compare.h"
#include "compiler/pass/lower.h"
#include "compiler/pass/overwrite.h"
#include "compiler/runtime/kernel_library.h"
#include "compiler/runtime/thread_pool.h"

namespace heddle::testing {

using ir::DType;

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kGuardBytes = 256;
constexpr std::byte kGuard{0xA5};

size_t AlignmentOffset(const std::byte* data) {
  return (kAlignment - reinterpret_cast<uintptr_t>(data) % kAlignment) % kAlignment;
}

template <typename T>
double Read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<double>(value);
}

template <typename T>
void Write(std::byte* at, double value) {
  T typed = static_cast<T>(value);
  std::memcpy(at, &typed, sizeof typed);
}

}  // namespace

HostTensor::HostTensor(const ir::Buffer& buffer)
    : dtype_(buffer.dtype),
      shape_(buffer.shape),
      elements_(buffer.NumElements()),
      bytes_(static_cast<size_t>(buffer.SizeBytes())),
      storage_(bytes_ + kAlignment + kGuardBytes, kGuard) {
  offset_ = AlignmentOffset(storage_.data());
}

double HostTensor::Get(int64_t element) const {
  const std::byte* at = data() + element * SizeOf(dtype_);
  switch (dtype_) {
    case DType::kBool:
      return Read<uint8_t>(at) != 0;
    case DType::kI8:
      return Read<int8_t>(at);
    case DType::kU8:
      return Read<uint8_t>(at);
    case DType::kI32:
      return Read<int32_t>(at);
    case DType::kI16:
      return Read<int16_t>(at);
    case DType::kU16:
      return Read<uint16_t>(at);
    case DType::kU32:
      return Read<uint32_t>(at);
    case DType::kU64:
      return Read<uint64_t>(at);
    case DType::kI64:
      return Read<int64_t>(at);
    case DType::kF32:
      return Read<float>(at);
    case DType::kF64:
      return Read<double>(at);
    case DType::kF16:
    case DType::kBF16: {
      uint16_t bits;
      std::memcpy(&bits, at, sizeof bits);
      return ir::HalfValue(bits, dtype_);
    }
  }
  return 0;
}

void HostTensor::Set(int64_t element, double value) {
  std::byte* at = data() + element * SizeOf(dtype_);
  switch (dtype_) {
    case DType::kBool:
      return Write<uint8_t>(at, value != 0);
    case DType::kI8:
      return Write<int8_t>(at, value);
    case DType::kU8:
      return Write<uint8_t>(at, value);
    case DType::kI32:
      return Write<int32_t>(at, value);
    case DType::kI16:
      return Write<int16_t>(at, value);
    case DType::kU16:
      return Write<uint16_t>(at, value);
    case DType::kU32:
      return Write<uint32_t>(at, value);
    case DType::kU64:
      return Write<uint64_t>(at, value);
    case DType::kI64:
      return Write<int64_t>(at, value);
    case DType::kF32:
      return Write<float>(at, value);
    case DType::kF64:
      return Write<double>(at, value);
    case DType::kF16:
    case DType::kBF16:
      return Write<uint16_t>(at, ir::HalfBits(static_cast<float>(value), dtype_));
  }
}

bool HostTensor::GuardIntact() const {
  const std::byte* end = data() + bytes_;
  return std::all_of(end, storage_.data() + storage_.size(),
                     [](std::byte b) { return b == kGuard; });
}

std::vector<HostTensor> MakeInputs(const ir::Program& program, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<HostTensor> inputs;
  for (const ir::BufferRef& buffer : program.inputs) {
    HostTensor& tensor = inputs.emplace_back(*buffer);
    auto uniform = [&](int lo, int hi) {
      return std::uniform_int_distribution<int>(lo, hi)(random);
    };
    for (int64_t i = 0; i < tensor.size(); ++i) {
      if (buffer->below > 0) {
        tensor.Set(i, uniform(0, static_cast<int>(std::min<int64_t>(buffer->below, 1 << 30)) - 1));
        continue;
      }
      switch (buffer->dtype) {
        case DType::kBool:
          tensor.Set(i, uniform(0, 1));
          break;
        case DType::kI8:
          tensor.Set(i, uniform(-128, 127));
          break;
        case DType::kU8:
          tensor.Set(i, uniform(0, 255));
          break;
        case DType::kU16:
        case DType::kU32:
        case DType::kU64:  // of both halves of the range, where signed numbers are negative
          tensor.Set(i, uniform(0, 1)
                            ? uniform(0, 40)
                            : std::ldexp(uniform(128, 255), 8 * (SizeOf(buffer->dtype) - 1)));
          break;
        case DType::kI16:
          tensor.Set(i, uniform(-300, 300));
          break;
        case DType::kI32:
        case DType::kI64:
          tensor.Set(i, uniform(-20, 20));
          break;
        default:
          tensor.Set(i, uniform(-64, 64) / 64.0);
          break;
      }
    }
  }
  return inputs;
}

std::vector<HostTensor> MakeOutputs(const ir::Program& program) {
  std::vector<HostTensor> outputs;
  for (const ir::BufferRef& buffer : program.outputs) outputs.emplace_back(*buffer);
  return outputs;
}

absl::Status RunInterpreter(const ir::Program& program, const std::vector<HostTensor>& inputs,
                            std::vector<HostTensor>& outputs,
                            const interpreter::InterpreterOptions& options) {
  std::vector<interpreter::TensorRef> refs;
  for (const HostTensor& tensor : inputs) refs.push_back(tensor.ref());
  for (const HostTensor& tensor : outputs) refs.push_back(tensor.ref());
  return interpreter::Interpret(program, refs, options);
}

absl::Status RunLlvm(const ir::Program& program, const std::vector<HostTensor>& inputs,
                     std::vector<HostTensor>& outputs, const LlvmRun& run) {
  HEDDLE_ASSIGN_OR_RETURN(ir::Program lowered, pass::Lower(program));
  HEDDLE_ASSIGN_OR_RETURN(Target target, ParseTarget(run.target));
  HEDDLE_ASSIGN_OR_RETURN(codegen::Artifact artifact,
                          codegen::CompileLlvm({lowered}, target, run.options));
  HEDDLE_ASSIGN_OR_RETURN(auto library, runtime::KernelLibrary::Load(artifact.shared_object));
  HEDDLE_ASSIGN_OR_RETURN(heddle_kernel kernel, library->Find(artifact.kernels[0].symbol));
  std::vector<void*> buffers;
  for (const HostTensor& tensor : inputs) buffers.push_back(tensor.ref().data);
  for (const HostTensor& tensor : outputs) buffers.push_back(tensor.ref().data);
  ir::Buffer scratch{
      "workspace", DType::kI8, {std::max<int64_t>(1, artifact.kernels[0].workspace_bytes)}, {}};
  HostTensor workspace(scratch);
  runtime::ThreadPool pool(run.workers);
  kernel(buffers.data(), workspace.data(), pool.host());
  bool intact = workspace.GuardIntact();
  for (const HostTensor& tensor : inputs) intact = intact && tensor.GuardIntact();
  for (const HostTensor& tensor : outputs) intact = intact && tensor.GuardIntact();
  if (!intact) return absl::InternalError("the kernel wrote past the end of a buffer");
  // Once more for every input that an output may take the place of.
  for (const auto& [output, input] : pass::FindOverwrites(lowered)) {
    const size_t o = static_cast<size_t>(output), i = static_cast<size_t>(input);
    const size_t bytes = static_cast<size_t>(lowered.outputs[o]->SizeBytes());
    HostTensor both(*lowered.outputs[o]);
    std::memcpy(both.data(), inputs[i].data(), bytes);
    std::vector<void*> places = buffers;
    places[i] = places[inputs.size() + o] = both.data();
    kernel(places.data(), workspace.data(), pool.host());
    if (std::memcmp(both.data(), outputs[o].data(), bytes) != 0) {
      return absl::InternalError(absl::StrCat("the kernel computes something else where ",
                                              lowered.outputs[o]->name, " lies in ",
                                              lowered.inputs[i]->name));
    }
  }
  return absl::OkStatus();
}

absl::Status Compare(const ir::Program& program, const std::vector<HostTensor>& expected,
                     const std::vector<HostTensor>& actual) {
  for (size_t k = 0; k < expected.size(); ++k) {
    const ir::Buffer& buffer = *program.outputs[k];
    if (!ir::IsFloat(buffer.dtype) &&
        std::memcmp(expected[k].data(), actual[k].data(), buffer.SizeBytes()) == 0)
      continue;
    for (int64_t i = 0; i < expected[k].size(); ++i) {
      double a = expected[k].Get(i), b = actual[k].Get(i);
      const int64_t size = SizeOf(buffer.dtype);
      const bool same =
          ir::IsFloat(buffer.dtype)
              ? Same(buffer.dtype, a, b)
              : std::memcmp(expected[k].data() + i * size, actual[k].data() + i * size, size) == 0;
      if (same) continue;
      return absl::InternalError(absl::StrCat(program.name, ": ", buffer.name, "[", i, "] is ", b,
                                              ", the interpreter says ", a));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckConformance(const ir::Program& program, const LlvmRun& run, uint64_t seed) {
  std::vector<HostTensor> inputs = MakeInputs(program, seed);
  std::vector<HostTensor> expected = MakeOutputs(program), actual = MakeOutputs(program);
  HEDDLE_RETURN_IF_ERROR(RunInterpreter(program, inputs, expected));
  HEDDLE_RETURN_IF_ERROR(RunLlvm(program, inputs, actual, run));
  return Compare(program, expected, actual);
}

}  // namespace heddle::testing
