#include "compiler/graph/passes/independent_rows.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_split.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

// Which dimension of a value counts the rows, from 0 on; or:
constexpr int kNone = -1;   // the value does not depend on the inputs
constexpr int kMixed = -2;  // some element depends on several rows, or it is not known

class Rows {
 public:
  explicit Rows(const Graph& graph)
      : graph_(graph), of_(graph.values.size(), kNone), alike_(graph.values.size(), kNone) {}

  bool Independent() {
    if (graph_.inputs.empty() || !graph_.lengths.empty()) return false;
    for (ValueId v : graph_.inputs) {
      if (ShapeOf(v).empty()) return false;
      of_[v] = 0;
    }
    rows_ = ShapeOf(graph_.inputs[0])[0];
    const auto has_rows = [&](ValueId v) { return of_[v] == 0 && ShapeOf(v)[0] == rows_; };
    if (rows_ < 1 || !std::all_of(graph_.inputs.begin(), graph_.inputs.end(), has_rows))
      return false;
    for (const Node& node : graph_.nodes) {
      const int axis = Checked(node);
      for (ValueId v : node.outputs) of_[v] = axis;
    }
    return std::all_of(graph_.outputs.begin(), graph_.outputs.end(), has_rows);
  }

 private:
  const Shape& ShapeOf(ValueId v) const { return graph_.values[v].type.shape; }
  int Rank(ValueId v) const { return static_cast<int>(ShapeOf(v).size()); }

  int Checked(const Node& node) {
    bool any = false;
    for (ValueId v : node.inputs) {
      if (of_[v] == kMixed) return kMixed;
      any |= of_[v] != kNone;
    }
    if (!any) return Filled(node);
    return Fitting(node, AxisOf(node));
  }

  // The axis, if the result has a row there.
  int Fitting(const Node& node, int axis) const {
    const Shape& result = ShapeOf(node.outputs[0]);
    const bool fits = axis >= 0 && axis < static_cast<int>(result.size()) && result[axis] == rows_;
    return fits ? axis : kMixed;
  }

  // Of a node without an operand that depends on inputs. Such a value may be filled for as many rows as there are, all alike: it begins as an
  // Expand. What is made of it row by row has equal rows, too, by the same rules as for the inputs. Anything else, such as their sum,
  // depends on the number of rows.
  int Filled(const Node& node) {
    const bool of_filled = std::any_of(node.inputs.begin(), node.inputs.end(),
                                       [&](ValueId v) { return alike_[v] != kNone; });
    int axis = kNone;
    if (of_filled) {
      of_.swap(alike_);
      axis = Fitting(node, AxisOf(node));
      of_.swap(alike_);
    } else if (node.kind == OpKind::kExpand) {
      axis = FilledBy(ShapeOf(node.inputs[0]), ShapeOf(node.outputs[0]));
    }
    if (axis == kMixed) return kMixed;
    for (ValueId v : node.outputs) alike_[v] = axis;
    return kNone;
  }

  // The dimension that counts rows after an Expand, if it had one element there. Of two such dimensions it is not known which.
  int FilledBy(const Shape& from, const Shape& to) const {
    const size_t more = to.size() - from.size();
    int axis = kNone;
    for (size_t d = 0; d < to.size(); ++d) {
      if (to[d] != rows_ || (d >= more && from[d - more] != 1)) continue;
      axis = axis == kNone ? static_cast<int>(d) : kMixed;
    }
    return axis;
  }

  // Whether all parts of a value along a dimension are equal.
  bool IsUniform(ValueId v, int axis) const {
    const Shape& shape = ShapeOf(v);
    if (axis < 0 || shape[axis] == 1 || alike_[v] == axis) return true;
    const auto known = graph_.constants.find(v);
    if (known == graph_.constants.end()) return false;
    const std::string_view bytes(known->second.bytes->data(), known->second.bytes->size());
    size_t part = static_cast<size_t>(ir::SizeOf(known->second.type.dtype));
    for (size_t d = static_cast<size_t>(axis) + 1; d < shape.size(); ++d)
      part *= static_cast<size_t>(shape[d]);
    const size_t block = part * static_cast<size_t>(shape[axis]);
    for (size_t begin = 0; begin < bytes.size(); begin += block) {
      const std::string_view of_block = bytes.substr(begin, block);
      // Equal to itself moved by a part.
      if (of_block.substr(part) != of_block.substr(0, block - part)) return false;
    }
    return true;
  }

