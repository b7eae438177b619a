// Constants as numbers: reading and making TensorData.
#pragma once

#include <vector>

#include "compiler/graph/graph.h"

namespace heddle::graph {

// Elements of a constant, converted.
std::vector<int64_t> ToInts(const TensorData& data);
std::vector<double> ToDoubles(const TensorData& data);
TensorData FromInts(const std::vector<int64_t>& values, ir::DType dtype = ir::DType::kI64);
// Every element `value`, of any type.
TensorData Filled(TensorType type, double value);
// From doubles, rounded to `dtype` (f32, f64 or an integer type).
TensorData FromDoubles(const std::vector<double>& values, const std::vector<int64_t>& shape,
                       ir::DType dtype);

}  // namespace heddle::graph
