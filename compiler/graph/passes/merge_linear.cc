#include "compiler/graph/passes/merge_linear.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/core/tensor_data.h"

namespace heddle::graph {
namespace {

// Elements of a matrix, and multiply-accumulates for a product of two, which takes some milliseconds. Larger ones are left alone.
constexpr double kMostMergedWork = 1 << 22;
// Elements of a matrix that is copied for each of its readers.
constexpr double kMostCopied = 1 << 14;

using Numbers = std::vector<double>;

struct Matrix {
  int64_t rows = 0, columns = 0;
  Numbers values;
};

// (x * scale + offset) matrix + bias, for a value x of the graph.
struct Linear {
  ValueId x = -1;
  Numbers scale, offset;  // by column of x
  Matrix matrix;
  Numbers bias;         // by column of the result
  bool scaled = false;  // some factor belongs to a column
};

bool AreFinite(const Numbers& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](double v) { return std::isfinite(v); });
}

bool AnyBut(const Numbers& numbers, double value) {
  return std::any_of(numbers.begin(), numbers.end(), [&](double v) { return v != value; });
}

// Multiplies scale and offset into matrix and bias.
void Absorb(Linear& linear) {
  Matrix& m = linear.matrix;
  for (int64_t i = 0; i < m.rows; ++i) {
    for (int64_t j = 0; j < m.columns; ++j) {
      double& v = m.values[static_cast<size_t>(i * m.columns + j)];
      linear.bias[static_cast<size_t>(j)] += linear.offset[static_cast<size_t>(i)] * v;
      v *= linear.scale[static_cast<size_t>(i)];
    }
  }
  linear.scale.assign(static_cast<size_t>(m.rows), 1);
  linear.offset.assign(static_cast<size_t>(m.rows), 0);
  linear.scaled = false;
}

Matrix MatrixProduct(const Matrix& a, const Matrix& b) {
  Matrix product{a.rows, b.columns, Numbers(static_cast<size_t>(a.rows * b.columns), 0)};
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t k = 0; k < a.columns; ++k) {
      const double factor = a.values[static_cast<size_t>(i * a.columns + k)];
      for (int64_t j = 0; j < b.columns; ++j) {
        product.values[static_cast<size_t>(i * b.columns + j)] +=
            factor * b.values[static_cast<size_t>(k * b.columns + j)];
      }
    }
  }
  return product;
}

class LinearMerger {
 public:
  explicit LinearMerger(const Graph& graph)
      : graph_(graph),
        producers_(Producers(graph)),
        uses_(UseCounts(graph)),
        map_(graph.values.size(), -1) {}

  Replacement operator()(GraphBuilder& out, const Node& node, const Node& original) {
    for (size_t k = 0; k < node.inputs.size(); ++k) map_[original.inputs[k]] = node.inputs[k];
    if (!IsProduct(original)) return std::nullopt;
    const Node* before = InnerNode(original.inputs[0]);
    if (before == nullptr || !(IsLinear(before->kind) || before->kind == OpKind::kMatmul))
      return std::nullopt;  // before the matrix's elements are read
    Linear linear = LinearOf(original);
    if (!Merge(linear, original.attrs)) return std::nullopt;
    const ir::DType dtype = Type(original.outputs[0]).dtype;
    if (!Survives(linear.matrix.values, dtype) || !Survives(linear.bias, dtype))
      return std::nullopt;
    const auto constant = [&](const Numbers& numbers, const Shape& shape) {
      return out.Constant(node.name + "_merged", FromDoubles(numbers, shape, dtype));
    };
    const Matrix& m = linear.matrix;
    HEDDLE_ASSIGN_OR_RETURN(
        const ValueId product,
        out.Add(OpKind::kMatmul, {map_[linear.x], constant(m.values, {m.rows, m.columns})},
                node.attrs, node.name));
    if (!AnyBut(linear.bias, 0)) return product;
    return out.Add(OpKind::kAdd, {product, constant(linear.bias, {1, m.columns})}, {},
                   node.name + "_offset");
  }

 private:
  const TensorType& Type(ValueId v) const { return graph_.values[v].type; }
  const TensorData* Constant(ValueId v) const {
    const auto known = graph_.constants.find(v);
    return known == graph_.constants.end() ? nullptr : &known->second;
  }

  // The node that makes a value, if the value has no other reader; else null.
  const Node* InnerNode(ValueId v) const {
    return uses_[v] == 1 && producers_[v] >= 0 ? &graph_.nodes[static_cast<size_t>(producers_[v])]
                                               : nullptr;
  }

  // Whether a node is the product of a matrix of floats with a constant one.
  bool IsProduct(const Node& node) const {
    if (node.kind != OpKind::kMatmul) return false;
    const TensorData* matrix = Constant(node.inputs[1]);
    const TensorType &x = Type(node.inputs[0]), &y = Type(node.outputs[0]);
    return matrix != nullptr && (y.dtype == ir::DType::kF32 || y.dtype == ir::DType::kF64) &&
           x.dtype == y.dtype && x.shape.size() == 2 && matrix->type.shape.size() == 2 &&
           static_cast<double>(NumElements(matrix->type)) <=
               (IsShared(node.inputs[1]) ? kMostCopied : kMostMergedWork);
  }

