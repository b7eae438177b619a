// Constants as numbers: reading and making TensorData.
#pragma once

#include <vector>

#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// Elements of a constant, converted: integers exactly by ToInts, rounded above 2^53 by ToDoubles.
std::vector<int64_t> ToInts(const TensorData& data);
std::vector<double> ToDoubles(const TensorData& data);
// The one element of `data` as an attribute: an integer of integer types, a double of floats.
Attr ToAttr(const TensorData& data);
// A vector; values that `dtype`, an integer type, cannot hold wrap.
TensorData FromInts(const std::vector<int64_t>& values, ir::DType dtype = ir::DType::kI64);
// The one element of `element`, as often as `shape` wants.
TensorData Repeated(const TensorData& element, const std::vector<int64_t>& shape);
// Every element `value`, of any type.
TensorData Filled(TensorType type, double value);
// From doubles, rounded to `dtype` (f32, f64 or an integer type).
TensorData FromDoubles(const std::vector<double>& values, const std::vector<int64_t>& shape,
                       ir::DType dtype);

}  // namespace heddle::graph
