#include "tests/graph/random_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/passes/evaluate.h"

namespace heddle::graph {
namespace {

class Generator {
 public:
  explicit Generator(TestRng& rng) : rng_(rng) {}

  Graph Run(int nodes) {
    const int64_t channels = 2 * Pick(1, 3);
    values_.push_back(
        b_.Input("x", {ir::DType::kF32, {Pick(1, 2), channels, Pick(4, 7), Pick(4, 7)}}));
    while (static_cast<int>(made_.size()) < nodes) Step();
    std::vector<std::pair<std::string, ValueId>> outputs{{"out", made_.back()}};
    if (Pick(0, 1))
      outputs.emplace_back(
          "side", made_[static_cast<size_t>(Pick(0, static_cast<int64_t>(made_.size()) - 1))]);
    return *b_.Build(outputs);  // dead nodes and all
  }

 private:
  int64_t Pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng_() % static_cast<uint64_t>(high - low + 1));
  }
  const Shape& ShapeOf(ValueId v) { return b_.Type(v).shape; }

  // Mostly the newest values, so that chains form; any value sometimes, so that it forks and joins.
  ValueId Any() {
    const auto last = static_cast<int64_t>(values_.size()) - 1;
    return values_[static_cast<size_t>(Pick(0, 2) ? Pick(std::max<int64_t>(0, last - 1), last)
                                                  : Pick(0, last))];
  }

  ValueId Weights(Shape shape, double low = -1, double high = 1) {
    std::vector<double> values;
    for (int64_t i = 0; i < Product(shape); ++i)
      values.push_back(low + (high - low) * static_cast<double>(rng_() >> 11) * 0x1p-53);
    return b_.Constant("w", FromDoubles(values, shape, ir::DType::kF32));
  }

  void Try(OpKind kind, std::vector<ValueId> inputs, Attrs attrs = {}) {
    auto v = b_.Add(kind, std::move(inputs), std::move(attrs), NameOf(kind));
    // What does not fit is refused, and what grows too large is not used.
    if (!v.ok() || NumElements(b_.Type(*v)) > 2000) return;
    values_.push_back(*v);
    made_.push_back(*v);
  }

  void Conv(ValueId x) {
    const Shape& s = ShapeOf(x);
    const int64_t c = s[1], kernel = Pick(1, 3), kind = Pick(0, 2);
    const int64_t groups = kind == 0 ? 1 : kind == 1 ? c : (c % 2 == 0 ? 2 : 1);
    const int64_t out = kind == 1 ? c * Pick(1, 2) : groups * Pick(1, 3);
    // The addend has the channels of the result, or widens a single one.
    const int64_t added = out == 1 ? Pick(1, 3) : out;
    Try(OpKind::kConv2d, {x, Weights({out, c / groups, kernel, kernel}, -0.5, 0.5)},
        {{"strides", Shape{Pick(1, 2), Pick(1, 2)}},
         {"pads", Shape{Pick(0, 1), Pick(0, 1), Pick(0, 1), Pick(0, 1)}},
         {"dilations", Shape{Pick(1, 2), 1}},
         {"groups", groups}});
    if (Pick(0, 1))
      Try(OpKind::kAdd, {made_.empty() ? x : made_.back(), Weights({1, added, 1, 1})});
    if (Pick(0, 1)) Norm(values_.back());
  }

  void Norm(ValueId x) {
    if (ShapeOf(x).size() < 2) return;
    const Shape c{ShapeOf(x)[1]};
    Try(OpKind::kBatchNorm, {x, Weights(c, 0.5, 1.5), Weights(c), Weights(c), Weights(c, 0.5, 1.5)},
        {{"axis", int64_t{1}}});
  }

  void MatMul(ValueId x) {
    const int64_t columns = Pick(1, 4), added = columns == 1 ? Pick(1, 3) : columns;
    Try(OpKind::kMatmul, {x, Weights({ShapeOf(x).back(), columns})});
    if (Pick(0, 1)) Try(OpKind::kAdd, {made_.empty() ? x : made_.back(), Weights({added})});
    if (Pick(0, 1)) Norm(values_.back());
  }