  // Whether a constant has several readers in one block of rows. Those of different blocks merge alike.
  bool IsShared(ValueId v) const {
    return uses_[v] > static_cast<int>(std::max<size_t>(graph_.tables.blocks.size(), 1));
  }

  Linear LinearOf(const Node& product) const {
    const TensorData& matrix = *Constant(product.inputs[1]);
    const int64_t rows = matrix.type.shape[0], columns = matrix.type.shape[1];
    return {product.inputs[0],
            Numbers(static_cast<size_t>(rows), 1),
            Numbers(static_cast<size_t>(rows), 0),
            {rows, columns, ToDoubles(matrix)},
            Numbers(static_cast<size_t>(columns), 0)};
  }

  // Takes in what computes x, as far as that is good. False: nothing is to change.
  bool Merge(Linear& linear, const Attrs& attrs) const {
    bool merged = false;
    while (true) {
      Linear next = linear, good = linear;
      bool grew = false;
      while (TakeIn(next)) {
        if (!MayAbsorb(next)) continue;
        good = next;
        grew = true;
      }
      const Node* before = InnerNode(next.x);
      if (before != nullptr && before->attrs == attrs && IsProduct(*before)) {
        const Linear inner = LinearOf(*before);
        if (IsLess(inner.matrix, next.matrix)) {
          Absorb(next);
          linear = {inner.x, inner.scale, inner.offset, MatrixProduct(inner.matrix, next.matrix),
                    std::move(next.bias)};
          merged = true;
          continue;
        }
      }
      if (grew) {
        Absorb(good);
        linear = std::move(good);
        merged = true;
      }
      return merged && AreFinite(linear.matrix.values) && AreFinite(linear.bias);
    }
  }

  // Whether no number becomes infinite or zero when it is rounded to `dtype`.
  static bool Survives(const Numbers& numbers, ir::DType dtype) {
    if (dtype != ir::DType::kF32) return true;
    return std::all_of(numbers.begin(), numbers.end(), [](double v) {
      const auto rounded = static_cast<float>(v);
      return std::isfinite(rounded) && (rounded != 0) == (v != 0);
    });
  }

  static bool IsLess(const Matrix& a, const Matrix& b) {
    const double rows = static_cast<double>(a.rows), inner = static_cast<double>(b.rows),
                 columns = static_cast<double>(b.columns);
    return rows * inner * columns <= kMostMergedWork &&
           rows * columns < rows * inner + inner * columns;
  }

  static bool MayAbsorb(const Linear& linear) {
    if (!AnyBut(linear.offset, 0)) return true;
    return linear.scaled && std::all_of(linear.offset.begin(), linear.offset.end(),
                                        [](double v) { return std::abs(v) <= kMostMergedOffset; });
  }

  static bool IsLinear(OpKind kind) {
    return kind == OpKind::kMul || kind == OpKind::kAdd || kind == OpKind::kSub ||
           kind == OpKind::kDiv;
  }

  // Makes x the operand of the node that computes it, if this scales or moves columns.
  bool TakeIn(Linear& linear) const {
    const Node* node = InnerNode(linear.x);
    if (node == nullptr || !IsLinear(node->kind)) return false;
    const OpKind kind = node->kind;
    const bool constant_first = Constant(node->inputs[0]) != nullptr;
    if (constant_first && kind == OpKind::kDiv) return false;
    const ValueId x = node->inputs[constant_first ? 1 : 0];
    const TensorData* constant = Constant(node->inputs[constant_first ? 0 : 1]);
    if (constant == nullptr || Type(x) != Type(linear.x)) return false;
    const Shape& shape = constant->type.shape;
    const auto columns = static_cast<int64_t>(linear.scale.size());
    const bool by_column = !shape.empty() && shape.back() == columns;
    if (NumElements(constant->type) != (by_column ? columns : 1)) return false;
    const Numbers given = ToDoubles(*constant);
    for (size_t c = 0; c < linear.scale.size(); ++c) {
      const double number = given[by_column ? c : 0];
      double &scale = linear.scale[c], &offset = linear.offset[c];
      if (kind == OpKind::kMul) {
        scale *= number;
      } else if (kind == OpKind::kDiv) {
        scale /= number;
      } else if (kind == OpKind::kAdd || constant_first) {
        offset += number * scale;
      } else {
        offset -= number * scale;
      }
      if (kind == OpKind::kSub && constant_first) scale = -scale;
    }
    linear.scaled |= by_column && (kind == OpKind::kMul || kind == OpKind::kDiv);
    linear.x = x;
    return true;
  }

  const Graph& graph_;
  std::vector<int> producers_, uses_;
  std::vector<ValueId>
      map_;  // from the graph's values to the new graph's, where a node has read them
};

}  // namespace

absl::StatusOr<Graph> MergeLinear(const Graph& graph) {
  LinearMerger merger(graph);
  return RewriteGraph(graph, std::ref(merger));
}

}  // namespace heddle::graph
