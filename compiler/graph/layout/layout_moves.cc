#include "compiler/graph/layout/layout_moves.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "base/status_macros.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

// The permutation that moves the channels of a channels-first tensor to the end.
Shape ToLast(int64_t rank) {
  Shape dims(rank);
  std::iota(dims.begin(), dims.end(), 0);
  return ToLastOrder(dims);
}

Shape ToFirst(int64_t rank) {
  Shape perm(rank);
  for (int64_t d = 0; d < rank; ++d) perm[d] = LastAxis(d, rank);
  return perm;
}

absl::StatusOr<ValueId> Reshaped(GraphBuilder& out, ValueId x, const Shape& shape,
                                 const std::string& name) {
  return out.Add(OpKind::kReshape, {x}, {{"shape", shape}}, name);
}

absl::StatusOr<ValueId> Transposed(GraphBuilder& out, ValueId x, const Shape& perm,
                                   const std::string& name) {
  return out.Add(OpKind::kTranspose, {x}, {{"perm", perm}}, name);
}

// Moves a value to the blocked layout from one of the others.
absl::StatusOr<ValueId> ToBlocked(GraphBuilder& out, ValueId x, int64_t rank, Layout from,
                                  int64_t block, const std::string& name) {
  const bool first = from == Layout::kChannelsFirst;
  Shape split = out.Type(x).shape, perm{0};
  const int64_t axis = first ? 1 : rank - 1;  // of the channels
  split[axis] /= block;
  split.insert(split.begin() + axis + 1, block);
  perm.push_back(axis);
  first ? AppendRange(3, rank + 1, &perm) : AppendRange(1, rank - 1, &perm);
  perm.push_back(axis + 1);
  HEDDLE_ASSIGN_OR_RETURN(x, Reshaped(out, x, split, name));
  return Transposed(out, x, perm, name);
}

absl::StatusOr<ValueId> FromBlocked(GraphBuilder& out, ValueId x, const Shape& first_shape,
                                    Layout to, const std::string& name) {
  const int64_t rank = static_cast<int64_t>(first_shape.size());
  Shape perm{0};
  if (to == Layout::kChannelsFirst) {
    perm.insert(perm.end(), {1, rank});
    AppendRange(2, rank, &perm);
  } else {
    AppendRange(2, rank, &perm);
    perm.insert(perm.end(), {1, rank});
  }
  HEDDLE_ASSIGN_OR_RETURN(x, Transposed(out, x, perm, name));
  return Reshaped(out, x, to == Layout::kChannelsFirst ? first_shape : ToLastOrder(first_shape),
                  name);
}

// In the blocked layout, channels and spatial dimensions keep their positions.
int64_t MovedAxis(int64_t axis, int64_t rank, Layout layout) {
  const int64_t first = axis < 0 ? axis + rank : axis;
  return layout == Layout::kChannelsBlocked ? first : LastAxis(first, rank);
}

// Reorders one number per dimension. In the blocked layout, the number of the channels counts
// blocks, and a number for the elements in a block is appended.
Shape MovedDimensions(Shape values, AttrRole role, Layout layout, int64_t block) {
  if (layout == Layout::kChannelsLast) return ToLastOrder(values);
  if (role != AttrRole::kFactors) values[1] /= block;
  values.push_back(role == AttrRole::kOffsets ? 0 : role == AttrRole::kFactors ? 1 : block);
  return values;
}

}  // namespace

int64_t LastAxis(int64_t axis, int64_t rank) {
  return axis == 0 ? 0 : axis == 1 ? rank - 1 : axis - 1;
}

Shape ToLastOrder(const Shape& values) {
  const int64_t rank = static_cast<int64_t>(values.size());
  Shape out(values.size());
  for (int64_t d = 0; d < rank; ++d) out[LastAxis(d, rank)] = values[d];
  return out;
}

Attrs MovedAttrs(std::span<const AttrSpec> specs, const Attrs& attrs, int64_t rank, Layout layout,
                 int64_t block) {
  Attrs moved = attrs;
  const OpAttrs old(specs, attrs);
  for (const AttrSpec& spec : specs) {
    const auto set = [&](Attr value) { moved[std::string(spec.name)] = std::move(value); };
    switch (spec.role) {
      case AttrRole::kPlain:
        break;
      case AttrRole::kLayout:
        set(std::string(LayoutName(layout)));
        break;
      case AttrRole::kAxis:
        set(MovedAxis(old.Int(spec.name), rank, layout));
        break;
      case AttrRole::kAxes: {
        Shape axes = old.Ints(spec.name);
        for (int64_t& a : axes) a = MovedAxis(a, rank, layout);
        std::sort(axes.begin(), axes.end());
        set(axes);
        break;
      }
      case AttrRole::kOffsets:
      case AttrRole::kFactors:
      case AttrRole::kExtents:
        if (old.Has(spec.name)) set(MovedDimensions(old.Ints(spec.name), spec.role, layout, block));
        break;
    }
  }
  return moved;
}

absl::StatusOr<ValueId> MoveLayout(GraphBuilder& out, ValueId x, const TensorType& type,
                                   Layout from, Layout to, int64_t block, const std::string& name) {
  const int64_t rank = static_cast<int64_t>(type.shape.size());
  switch (to) {
    case Layout::kChannelsFirst: {
      const std::string moved = name + "/channels_first";
      if (from == Layout::kChannelsBlocked) return FromBlocked(out, x, type.shape, to, moved);
      return Transposed(out, x, ToFirst(rank), moved);
    }
    case Layout::kChannelsLast: {
      const std::string moved = name + "/channels_last";
      if (from == Layout::kChannelsBlocked) return FromBlocked(out, x, type.shape, to, moved);
      return Transposed(out, x, ToLast(rank), moved);
    }
    case Layout::kChannelsBlocked:
      break;
  }
  return ToBlocked(out, x, rank, from, block, name + "/channels_blocked");
}

}  // namespace heddle::graph
