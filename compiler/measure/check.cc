#include "compiler/measure/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/ir/visit.h"

namespace heddle::internal {
namespace {

using interpreter::OutputPoint;
using ir::DType;
using runtime::Tolerance;

// Limit on the elements at which the definition decides between a candidate and the kept outputs.
// They are spread over all elements that differ. Each costs a sum over the reduction's domain.
constexpr size_t kMaxDecided = 256;

double ReadElement(DType dtype, const void* data, int64_t i) {
  switch (dtype) {
    case DType::kBool:  // not normalised: a bool other than 0 and 1 is wrong
    case DType::kU8:
      return static_cast<const uint8_t*>(data)[i];
    case DType::kI8:
      return static_cast<const int8_t*>(data)[i];
    case DType::kI32:
      return static_cast<const int32_t*>(data)[i];
    case DType::kI16:
      return static_cast<const int16_t*>(data)[i];
    case DType::kU16:
      return static_cast<const uint16_t*>(data)[i];
    case DType::kU32:
      return static_cast<const uint32_t*>(data)[i];
    case DType::kI64:
      return static_cast<double>(static_cast<const int64_t*>(data)[i]);
    case DType::kU64:
      return static_cast<double>(static_cast<const uint64_t*>(data)[i]);
    case DType::kF32:
      return static_cast<const float*>(data)[i];
    case DType::kF64:
      return static_cast<const double*>(data)[i];
    case DType::kF16:
    case DType::kBF16:
      return ir::HalfValue(static_cast<const uint16_t*>(data)[i], dtype);
  }
  return 0;
}

// The elements in which two outputs differ.
std::vector<int64_t> Differences(const ir::Buffer& buffer, const void* a, const void* b,
                                 const Tolerance& tolerance) {
  std::vector<int64_t> elements;
  if (std::memcmp(a, b, buffer.SizeBytes()) == 0) return elements;
  const int64_t count = buffer.NumElements();
  if (ir::IsFloat(buffer.dtype)) {
    for (int64_t i = 0; i < count; ++i) {
      const double x = ReadElement(buffer.dtype, a, i), y = ReadElement(buffer.dtype, b, i);
      if (!Same(buffer.dtype, x, y, tolerance)) elements.push_back(i);
    }
  } else {
    const int64_t size = ir::SizeOf(buffer.dtype);
    const char *x = static_cast<const char*>(a), *y = static_cast<const char*>(b);
    for (int64_t i = 0; i < count; ++i) {
      if (std::memcmp(x + i * size, y + i * size, size) != 0) elements.push_back(i);
    }
  }
  return elements;
}

// Chooses `per_output` elements of each output: corners of the index space, at most 16, and random
// elements.
std::vector<OutputPoint> ChoosePoints(const ir::Program& program, int per_output,
                                      SplitMix& random) {
  std::vector<OutputPoint> points;
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

double Largest(const std::vector<double>& values) {
  double largest = 0;
  for (double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

}  // namespace

absl::Status ResultChecker::Prepare(const ir::Program& program,
                                    std::vector<interpreter::TensorRef> inputs, int points,
                                    SplitMix& random) {
  program_ = &program;
  inputs_ = std::move(inputs);
  points_ = ChoosePoints(program, points, random);
  HEDDLE_ASSIGN_OR_RETURN(expected_, interpreter::EvaluatePoints(program, inputs_, points_));
  return PrepareBetween(points, random);
}

absl::Status ResultChecker::PrepareBetween(int points, SplitMix& random) {
  between_ = 0;
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    ir::Program inner = *program_;
    inner.outputs.clear();
    ir::VisitStmt(program_->body, [&](const ir::Stmt& s) {
      const auto* block = ir::As<ir::Block>(s);
      if (block == nullptr || block->store.buffer->dtype != dtype) return true;
      const ir::BufferRef& buffer = block->store.buffer;
      const auto& outputs = program_->outputs;
      if (std::find(outputs.begin(), outputs.end(), buffer) == outputs.end())
        inner.outputs.push_back(buffer);
      return true;
    });
    if (inner.outputs.empty()) continue;
    HEDDLE_ASSIGN_OR_RETURN(
        const std::vector<double> values,
        interpreter::EvaluatePoints(inner, inputs_, ChoosePoints(inner, points, random)));
    between_ = std::max(between_, Largest(values) * Stored(dtype, {}).relative);
  }
  return absl::OkStatus();
}

Tolerance ResultChecker::Wider(Tolerance tolerance) const {
  tolerance.absolute += between_;
  return tolerance;
}

absl::Status ResultChecker::Check(const std::vector<void*>& outputs, const std::string& when,
                                  const Tolerance& tolerance, double* max_error) {
  HEDDLE_RETURN_IF_ERROR(CheckPoints(outputs, when, tolerance, max_error));
  return whole_.empty() ? Keep(outputs, tolerance) : CheckWhole(outputs, when, tolerance);
}

double ResultChecker::LargestExpected() const { return Largest(expected_); }

absl::Status ResultChecker::CheckPoints(const std::vector<void*>& outputs, const std::string& when,
                                        const Tolerance& tolerance, double* max_error) const {
  for (size_t k = 0; k < points_.size(); ++k) {
    const DType dtype = program_->outputs[points_[k].output]->dtype;
    const double found = ReadElement(dtype, outputs[points_[k].output], points_[k].element);
    if (!Same(dtype, found, expected_[k], Wider(tolerance))) {
      return Wrong(when, points_[k], found, expected_[k]);
    }
    if (std::isfinite(expected_[k])) {
      const double scale = std::max({std::fabs(found), std::fabs(expected_[k]), 1.0});
      *max_error = std::max(*max_error, std::fabs(found - expected_[k]) / scale);
    }
  }
  return absl::OkStatus();
}

absl::Status ResultChecker::CheckWhole(const std::vector<void*>& outputs, const std::string& when,
                                       const Tolerance& tolerance) {
  // Each of the two outputs may be off by its own tolerance.
  const Tolerance wider = runtime::Wider(tolerance, whole_tolerance_);
  const bool more_exact = tolerance.relative < whole_tolerance_.relative ||
                          tolerance.absolute < whole_tolerance_.absolute;
  std::vector<OutputPoint> doubtful;
  for (size_t output = 0; output < outputs.size(); ++output) {
    const std::vector<int64_t> elements = Differences(
        *program_->outputs[output], whole_[output].data(), outputs[output], Wider(wider));
    const size_t taken = std::min(elements.size(), kMaxDecided);
    for (size_t k = 0; k < taken; ++k) {
      doubtful.push_back({static_cast<int>(output), elements[k * elements.size() / taken]});
    }
  }
  if (doubtful.empty()) {
    // Keeps the more exact outputs, because they are the better reference.
    return more_exact ? Keep(outputs, tolerance) : absl::OkStatus();
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<double> expected,
                          interpreter::EvaluatePoints(*program_, inputs_, doubtful));
  absl::Status status;
  bool kept_is_wrong = false;
  for (size_t k = 0; k < doubtful.size(); ++k) {
    const auto [output, element] = doubtful[k];
    const DType dtype = program_->outputs[output]->dtype;
    const double found = ReadElement(dtype, outputs[output], element);
    const double kept = ReadElement(dtype, whole_[output].data(), element);
    if (status.ok() && !Same(dtype, found, expected[k], Wider(tolerance))) {
      status = Wrong(when, doubtful[k], found, expected[k]);
    }
    kept_is_wrong |= !Same(dtype, kept, expected[k], Wider(whole_tolerance_));
  }
  if (!status.ok()) {
    // Both are wrong. The next candidate that is right at the points provides new outputs to keep.
    if (kept_is_wrong) whole_.clear();
    return status;
  }
  if (!kept_is_wrong) return absl::OkStatus();
  ++replaced_;
  return Keep(outputs, tolerance);
}

absl::Status ResultChecker::Keep(const std::vector<void*>& outputs, const Tolerance& tolerance) {
  whole_.clear();
  std::vector<runtime::AlignedBuffer> copies;
  for (size_t output = 0; output < outputs.size(); ++output) {
    const ir::Buffer& buffer = *program_->outputs[output];
    copies.push_back(runtime::AlignedBuffer::Allocate(buffer.SizeBytes()));
    if (!copies.back().ok()) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for a copy of '", buffer.name,
                                                       "' (", buffer.SizeBytes(), " bytes)"));
    }
    std::memcpy(copies.back().data(), outputs[output], buffer.SizeBytes());
  }
  whole_ = std::move(copies);
  whole_tolerance_ = tolerance;
  return absl::OkStatus();
}

absl::Status ResultChecker::Wrong(const std::string& when, OutputPoint at, double found,
                                  double expected) const {
  return absl::DataLossError(absl::StrCat("wrong result", when, ": ",
                                          ElementText(at.output, at.element), " is ", found,
                                          ", expected ", expected));
}

std::string ResultChecker::ElementText(int output, int64_t element) const {
  const ir::Buffer& buffer = *program_->outputs[output];
  std::string index;
  for (size_t d = buffer.shape.size(); d-- > 0;) {
    index = absl::StrCat(element % buffer.shape[d], index.empty() ? "" : ",", index);
    element /= buffer.shape[d];
  }
  return absl::StrCat("output ", output, " ('", buffer.name, "'), element [", index, "]");
}

}  // namespace heddle::internal
