#include "compiler/graph/passes/alternate_products.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/passes/merge_products.h"

namespace heddle::graph {
namespace {

// A matrix that several products read, and the columns at which it is cut.
struct Shared {
  std::set<int64_t> cuts;  // the last one is the number of columns
  int64_t uses = 0;
  bool cuttable = true;
  bool backwards = false;            // whether the next product reads the parts in reverse
  std::map<int64_t, ValueId> parts;  // values of the new graph, by first column, as they are made
};

// Columns [begin, begin + count) of a matrix.
TensorData Columns(const TensorData& matrix, int64_t begin, int64_t count) {
  TensorData part{matrix.type, nullptr};
  part.type.shape[1] = count;
  const auto element = static_cast<size_t>(ir::SizeOf(matrix.type.dtype));
  const size_t row = element * static_cast<size_t>(matrix.type.shape[1]);
  std::string bytes;
  bytes.reserve(element * static_cast<size_t>(NumElements(part.type)));
  for (size_t at = 0; at < matrix.bytes->size(); at += row) {
    bytes.append(*matrix.bytes, at + element * static_cast<size_t>(begin),
                 element * static_cast<size_t>(count));
  }
  part.bytes = SharedBytes::Of(std::move(bytes));
  return part;
}

class Alternator {
 public:
  Alternator(const Graph& graph, int64_t near_bytes)
      : graph_(graph), near_bytes_(near_bytes), producers_(Producers(graph)) {
    for (const Node& node : graph.nodes) {
      if (IsCandidate(node)) ++shared_[node.inputs[1]].uses;
    }
    std::erase_if(shared_, [](const auto& entry) { return entry.second.uses < 2; });
    for (const Node& node : graph.nodes) {
      for (ValueId v : node.inputs) {
        if (Shared* shared = MatrixOf(v)) Cut(node, v, *shared);
      }
    }
    for (ValueId v : graph.outputs) {
      if (Shared* shared = MatrixOf(v)) shared->cuttable = false;
    }
    for (auto it = shared_.begin(); it != shared_.end();)
      it = Join(it->first, it->second) ? std::next(it) : shared_.erase(it);
  }

  Replacement operator()(GraphBuilder& out, const Node& node, const Node& original) {
    if (Shared* shared = MatrixOf(original.outputs[0])) {
      HEDDLE_RETURN_IF_ERROR(Multiply(out, node, original, *shared));
      return std::nullopt;  // this product is no longer read
    }
    if (original.inputs.empty() || MatrixOf(original.inputs[0]) == nullptr) return std::nullopt;
    return Slice(out, node, products_.at(original.inputs[0]));
  }

 private:
  bool IsCandidate(const Node& node) const {
    if (node.kind != OpKind::kMatmul) return false;
    const auto matrix = graph_.constants.find(node.inputs[1]);
    if (matrix == graph_.constants.end() || matrix->second.type.shape.size() != 2) return false;
    const Shape& x = graph_.values[node.inputs[0]].type.shape;
    return x.size() == 2 && x[0] <= kFewRows &&
           static_cast<int64_t>(matrix->second.bytes->size()) > near_bytes_;
  }

  // The matrix whose product v is; null if v is not one of these products.
  Shared* MatrixOf(ValueId v) {
    if (producers_[v] < 0) return nullptr;
    const Node& node = graph_.nodes[producers_[v]];
    if (!IsCandidate(node)) return nullptr;
    const auto found = shared_.find(node.inputs[1]);
    return found == shared_.end() ? nullptr : &found->second;
  }

  // Notes where `node`, a reader of the product v, cuts the matrix.
  void Cut(const Node& node, ValueId v, Shared& shared) {
    shared.cuttable &= node.kind == OpKind::kSlice;
    if (node.kind != OpKind::kSlice) return;
    const OpAttrs attrs = AttrsOf(node);
    const Shape &starts = attrs.Ints("starts"), &sizes = attrs.Ints("sizes");
    if (attrs.Ints("steps") != Shape{1, 1} || starts[0] != 0 ||
        sizes[0] != graph_.values[v].type.shape[0]) {
      shared.cuttable = false;
      return;
    }
    shared.cuts.insert({starts[1], starts[1] + sizes[1]});
    slices_[&shared].push_back({starts[1], starts[1] + sizes[1]});
  }

  // Removes cuts between slices that fit together. False if the matrix cannot be cut without
  // splitting a slice, a slice is too large, or fewer than two parts are left.
  bool Join(ValueId matrix, Shared& shared) {
    const Shape& shape = graph_.values[matrix].type.shape;
    const int64_t column = shape[0] * ir::SizeOf(graph_.values[matrix].type.dtype);
    shared.cuts.insert({0, shape[1]});
    for (const auto& [begin, end] : slices_[&shared]) {
      if (*shared.cuts.upper_bound(begin) != end || (end - begin) * column > near_bytes_)
        return false;
    }
    std::set<int64_t> kept{0};
    for (auto cut = std::next(shared.cuts.begin()); cut != shared.cuts.end(); ++cut) {
      const auto next = std::next(cut);
      if (next == shared.cuts.end() || (*next - *kept.rbegin()) * column > near_bytes_)
        kept.insert(*cut);
    }
    shared.cuts = std::move(kept);
    return shared.cuttable && shared.cuts.size() > 2;
  }

  absl::Status Multiply(GraphBuilder& out, const Node& node, const Node& original, Shared& shared) {
    std::vector<std::pair<int64_t, int64_t>> order;
    for (auto cut = shared.cuts.begin(); std::next(cut) != shared.cuts.end(); ++cut)
      order.emplace_back(*cut, *std::next(cut) - *cut);
    if (shared.backwards) order = {order.rbegin(), order.rend()};
    shared.backwards = !shared.backwards;
    for (const auto& [begin, count] : order) {
      const auto [part, fresh] = shared.parts.try_emplace(begin, -1);
      if (fresh) {
        part->second = out.Constant(absl::StrCat(out.Name(node.inputs[1]), "/", begin),
                                    Columns(graph_.constants.at(original.inputs[1]), begin, count));
      }
      HEDDLE_ASSIGN_OR_RETURN(products_[original.outputs[0]][begin],
                              out.Add(OpKind::kMatmul, {node.inputs[0], part->second}, node.attrs,
                                      absl::StrCat(node.name, "/", begin)));
    }
    return absl::OkStatus();
  }

  static Replacement Slice(GraphBuilder& out, const Node& node,
                           const std::map<int64_t, ValueId>& products) {
    Attrs attrs = node.attrs;
    Shape starts = AttrsOf(node).Ints("starts");
    const auto& [begin, product] = *std::prev(products.upper_bound(starts[1]));
    if (AttrsOf(node).Ints("sizes") == out.Type(product).shape) return product;
    starts[1] -= begin;
    attrs["starts"] = starts;
    return out.Add(OpKind::kSlice, {product}, attrs, node.name);
  }

  const Graph& graph_;
  int64_t near_bytes_;
  std::vector<int> producers_;
  std::map<ValueId, Shared> shared_;                                          // by matrix
  std::map<const Shared*, std::vector<std::pair<int64_t, int64_t>>> slices_;  // begin, end
  std::map<ValueId, std::map<int64_t, ValueId>> products_;  // product -> its parts by first column
};

}  // namespace

absl::StatusOr<Graph> AlternateProducts(const Graph& graph, const machine::GraphCore& core) {
  Alternator alternator(graph, core.near_bytes);
  return RewriteGraph(graph, std::ref(alternator));
}

}  // namespace heddle::graph