  void Pool(ValueId x) {
    Attrs attrs{{"kernel", Shape{2, 2}},
                {"strides", Shape{Pick(1, 2), Pick(1, 2)}},
                {"pads", Shape{Pick(0, 1), 0, Pick(0, 1), 0}},
                {"ceil_mode", Pick(0, 1)}};
    const int64_t count_padding = Pick(0, 1);
    if (Pick(0, 1) == 0) return Try(OpKind::kMaxPool, {x}, attrs);
    attrs["count_include_pad"] = count_padding;
    Try(OpKind::kAvgPool, {x}, attrs);
  }

  void Elementwise(ValueId x) {
    const OpKind unary[] = {OpKind::kRelu, OpKind::kSigmoid,  OpKind::kAbs,
                            OpKind::kNeg,  OpKind::kIdentity, OpKind::kTanh};
    const OpKind binary[] = {OpKind::kAdd, OpKind::kMul, OpKind::kSub, OpKind::kMax};
    const int64_t kind = Pick(0, 4);
    if (kind <= 1) return Try(unary[Pick(0, 5)], {x});
    if (kind == 2) return Try(OpKind::kClip, {x}, {{"min", -0.5}, {"max", 0.5}});
    if (kind == 3) return Try(binary[Pick(0, 3)], {x, Any()});
    // A constant that broadcasts: some dimensions one, leading ones missing.
    Shape shape = ShapeOf(x);
    for (int64_t& d : shape) d = Pick(0, 1) ? d : 1;
    shape.erase(shape.begin(), shape.begin() + Pick(0, static_cast<int64_t>(shape.size())));
    Try(binary[Pick(0, 3)], {x, Weights(shape)});
  }

  void Reduce(ValueId x) {
    const OpKind ops[] = {OpKind::kReduceMean, OpKind::kReduceSum, OpKind::kReduceMax};
    Shape axes;
    for (int64_t d = 0; d < static_cast<int64_t>(ShapeOf(x).size()); ++d) {
      if (Pick(0, 1)) axes.push_back(d);
    }
    Try(ops[Pick(0, 2)], {x}, {{"axes", axes}, {"keepdims", Pick(0, 3) ? int64_t{1} : int64_t{0}}});
  }

  void Move(ValueId x) {
    const Shape s = ShapeOf(x);
    const int64_t rank = static_cast<int64_t>(s.size());
    Shape perm(s.size());
    for (size_t d = 0; d < perm.size(); ++d) perm[d] = static_cast<int64_t>(d);
    std::shuffle(perm.begin(), perm.end(), rng_);
    switch (Pick(0, 7)) {
      case 0:
        return Try(OpKind::kTranspose, {x}, {{"perm", perm}});
      case 1:
        return Try(OpKind::kReshape, {x},
                   {{"shape", Shape{s.empty() ? 1 : s[0], s.empty() ? 1 : Product(s) / s[0]}}});
      case 2:
        return Try(OpKind::kReshape, {x}, {{"shape", Shape{1, Product(s), 1, 1}}});
      case 3:
        return Try(OpKind::kConcat, {x, Any(), x},
                   {{"axis", Pick(0, std::max<int64_t>(rank - 1, 0))}});
      case 4:
        return Try(OpKind::kPad, {x},
                   {{"begin", Shape(s.size(), Pick(0, 1))}, {"end", Shape(s.size(), Pick(0, 1))}});
      case 5: {
        Shape starts(s.size(), 0), sizes = s;
        if (rank > 0 && s.back() > 1) starts.back() = 1, sizes.back() -= 1;
        return Try(OpKind::kSlice, {x},
                   {{"starts", starts}, {"steps", Shape(s.size(), 1)}, {"sizes", sizes}});
      }
      case 6:
        return Try(OpKind::kGather, {x, b_.Constant("i", FromInts({0, -1}))},
                   {{"axis", Pick(0, std::max<int64_t>(rank - 1, 0))}});
      default:
        return Try(OpKind::kTile, {x}, {{"repeats", Shape(s.size(), Pick(1, 2))}});
    }
  }

