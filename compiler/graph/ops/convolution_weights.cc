#include "compiler/graph/ops/convolution_weights.h"

#include <memory>
#include <string>

#include "base/status_macros.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
absl::StatusOr<ValueId> BlockWeights(GraphBuilder& out, ValueId w, bool in_blocks, bool out_blocks,
                                     int64_t block) {
  const std::string name = out.Name(w) + "/channels_blocked";
  const Shape& shape = out.Type(w).shape;
  // Dimensions of the split weights: O/b, b, I/b, b, k.. A side that is not blocked has one
  // dimension, O or I.
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
  HEDDLE_ASSIGN_OR_RETURN(w, out.Add(OpKind::kReshape, {w}, {{"shape", split}}, name));
  return out.Add(OpKind::kTranspose, {w}, {{"perm", perm}}, name);
}

absl::StatusOr<ValueId> BlockDepthwiseWeights(GraphBuilder& out, ValueId w, int64_t block) {
  const std::string name = out.Name(w) + "/channels_blocked";
  const Shape& shape = out.Type(w).shape;
  Shape split{shape[0] / block, block}, perm{0};
  split.insert(split.end(), shape.begin() + 2, shape.end());
  AppendRange(2, static_cast<int64_t>(split.size()), &perm);
  perm.push_back(1);
  HEDDLE_ASSIGN_OR_RETURN(w, out.Add(OpKind::kReshape, {w}, {{"shape", split}}, name));
  return out.Add(OpKind::kTranspose, {w}, {{"perm", perm}}, name);
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
  // The bytes of one output's weights.
  const size_t row = weights.bytes->size() / static_cast<size_t>(outputs);
  std::string bytes(weights.bytes->size() * static_cast<size_t>(merged), '\0');
  for (int64_t o = 0; o < outputs; ++o) {
    const size_t slot = static_cast<size_t>(o * merged + o / group_outputs % merged);
    bytes.replace(slot * row, row, *weights.bytes, static_cast<size_t>(o) * row, row);
  }
  out.bytes = SharedBytes::Of(std::move(bytes));
  return out;
}

}  // namespace heddle::graph
