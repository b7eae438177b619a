#include "compiler/graph/core/tensor_data.h"

#include <cstring>
#include <string>

#include "base/leading_part.h"
#include "compiler/ir/arithmetic.h"

namespace heddle::graph {

using ir::DType;

namespace {

template <typename T>
T At(const TensorData& data, int64_t i) {
  T v;
  std::memcpy(&v, data.bytes->data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return v;
}

double ElementAsDouble(const TensorData& d, int64_t i) {
  switch (d.type.dtype) {
    case DType::kBool:
    case DType::kU8:
      return At<uint8_t>(d, i);
    case DType::kI8:
      return At<int8_t>(d, i);
    case DType::kI32:
      return At<int32_t>(d, i);
    case DType::kI16:
      return At<int16_t>(d, i);
    case DType::kU16:
      return At<uint16_t>(d, i);
    case DType::kU32:
      return At<uint32_t>(d, i);
    case DType::kI64:
    case DType::kU64:
      return ir::IntToFloat(At<int64_t>(d, i), d.type.dtype, DType::kF64);
    case DType::kF32:
      return At<float>(d, i);
    case DType::kF64:
      return At<double>(d, i);
    case DType::kF16:
    case DType::kBF16:
      return ir::HalfValue(At<uint16_t>(d, i), d.type.dtype);
  }
  return 0;
}

template <typename T>
void AppendElement(std::string& bytes, T v) {
  bytes.append(reinterpret_cast<const char*>(&v), sizeof(T));
}

void AppendAs(std::string& bytes, DType dtype, double v) {
  switch (dtype) {
    case DType::kF32:
      return AppendElement(bytes, static_cast<float>(v));
    case DType::kF64:
      return AppendElement(bytes, v);
    case DType::kI64:
    case DType::kU64:
      return AppendElement(bytes, ir::FloatToInt(v, dtype));
    case DType::kI16:
      return AppendElement(bytes, static_cast<int16_t>(ir::FloatToInt(v, dtype)));
    case DType::kU16:
      return AppendElement(bytes, static_cast<uint16_t>(ir::FloatToInt(v, dtype)));
    case DType::kU32:
      return AppendElement(bytes, static_cast<uint32_t>(ir::FloatToInt(v, dtype)));
    case DType::kI32:
      return AppendElement(bytes, static_cast<int32_t>(ir::FloatToInt(v, dtype)));
    case DType::kI8:
      return AppendElement(bytes, static_cast<int8_t>(ir::FloatToInt(v, dtype)));
    case DType::kU8:
      return AppendElement(bytes, static_cast<uint8_t>(ir::FloatToInt(v, dtype)));
    case DType::kBool:
      return AppendElement(bytes, static_cast<uint8_t>(v != 0));
    case DType::kF16:
    case DType::kBF16:
      return AppendElement(bytes, ir::HalfBits(static_cast<float>(v), dtype));
  }
}

// The integers that a double cannot hold.
bool IsWide(DType dtype) { return dtype == DType::kI64 || dtype == DType::kU64; }

}  // namespace

std::vector<int64_t> ToInts(const TensorData& data) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < NumElements(data.type); ++i) {
    out.push_back(IsWide(data.type.dtype) ? At<int64_t>(data, i)
                                          : ir::FloatToInt(ElementAsDouble(data, i), DType::kI64));
  }
  return out;
}

Attr ToAttr(const TensorData& data) {
  if (ir::IsFloat(data.type.dtype)) return ElementAsDouble(data, 0);
  return ToInts(data)[0];
}

std::vector<double> ToDoubles(const TensorData& data) {
  std::vector<double> out;
  for (int64_t i = 0; i < NumElements(data.type); ++i) out.push_back(ElementAsDouble(data, i));
  return out;
}

TensorData FromInts(const std::vector<int64_t>& values, DType dtype) {
  std::string bytes;
  for (int64_t v : values) {
    if (IsWide(dtype))
      AppendElement(bytes, v);
    else  // a value wrapped to a narrower type is exact as a double
      AppendAs(bytes, dtype, static_cast<double>(ir::WrapInt(v, dtype)));
  }
  return {{dtype, {static_cast<int64_t>(values.size())}}, SharedBytes::Of(std::move(bytes))};
}

TensorData FromDoubles(const std::vector<double>& values, const Shape& shape, DType dtype) {
  std::string bytes;
  for (double v : values) AppendAs(bytes, dtype, v);
  return {{dtype, shape}, SharedBytes::Of(std::move(bytes))};
}

TensorData Repeated(const TensorData& element, const Shape& shape) {
  const TensorType type{element.type.dtype, shape};
  std::string bytes;
  bytes.reserve(element.bytes->size() * static_cast<size_t>(NumElements(type)));
  for (int64_t i = 0; i < NumElements(type); ++i) bytes += *element.bytes;
  return {type, SharedBytes::Of(std::move(bytes))};
}

TensorData Filled(TensorType type, double value) {
  return Repeated(FromDoubles({value}, {}, type.dtype), type.shape);
}

TensorData LeadingPart(const TensorData& data, const Shape& shape) {
  if (shape == data.type.shape) return data;
  const TensorType type{data.type.dtype, shape};
  const auto size = static_cast<size_t>(ir::SizeOf(type.dtype));
  std::string bytes(static_cast<size_t>(NumElements(type)) * size, '\0');
  CopyLeadingPart(data.bytes->data(), data.type.shape, shape, size, bytes.data());
  return {type, SharedBytes::Of(std::move(bytes))};
}

}  // namespace heddle::graph