  void Step() {
    const ValueId x = Any();
    const bool image = ShapeOf(x).size() == 4;
    switch (Pick(0, 9)) {
      case 0:
      case 1:
      case 2:
        return image ? Conv(x) : Elementwise(x);
      case 3:
        return image ? Pool(x) : Elementwise(x);
      case 4:
        return Norm(x);
      case 5:
        return Reduce(x);
      case 6:
        return Move(x);
      case 7:
        if (ShapeOf(x).empty()) return Elementwise(x);
        return Try(Pick(0, 1) ? OpKind::kSoftmax : OpKind::kNormalize, {x},
                   {{"axes", Shape{Pick(0, static_cast<int64_t>(ShapeOf(x).size()) - 1)}}});
      case 8:
        if (ShapeOf(x).size() < 2) return Elementwise(x);
        return MatMul(x);
      default:
        return Elementwise(x);
    }
  }

  TestRng& rng_;
  GraphBuilder b_;
  std::vector<ValueId> values_, made_;
};

}  // namespace

Graph RandomGraph(TestRng& rng, int nodes) { return Generator(rng).Run(nodes); }

TensorData RandomTensor(TestRng& rng, const TensorType& type) {
  std::vector<double> values;
  for (int64_t i = 0; i < NumElements(type); ++i)
    values.push_back(static_cast<double>(rng() >> 11) * 0x1p-52 - 1);
  return FromDoubles(values, type.shape, type.dtype);
}

std::vector<TensorData> RandomInputs(TestRng& rng, const Graph& graph) {
  std::vector<TensorData> inputs;
  for (ValueId v : graph.inputs) inputs.push_back(RandomTensor(rng, graph.values[v].type));
  return inputs;
}

double Difference(const std::vector<TensorData>& a, const std::vector<TensorData>& b) {
  constexpr double kDifferent = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kDifferent;
  double worst = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    if (a[k].type != b[k].type) return kDifferent;
    const std::vector<double> x = ToDoubles(a[k]), y = ToDoubles(b[k]);
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i]) != std::isnan(y[i])) return kDifferent;
      if (std::isnan(x[i]) || x[i] == y[i]) continue;
      worst = std::max(worst,
                       std::fabs(x[i] - y[i]) / (1 + std::max(std::fabs(x[i]), std::fabs(y[i]))));
    }
  }
  return worst;
}

absl::StatusOr<std::vector<TensorData>> EvaluateFused(const FusedGraph& fused,
                                                      const std::vector<TensorData>& inputs) {
  std::map<ValueId, TensorData> values = fused.graph.constants;
  for (size_t i = 0; i < inputs.size(); ++i) values[fused.graph.inputs[i]] = inputs[i];
  // A view is the bytes of another value.
  const auto has = [&](ValueId v) { return values.count(fused.MemoryOf(v)) != 0; };
  const auto get = [&](ValueId v) {
    return TensorData{fused.graph.values[v].type, values.at(fused.MemoryOf(v)).bytes};
  };
  for (const Group& group : fused.groups) {
    std::vector<TensorData> operands;
    for (ValueId v : group.inputs) {
      if (!has(v))
        return absl::NotFoundError(group.label + " reads a value that is not computed yet");
      operands.push_back(get(v));
    }
    auto program = GroupExpression(fused, group);
    if (!program.ok()) return program.status();
    auto results = EvaluateProgram(*program, operands);
    if (!results.ok()) return results.status();
    for (size_t i = 0; i < group.outputs.size(); ++i) values[group.outputs[i]] = (*results)[i];
  }
  std::vector<TensorData> outputs;
  for (ValueId v : fused.graph.outputs) {
    if (!has(v)) return absl::NotFoundError("an output is not computed");
    outputs.push_back(get(v));
  }
  return outputs;
}

int CountOps(const Graph& graph, OpKind kind) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [&](const Node& node) { return node.kind == kind; }));
}

}  // namespace heddle::graph
