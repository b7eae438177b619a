#include "compiler/graph/passes/merge_products.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

// Limit on rows x columns computed, relative to those needed. A merged product also computes rows
// that no original product has.
constexpr double kMostWorkRatio = 2;

// A product of rows [begin, begin + rows) of `root` with a constant matrix.
struct SharedProduct {
  ValueId root = -1, matrix = -1;
  int64_t begin = 0, rows = 0;
};

// Products of one root that will be computed as one.
struct Family {
  std::vector<ValueId> matrices;  // distinct, in order of first use
  double work = 0;                // rows x columns of all products
  int products = 0;
  ValueId merged = -1;  // value of the new graph, once it is made
};

class ProductMerger {
 public:
  explicit ProductMerger(const Graph& graph) : graph_(graph), producers_(Producers(graph)) {
    for (const Node& node : graph.nodes) {
      const std::optional<SharedProduct> product = AsProduct(node);
      if (!product) continue;
      Family& family = families_[product->root];
      if (!std::count(family.matrices.begin(), family.matrices.end(), product->matrix))
        family.matrices.push_back(product->matrix);
      family.work += static_cast<double>(product->rows * Columns(product->matrix));
      ++family.products;
    }
    std::erase_if(families_, [&](const auto& entry) {
      const auto& [root, family] = entry;
      return family.products < 2 ||
             static_cast<double>(Rows(root) * AllColumns(family)) > kMostWorkRatio * family.work;
    });
  }

  Replacement operator()(GraphBuilder& out, const Node& node, const Node& original) {
    // Families are keyed by ids of the old graph. Merge finds the root in the new graph by the node
    // that reads it.
    const std::optional<SharedProduct> product = AsProduct(original);
    if (!product) return std::nullopt;
    const auto found = families_.find(product->root);
    if (found == families_.end()) return std::nullopt;
    Family& family = found->second;
    if (family.merged < 0) {
      HEDDLE_ASSIGN_OR_RETURN(family.merged,
                              Merge(out, node, original.inputs[0] == product->root, family));
    }
    return Part(out, node.name, *product, family);
  }

 private:
  int64_t Rows(ValueId v) const { return graph_.values[v].type.shape[0]; }
  int64_t Columns(ValueId v) const { return graph_.values[v].type.shape[1]; }
  int64_t AllColumns(const Family& family) const {
    return std::accumulate(family.matrices.begin(), family.matrices.end(), int64_t{0},
                           [&](int64_t sum, ValueId m) { return sum + Columns(m); });
  }

  std::optional<SharedProduct> AsProduct(const Node& node) const {
    if (node.kind != OpKind::kMatmul || !node.attrs.empty() ||
        !graph_.constants.count(node.inputs[1]))
      return std::nullopt;
    const ValueId x = node.inputs[0];
    const auto is_matrix = [&](ValueId v) { return graph_.values[v].type.shape.size() == 2; };
    if (!is_matrix(x) || !is_matrix(node.inputs[1]) || graph_.constants.count(x))
      return std::nullopt;
    SharedProduct product{x, node.inputs[1], 0, Rows(x)};
    if (product.rows > kFewRows) return std::nullopt;
    if (producers_[x] < 0) return product;
    const Node& slice = graph_.nodes[producers_[x]];
    if (slice.kind != OpKind::kSlice || !is_matrix(slice.inputs[0])) return product;
    const Shape starts = AttrsOf(slice).Ints("starts"), steps = AttrsOf(slice).Ints("steps");
    if (steps != Shape{1, 1} || Columns(x) != Columns(slice.inputs[0])) return product;
    product.root = slice.inputs[0];
    product.begin = starts[0];
    return product;
  }

  // The product of the root and all matrices side by side. The node reads the root or a slice of
  // it.
  absl::StatusOr<ValueId> Merge(GraphBuilder& out, const Node& node, bool reads_root,
                                const Family& family) {
    const ValueId root = reads_root ? node.inputs[0] : out.ProducerOf(node.inputs[0])->inputs[0];
    ValueId matrix = node.inputs[1];
    if (family.matrices.size() > 1) {
      const auto [it, fresh] = side_by_side_.try_emplace(family.matrices, -1);
      if (fresh)
        it->second = out.Constant(out.Name(matrix) + "/merged", SideBySide(family.matrices));
      matrix = it->second;
    }
    return out.Add(OpKind::kMatmul, {root, matrix}, {}, node.name + "/merged");
  }

  TensorData SideBySide(const std::vector<ValueId>& matrices) const {
    TensorData all{graph_.constants.at(matrices[0]).type, nullptr};
    all.type.shape[1] = 0;
    for (ValueId m : matrices) all.type.shape[1] += Columns(m);
    std::string bytes;
    bytes.reserve(static_cast<size_t>(NumElements(all.type) * ir::SizeOf(all.type.dtype)));
    for (int64_t row = 0; row < all.type.shape[0]; ++row) {
      for (ValueId m : matrices) {
        const size_t size = static_cast<size_t>(Columns(m) * ir::SizeOf(all.type.dtype));
        bytes.append(*graph_.constants.at(m).bytes, static_cast<size_t>(row) * size, size);
      }
    }
    all.bytes = SharedBytes::Of(std::move(bytes));
    return all;
  }

  // The numbers of the rows are data and not attributes, so that all readers are the same kernel.
  absl::StatusOr<ValueId> Part(GraphBuilder& out, const std::string& name,
                               const SharedProduct& product, const Family& family) const {
    ValueId part = family.merged;
    if (product.rows != Rows(product.root)) {
      Shape rows(product.rows);
      std::iota(rows.begin(), rows.end(), product.begin);
      const ValueId indices = out.Constant(name + "/rows", FromInts(rows));
      HEDDLE_ASSIGN_OR_RETURN(
          part, out.Add(OpKind::kGather, {part, indices}, {{"axis", int64_t{0}}}, name));
    }
    int64_t begin = 0;
    for (ValueId m : family.matrices) {
      if (m == product.matrix) break;
      begin += Columns(m);
    }
    const Shape sizes{product.rows, Columns(product.matrix)};
    if (sizes == out.Type(part).shape) return part;
    return out.Add(OpKind::kSlice, {part},
                   {{"starts", Shape{0, begin}}, {"steps", Shape{1, 1}}, {"sizes", sizes}}, name);
  }

  const Graph& graph_;
  std::vector<int> producers_;
  std::map<ValueId, Family> families_;                    // by root
  std::map<std::vector<ValueId>, ValueId> side_by_side_;  // values of the new graph, by matrices
};

}  // namespace

absl::StatusOr<Graph> MergeProducts(const Graph& graph) {
  ProductMerger merger(graph);
  return RewriteGraph(graph, std::ref(merger));
}

}  // namespace heddle::graph
