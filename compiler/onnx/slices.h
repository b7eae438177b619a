// Slices of tensors, which many translations take. Internal to the importer.
#pragma once

#include <algorithm>
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

// The parts one after the other. Many parts become a tree, because a kernel that reads hundreds of
// tensors takes long to compile.
inline ValueId Concat(NodeImport& n, std::vector<ValueId> parts, int64_t axis) {
  constexpr size_t kMostParts = 32;
  while (parts.size() > 1 && n.ok()) {
    std::vector<ValueId> joined;
    for (size_t i = 0; i < parts.size(); i += kMostParts) {
      const std::vector<ValueId> some(parts.begin() + i,
                                      parts.begin() + std::min(i + kMostParts, parts.size()));
      joined.push_back(some.size() == 1 ? some[0]
                                        : n.Emit(OpKind::kConcat, some, {{"axis", axis}}));
    }
    parts = std::move(joined);
  }
  return n.ok() ? parts[0] : -1;
}

}  // namespace heddle::graph