  // For operands that are aligned at the right with a result of this rank, without their last `skip` dimensions: the
  // dimension of the result that counts the rows.
  int Aligned(const std::vector<ValueId>& operands, int rank, int skip) const {
    int axis = kNone;
    for (ValueId v : operands) {
      if (of_[v] == kNone) continue;
      const int at = of_[v] + rank - Rank(v);
      if (of_[v] >= Rank(v) - skip || (axis != kNone && axis != at)) return kMixed;
      axis = at;
    }
    for (ValueId v : operands) {
      const int at = axis - (rank - Rank(v));
      if (of_[v] == kNone && alike_[v] != kNone && alike_[v] != at) return kMixed;
      if (of_[v] == kNone && at >= 0 && at < Rank(v) - skip && !IsUniform(v, at)) return kMixed;
    }
    return axis;
  }

  // Of a node with an operand that depends on rows. What does not fit the result is refused by the caller.
  int AxisOf(const Node& node) const {
    const OpAttrs attrs = AttrsOf(node);
    const OpDef& def = Def(node.kind);
    const ValueId x = node.inputs[0];
    const int at = of_[x], rank = Rank(node.outputs[0]);
    if (node.kind == OpKind::kBatchNorm)
      return Others(node) || attrs.Int("axis") == at ? kMixed : at;
    if (def.elementwise) return Aligned(node.inputs, rank, 0);
    if (node.kind == OpKind::kMatmul) return Matmul(node.inputs[0], node.inputs[1], rank);
    if (node.kind == OpKind::kEinsum)
      return Einsum(node, attrs.Text("terms"), attrs.Text("result"));
    if (node.kind == OpKind::kGatherElements)
      return GatherElements(x, node.inputs[1], attrs.Int("axis"));
    if (node.kind == OpKind::kGather) return Gather(x, node.inputs[1], attrs.Int("axis"));
    if (node.kind == OpKind::kConcat) {
      const auto axis = NormalizeAxis(attrs.Int("axis"), rank);
      const int aligned = Aligned(node.inputs, rank, 0);
      return axis.ok() && *axis != aligned ? aligned : kMixed;
    }
    if (at == kNone || Others(node)) return kMixed;
    if (def.family == OpFamily::kReduction) {
      const auto axes = NormalizeAxes(attrs.Ints("axes"), Rank(x));
      if (!axes.ok() || std::count(axes->begin(), axes->end(), at) > 0) return kMixed;
      const auto dropped =
          std::count_if(axes->begin(), axes->end(), [&](int64_t d) { return d < at; });
      return attrs.Flag("keepdims") ? at : at - static_cast<int>(dropped);
    }
    switch (node.kind) {
      case OpKind::kSoftmax:
      case OpKind::kLogSoftmax:
      case OpKind::kHardmax:
      case OpKind::kNormalize: {
        const auto axes = NormalizeAxes(attrs.Ints("axes"), Rank(x));
        return axes.ok() && std::count(axes->begin(), axes->end(), at) == 0 ? at : kMixed;
      }
      case OpKind::kCumSum:
      case OpKind::kCumProd:
      case OpKind::kTopK: {
        const auto axis = NormalizeAxis(attrs.Int("axis"), Rank(x));
        return axis.ok() && *axis != at ? at : kMixed;
      }
      case OpKind::kOneHot: {
        const auto axis = NormalizeAxis(attrs.Int("axis"), rank);
        return axis.ok() ? at + (*axis <= at ? 1 : 0) : kMixed;
      }
      case OpKind::kReshape:
        return Reshape(ShapeOf(x), at, ShapeOf(node.outputs[0]));
      case OpKind::kTranspose: {
        const Shape& perm = attrs.Ints("perm");
        return static_cast<int>(std::find(perm.begin(), perm.end(), at) - perm.begin());
      }
      case OpKind::kSlice:
        return attrs.Ints("starts")[at] == 0 && attrs.Ints("steps")[at] == 1 ? at : kMixed;
      case OpKind::kPad:
        return attrs.Ints("begin")[at] == 0 && attrs.Ints("end")[at] == 0 ? at : kMixed;
      case OpKind::kTile:
        return at;  // the result has the same number of rows
      case OpKind::kExpand:
        return at + rank - Rank(x);
      case OpKind::kForestWalk:
      case OpKind::kForestSelect:
        return at == 1 ? 2 : kMixed;  // x is [columns, records], and the result ends with records
      default:
        return kMixed;
    }
  }

