// Reads and makes the elements of constants.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// The elements of a constant. ToInts is exact for integers (a u64 gives the int64_t of the same
// bits); ToDoubles rounds those above 2^53.
std::vector<int64_t> ToInts(const TensorData& data);
std::vector<double> ToDoubles(const TensorData& data);
// The first element of `data` as an attribute: an integer if its type is one, else a float.
Attr ToAttr(const TensorData& data);
// A vector of an integer type. Values that do not fit wrap.
TensorData FromInts(const std::vector<int64_t>& values, ir::DType dtype = ir::DType::kI64);
// A tensor of `shape` that repeats the single element of `element`.
TensorData Repeated(const TensorData& element, const Shape& shape);
// A tensor of any type whose elements are all `value`.
TensorData Filled(TensorType type, double value);
// A tensor of any type with these elements, rounded to `dtype`.
TensorData FromDoubles(const std::vector<double>& values, const Shape& shape, ir::DType dtype);

// A tensor with these elements, as many as `shape` has. Its type is theirs: f32, i32, i64, i8 or u8.
template <typename T>
TensorData FromElements(Shape shape, const std::vector<T>& elements) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, int32_t> ||
                std::is_same_v<T, int64_t> || std::is_same_v<T, int8_t> ||
                std::is_same_v<T, uint8_t>);
  constexpr ir::DType kType = std::is_same_v<T, float>     ? ir::DType::kF32
                              : std::is_same_v<T, int32_t> ? ir::DType::kI32
                              : std::is_same_v<T, int8_t>  ? ir::DType::kI8
                              : std::is_same_v<T, uint8_t> ? ir::DType::kU8
                                                           : ir::DType::kI64;
  std::string bytes(elements.size() * sizeof(T), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), elements.data(), bytes.size());
  return {{kType, std::move(shape)}, SharedBytes::Of(std::move(bytes))};
}

// The part of a tensor in which every index is below the extent of `shape`.
TensorData LeadingPart(const TensorData& data, const Shape& shape);

}  // namespace heddle::graph
