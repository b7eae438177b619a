// The element types of ONNX that are narrower than any of ours: integers of 2 and 4 bits, and floats
// of 4 and 8 bits. They only store: the standard computes with them by casts. So values of these
// types are held in the narrowest type of ours that has all of them, from the import on: integers
// in i8 or u8, floats in f16. A cast to one rounds or wraps to its values. Internal to the importer.
#pragma once

#include <optional>
#include <string>

#include "compiler/onnx/node.h"

namespace heddle::graph {

// What a type is held in; nullopt for types that are not narrow.
std::optional<ir::DType> HeldIn(int onnx_type);

// The elements of a tensor of a narrow type, from the bytes in which ONNX stores them. Empty if
// these are too few or too many.
std::string Unpacked(const std::string& bytes, int onnx_type, int64_t count);

// The values of a narrow integer type; of i8, u8, i16 and u16 all.
struct IntRange {
  double low = 0, high = 0;
};
IntRange RangeOf(int onnx_type);

// Casts to any ONNX element type. `saturate` is for 8-bit floats: whether what lies outside becomes
// the largest number, or else an infinity or NaN.
ValueId CastToOnnx(NodeImport& n, ValueId v, int onnx_type, bool saturate);

}  // namespace heddle::graph