  // Whether an operand behind the first one depends on rows.
  bool Others(const Node& node) const {
    return std::any_of(node.inputs.begin() + 1, node.inputs.end(),
                       [&](ValueId v) { return of_[v] != kNone; });
  }

  int Matmul(ValueId x, ValueId y, int rank) const {
    const int of_x = of_[x], of_y = of_[y];
    if (of_x == Rank(x) - 1 || of_y == Rank(y) - 2) return kMixed;  // the dimension of the sum
    if (of_y == kNone && of_x == Rank(x) - 2) return rank - 2;
    if (of_x == kNone && of_y == Rank(y) - 1) return rank - 1;
    return Aligned({x, y}, rank, 2);
  }

  // Rows are independent if one label counts them, in every operand that has it, and the result has that label.
  int Einsum(const Node& node, const std::string& terms, const std::string& result) const {
    char label = 0;
    const std::vector<std::string> labels = absl::StrSplit(terms, ',');
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (of_[node.inputs[i]] == kNone) continue;
      const char of_rows = labels[i][static_cast<size_t>(of_[node.inputs[i]])];
      if (label != 0 && label != of_rows) return kMixed;
      label = of_rows;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int at = of_[node.inputs[i]];
      for (size_t d = 0; d < labels[i].size(); ++d) {
        if (labels[i][d] != label || static_cast<int>(d) == at) continue;
        if (at != kNone || !IsUniform(node.inputs[i], static_cast<int>(d))) return kMixed;
      }
    }
    const size_t at = result.find(label);
    return at == std::string::npos ? kMixed : static_cast<int>(at);
  }

  // Each row picks from itself, or all pick from equal rows.
  int GatherElements(ValueId x, ValueId places, int64_t attribute) const {
    const auto axis = NormalizeAxis(attribute, Rank(x));
    const int at = of_[places];
    if (!axis.ok() || at == kNone || static_cast<int>(*axis) == at) return kMixed;
    return of_[x] == at || (of_[x] == kNone && IsUniform(x, at)) ? at : kMixed;
  }

  // Either rows of data at the same places, or what a table has at the places of each row.
  int Gather(ValueId x, ValueId places, int64_t attribute) const {
    const auto axis = NormalizeAxis(attribute, Rank(x));
    if (!axis.ok()) return kMixed;
    const int gathered = static_cast<int>(*axis);
    if (of_[x] == kNone) return gathered + of_[places];
    if (of_[places] != kNone || of_[x] == gathered) return kMixed;
    return of_[x] + (of_[x] > gathered ? Rank(places) - 1 : 0);
  }

  // The dimension of the result that has the same extent and the same number of elements before it. There may be several if there
  // is one row; then the first or last dimension stays the first or last one.
  static int Reshape(const Shape& from, int at, const Shape& to) {
    if (at > 0 && at + 1 == static_cast<int>(from.size()) && !to.empty() && to.back() == from[at])
      return static_cast<int>(to.size()) - 1;
    int64_t before = 1, so_far = 1;
    for (int d = 0; d < at; ++d) before *= from[d];
    for (size_t d = 0; d < to.size() && so_far <= before; so_far *= to[d++]) {
      if (so_far == before && to[d] == from[at]) return static_cast<int>(d);
    }
    return kMixed;
  }

  const Graph& graph_;
  std::vector<int> of_;  // by value
  std::vector<int>
      alike_;  // by value that depends on no input: the dimension of filled rows (Filled), kNone if it has none
  int64_t rows_ = 0;
};

}  // namespace

bool HasIndependentRows(const Graph& graph) { return Rows(graph).Independent(); }

}  // namespace heddle::graph
