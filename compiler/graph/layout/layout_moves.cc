#include "compiler/graph/layout/layout_moves.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "base/status_macros.h"

namespace heddle::graph {
namespace {

// The permutation that puts the channels of a channels-first tensor last, and the one back.
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

// {begin, .., end - 1}
void AppendRange(int64_t begin, int64_t end, Shape* perm) {
  for (int64_t d = begin; d < end; ++d) perm->push_back(d);
}

absl::StatusOr<ValueId> Reshaped(GraphBuilder& out, ValueId x, const Shape& shape,
                                 const std::string& name) {
  return out.Add("reshape", {x}, {{"shape", shape}}, name);
}

absl::StatusOr<ValueId> Transposed(GraphBuilder& out, ValueId x, const Shape& perm,
                                   const std::string& name) {
  return out.Add("transpose", {x}, {{"perm", perm}}, name);
}

// From the layout that is not blocked.
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

absl::StatusOr<ValueId> BlockWeights(GraphBuilder& out, ValueId w, bool in_blocks, bool out_blocks,
                                     int64_t block) {
  const std::string name = out.Name(w) + "/channels_blocked";
  const Shape& shape = out.Type(w).shape;
  // Dimensions of the split weights: O/b, b, I/b, b, k.., or O or I as one.
  Shape split, outer, inner;
  const auto add = [&](int64_t channels, bool blocked) {
    if (blocked) {
      outer.push_back(static_cast<int64_t>(split.size()));
      split.push_back(channels / block);
    }
    inner.insert(inner.begin(), static_cast<int64_t>(split.size()));
    split.push_back(blocked ? block : channels);
  };
  add(shape[0], out_blocks);
  add(shape[1], in_blocks);
  const int64_t taps = static_cast<int64_t>(split.size());
  split.insert(split.end(), shape.begin() + 2, shape.end());
  Shape perm = outer;
  AppendRange(taps, static_cast<int64_t>(split.size()), &perm);
  perm.insert(perm.end(), inner.begin(), inner.end());
  HEDDLE_ASSIGN_OR_RETURN(w, Reshaped(out, w, split, name));
  return Transposed(out, w, perm, name);
}

absl::StatusOr<ValueId> BlockDepthwiseWeights(GraphBuilder& out, ValueId w, int64_t block) {
  const std::string name = out.Name(w) + "/channels_blocked";
  const Shape& shape = out.Type(w).shape;
  Shape split{shape[0] / block, block}, perm{0};
  split.insert(split.end(), shape.begin() + 2, shape.end());
  AppendRange(2, static_cast<int64_t>(split.size()), &perm);
  perm.push_back(1);
  HEDDLE_ASSIGN_OR_RETURN(w, Reshaped(out, w, split, name));
  return Transposed(out, w, perm, name);
}

int64_t MergedGroups(int64_t groups, int64_t group_inputs, int64_t group_outputs, int64_t lanes) {
  constexpr int64_t kMost = 4, kSmall = 4;
  if (group_inputs == group_outputs && group_outputs <= kSmall && lanes % group_outputs == 0 &&
      groups * group_outputs % lanes == 0)
    return 1;
  int64_t merged = 1;
  for (int64_t m = 2; m <= kMost && merged * group_outputs < lanes; ++m) {
    if (groups % m == 0) merged = m;
  }
  return merged;
}

TensorData MergeGroups(const TensorData& weights, int64_t groups, int64_t merged) {
  TensorData out{weights.type, nullptr};
  const int64_t outputs = weights.type.shape[0], group_outputs = outputs / groups;
  out.type.shape[1] *= merged;
  const size_t row = weights.bytes->size() / static_cast<size_t>(outputs);  // of one output
  std::string bytes(weights.bytes->size() * static_cast<size_t>(merged), '\0');
  for (int64_t o = 0; o < outputs; ++o) {
    const size_t slot = static_cast<size_t>(o * merged + o / group_outputs % merged);
    bytes.replace(slot * row, row, *weights.bytes, static_cast<size_t>(o) * row, row);
  }
  out.bytes = std::make_shared<const std::string>(std::move(bytes));
  return out;
}

}  // namespace heddle::graph
