#include "compiler/graph/passes/fold_flatten.h"

#include <memory>
#include <optional>

#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

// The rows of `matrix` belong to the elements of a tensor of `shape`, batch first, which is the
// result of a transpose by `perm`. Returns the rows in the order of the elements before the
// transpose.
TensorData PermuteRows(const TensorData& matrix, const Shape& shape, const Shape& perm) {
  const size_t row = matrix.bytes->size() / static_cast<size_t>(matrix.type.shape[0]);
  Shape extents(shape.size()), row_stride(shape.size());  // by dimension before the transpose
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 1;) {
    extents[perm[d]] = shape[d];
    row_stride[perm[d]] = stride;
    stride *= shape[d];
  }
  std::string bytes;
  bytes.reserve(matrix.bytes->size());
  Shape at(shape.size(), 0);
  for (int64_t i = 0; i < matrix.type.shape[0]; ++i) {
    int64_t from = 0;
    for (size_t d = 1; d < at.size(); ++d) from += at[d] * row_stride[d];
    bytes.append(*matrix.bytes, static_cast<size_t>(from) * row, row);
    for (size_t d = at.size(); d-- > 1 && ++at[d] == extents[d];) at[d] = 0;
  }
  return {matrix.type, SharedBytes::Of(std::move(bytes))};
}

Replacement Fold(GraphBuilder& out, const Node& node, const Node&) {
  if (node.kind != OpKind::kMatmul) return std::nullopt;
  const ValueId flat = node.inputs[0];
  const TensorData* matrix = out.ConstantData(node.inputs[1]);
  const Node* reshape = out.ProducerOf(flat);
  if (matrix == nullptr || reshape == nullptr || reshape->kind != OpKind::kReshape)
    return std::nullopt;
  ValueId source = reshape->inputs[0];
  const Node* transpose = out.ProducerOf(source);
  while (transpose != nullptr &&
         transpose->kind == OpKind::kReshape) {  // this reshape joins blocks of channels
    source = transpose->inputs[0];
    transpose = out.ProducerOf(source);
  }
  if (transpose == nullptr || transpose->kind != OpKind::kTranspose) return std::nullopt;
  const ValueId x = transpose->inputs[0];
  const Shape perm = AttrsOf(*transpose).Ints("perm"), flat_shape = out.Type(flat).shape,
              shape = out.Type(source).shape;
  if (perm.empty() || perm[0] != 0 || flat_shape != Shape{shape[0], Product(shape) / shape[0]} ||
      matrix->type.shape.size() != 2) {
    return std::nullopt;
  }
  const ValueId w =
      out.Constant(out.Name(node.inputs[1]) + "/permuted", PermuteRows(*matrix, shape, perm));
  HEDDLE_ASSIGN_OR_RETURN(const ValueId y, out.Add(OpKind::kReshape, {x}, {{"shape", flat_shape}},
                                                   node.name + "/flat"));
  HEDDLE_ASSIGN_OR_RETURN(const ValueId product,
                          out.Add(OpKind::kMatmul, {y, w}, node.attrs, node.name));
  return product;
}

}  // namespace

absl::StatusOr<Graph> FoldFlatten(const Graph& graph) {
  const std::vector<int> producers = Producers(graph);
  const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    if (node.kind != OpKind::kMatmul || !graph.constants.contains(node.inputs[1])) return false;
    const int flat = producers[node.inputs[0]];
    return flat >= 0 && graph.nodes[flat].kind == OpKind::kReshape;
  });
  if (!any) return graph;
  return RewriteGraph(graph, Fold);
}

}  // namespace heddle::graph
