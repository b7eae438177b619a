#include "compiler/measure/data.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/splitmix.h"
#include "base/status_macros.h"
#include "compiler/interpreter/interpreter.h"
#include "compiler/ir/visit.h"
#include "compiler/measure/cache_age.h"
#include "compiler/measure/random_input.h"

namespace heddle::internal {
namespace {

using ir::DType;

// Quiet NaNs that no arithmetic produces. An output that holds one was not written.
constexpr uint32_t kPoison32 = 0x7fe5a5a5;
constexpr uint64_t kPoison64 = 0x7ffca5a5a5a5a5a5;
constexpr uint16_t kPoison16 = 0x7fe5;  // the same, as f16 and as bf16
// Integers and bools have no such value. Each of two runs fills them with another byte, so an
// element that is not written is wrong in one of the runs.
constexpr char kPoisonBytes[] = {'\x5a', '\x33'};
void Poison(const ir::Buffer& buffer, void* data, int run) {
  if (buffer.dtype == DType::kF32) {
    std::fill_n(static_cast<uint32_t*>(data), buffer.NumElements(), kPoison32);
  } else if (buffer.dtype == DType::kF64) {
    std::fill_n(static_cast<uint64_t*>(data), buffer.NumElements(), kPoison64);
  } else if (ir::IsHalf(buffer.dtype)) {
    std::fill_n(static_cast<uint16_t*>(data), buffer.NumElements(), kPoison16);
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

// The first float that still holds the poison; -1 if there is none.
int64_t FindPoison(const ir::Buffer& buffer, const void* data) {
  if (buffer.dtype == DType::kF32) return Find<uint32_t>(buffer, data, kPoison32);
  if (buffer.dtype == DType::kF64) return Find<uint64_t>(buffer, data, kPoison64);
  if (ir::IsHalf(buffer.dtype)) return Find<uint16_t>(buffer, data, kPoison16);
  return -1;
}

}  // namespace

MeasureData::MeasureData(ir::Program program)
    : program_(std::move(program)), flops_(ir::CountFlops(program_)) {}

absl::Status MeasureData::Prepare(uint64_t seed, int check_points) {
  SplitMix random(seed);
  std::vector<interpreter::TensorRef> inputs;
  for (const auto* list : {&program_.inputs, &program_.outputs}) {
    for (const ir::BufferRef& buffer : *list) {
      HEDDLE_ASSIGN_OR_RETURN(
          runtime::AlignedBuffer memory,
          AllocateFor(absl::StrCat("'", buffer->name, "'"), buffer->SizeBytes()));
      memory_[buffer->name] = {memory.data(), buffer->SizeBytes()};
      if (list == &program_.inputs) {
        FillInput(program_, *buffer, memory.data(), random);
        inputs.push_back({buffer->dtype, buffer->shape, memory.data()});
      } else {
        outputs_.push_back(memory.data());
      }
      owned_.push_back(std::move(memory));
    }
  }
  return checker_.Prepare(program_, std::move(inputs), check_points, random);
}

absl::Status MeasureData::Check(const std::function<absl::Status()>& call,
                                const runtime::Tolerance& tolerance, double* max_error) {
  for (size_t i = 0; i < outputs_.size(); ++i) Poison(*program_.outputs[i], outputs_[i], 0);
  HEDDLE_RETURN_IF_ERROR(call());
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
  HEDDLE_RETURN_IF_ERROR(call());
  return checker_.Check(outputs_, " in the second run", tolerance, max_error);
}

absl::Status MeasureData::CheckPlausible(const runtime::Timing& timing, double most) const {
  if (flops_ / (timing.MinNs() * 1e-9) <= most) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("suspiciously fast: ", timing.MinNs(), " ns for ", flops_, " operations"));
}

std::vector<Memory> MeasureData::Fresh() const {
  std::vector<Memory> fresh;
  if (WritesOverInput(program_)) fresh.push_back(memory_.at(program_.outputs[0]->name));
  for (const ir::BufferRef& buffer : program_.inputs) {
    if (!buffer->constant) fresh.push_back(memory_.at(buffer->name));
  }
  return fresh;
}

std::vector<Memory> WarmByAge(const MeasureData& data, const runtime::AlignedBuffer& workspace) {
  std::vector<Memory> warm;
  if (workspace.size() > 0) warm.push_back({workspace.data(), workspace.size()});
  for (const auto* list : {&data.program().outputs, &data.program().inputs}) {
    for (const ir::BufferRef& buffer : *list) {
      if (!buffer->constant) warm.push_back(data.memory().at(buffer->name));
    }
  }
  return warm;
}

}  // namespace heddle::internal
