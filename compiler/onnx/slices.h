// Slices of tensors, which many translations take. Internal to the importer.
#pragma once

#include <vector>

#include "compiler/onnx/node.h"

namespace heddle::graph {

// Elements [begin, end) of dimension `axis`.
inline ValueId Part(NodeImport& n, ValueId v, int axis, int64_t begin, int64_t end) {
  if (!n.ok()) return -1;
  Shape starts(n.Rank(v), 0), sizes = n.ShapeOf(v);
  starts[axis] = begin;
  sizes[axis] = end - begin;
  return sizes == n.ShapeOf(v)
             ? v
             : n.Emit(OpKind::kSlice, {v},
                      {{"starts", starts}, {"steps", Shape(n.Rank(v), 1)}, {"sizes", sizes}});
}

// Element `index` of dimension `axis`, without that dimension.
inline ValueId At(NodeImport& n, ValueId v, int axis, int64_t index) {
  const ValueId part = Part(n, v, axis, index, index + 1);
  if (!n.ok()) return -1;
  Shape shape = n.ShapeOf(v);
  shape.erase(shape.begin() + axis);
  return n.Reshape(part, shape);
}

inline ValueId Concat(NodeImport& n, const std::vector<ValueId>& parts, int64_t axis) {
  return parts.size() == 1 ? parts[0] : n.Emit(OpKind::kConcat, parts, {{"axis", axis}});
}

}  // namespace heddle::graph
