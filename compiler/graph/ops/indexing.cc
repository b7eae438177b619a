// Data movement by indices that are data: gather, gather_elements, gather_nd, one_hot,
// reverse_sequence.
//
// Negative indices count from the end. An index out of range reads the nearest element, because a
// kernel must not fault on any input.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

using ir::Expr;
using ir::Make;
using ir::Op;

absl::Status ExpectIndices(const TensorType& t) {
  if (t.dtype == ir::DType::kI64 || t.dtype == ir::DType::kI32) return absl::OkStatus();
  return BadInput(absl::StrCat("indices of type ", ToText(t), "; i32 and i64 are supported"));
}

Expr Wrapped(Expr index, int64_t extent) {
  if (index->dtype != ir::DType::kI64) index = ir::Cast(ir::DType::kI64, index);
  Expr from_end = ir::Select(ir::Lt(index, ir::Int(0)), index + ir::Int(extent), index);
  return Make(Op::kMin, {Make(Op::kMax, {from_end, ir::Int(0)}), ir::Int(extent - 1)});
}

// gather {axis}: replaces dimension `axis` of x by the dimensions of the indices.
absl::StatusOr<TensorType> InferGather(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 2, 2));
  HEDDLE_RETURN_IF_ERROR(ExpectIndices(in[1]));
  HEDDLE_ASSIGN_OR_RETURN(int64_t axis,
                          NormalizeAxis(attrs.Int("axis"), static_cast<int>(in[0].shape.size())));
  TensorType out{in[0].dtype, {in[0].shape.begin(), in[0].shape.begin() + axis}};
  out.shape.insert(out.shape.end(), in[1].shape.begin(), in[1].shape.end());
  out.shape.insert(out.shape.end(), in[0].shape.begin() + axis + 1, in[0].shape.end());
  return out;
}

absl::StatusOr<tensor::Tensor> ExpressGather(tensor::Builder& b, Tensors in, const OpAttrs& attrs) {
  const tensor::Tensor &x = in[0], &indices = in[1];
  HEDDLE_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(attrs.Int("axis"), x.rank()));
  const TensorType types[] = {TensorType{x.dtype(), x.shape()},
                              TensorType{indices.dtype(), indices.shape()}};
  HEDDLE_ASSIGN_OR_RETURN(const TensorType type, InferGather(types, attrs));
  return b.Compute("gather", type.shape, [&](tensor::Iters s) {
    tensor::Iters at = s.subspan(axis, indices.rank());
    std::vector<Expr> index(s.begin(), s.begin() + axis);
    index.push_back(Wrapped(indices.At({at.begin(), at.end()}), x.shape()[axis]));
    index.insert(index.end(), s.begin() + axis + indices.rank(), s.end());
    return x.At(std::move(index));
  });
}

// gather_elements {axis}: out[i, j] = x[indices[i, j], j] for axis 0.
absl::StatusOr<TensorType> InferGatherElements(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 2, 2));
  HEDDLE_RETURN_IF_ERROR(ExpectIndices(in[1]));
  HEDDLE_ASSIGN_OR_RETURN(int64_t axis,
                          NormalizeAxis(attrs.Int("axis"), static_cast<int>(in[0].shape.size())));
  bool fits = in[0].shape.size() == in[1].shape.size();
  for (size_t d = 0; fits && d < in[0].shape.size(); ++d) {
    fits = static_cast<int64_t>(d) == axis || in[1].shape[d] <= in[0].shape[d];
  }
  if (!fits)
    return BadInput(absl::StrCat("indices ", ToText(in[1]), " do not fit ", ToText(in[0])));
  return TensorType{in[0].dtype, in[1].shape};
}

absl::StatusOr<tensor::Tensor> ExpressGatherElements(tensor::Builder& b, Tensors in,
                                                     const OpAttrs& attrs) {
  HEDDLE_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(attrs.Int("axis"), in[0].rank()));
  return b.Compute("gather_elements", in[1].shape(), [&](tensor::Iters s) {
    std::vector<Expr> index(s.begin(), s.end());
    index[axis] = Wrapped(in[1].At({s.begin(), s.end()}), in[0].shape()[axis]);
    return in[0].At(std::move(index));
  });
}

// gather_nd {batch_dims}: the last dimension of the indices addresses the leading dimensions of x
// after the batch.
absl::StatusOr<TensorType> InferGatherNd(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 2, 2));
  HEDDLE_RETURN_IF_ERROR(ExpectIndices(in[1]));
  const int64_t batch = attrs.Int("batch_dims");
  const Shape &x = in[0].shape, &i = in[1].shape;
  const int64_t depth = i.empty() ? 0 : i.back();
  bool fits = batch >= 0 && batch < static_cast<int64_t>(i.size()) && depth > 0 &&
              batch + depth <= static_cast<int64_t>(x.size());
  for (int64_t d = 0; fits && d < batch; ++d) fits = x[d] == i[d];
  if (!fits)
    return BadInput(absl::StrCat("indices ", ToText(in[1]), " do not fit ", ToText(in[0])));
  TensorType out{in[0].dtype, {i.begin(), i.end() - 1}};
  out.shape.insert(out.shape.end(), x.begin() + batch + depth, x.end());
  return out;
}

absl::StatusOr<tensor::Tensor> ExpressGatherNd(tensor::Builder& b, Tensors in,
                                               const OpAttrs& attrs) {
  const tensor::Tensor &x = in[0], &indices = in[1];
  const int64_t batch = attrs.Int("batch_dims"), depth = indices.shape().back();
  Shape out(indices.shape().begin(), indices.shape().end() - 1);
  const size_t lead = out.size();
  out.insert(out.end(), x.shape().begin() + batch + depth, x.shape().end());
  return b.Compute("gather_nd", out, [&](tensor::Iters s) {
    std::vector<Expr> index(s.begin(), s.begin() + batch);
    for (int64_t k = 0; k < depth; ++k) {
      std::vector<Expr> at(s.begin(), s.begin() + lead);
      at.push_back(ir::Int(k));
      index.push_back(Wrapped(indices.At(std::move(at)), x.shape()[batch + k]));
    }
    index.insert(index.end(), s.begin() + lead, s.end());
    return x.At(std::move(index));
  });
}

// one_hot {axis, depth}: the operands are indices (any shape) and values (off, on). The result has
// a new dimension `axis` of extent `depth`.
absl::StatusOr<TensorType> InferOneHot(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 2, 2));
  HEDDLE_RETURN_IF_ERROR(ExpectIndices(in[0]));
  if (in[1].shape != Shape{2}) return BadInput("needs two values");
  HEDDLE_ASSIGN_OR_RETURN(
      int64_t axis, NormalizeAxis(attrs.Int("axis"), static_cast<int>(in[0].shape.size()) + 1));
  TensorType out{in[1].dtype, in[0].shape};
  out.shape.insert(out.shape.begin() + axis, attrs.Int("depth"));
  return out;
}

absl::StatusOr<tensor::Tensor> ExpressOneHot(tensor::Builder& b, Tensors in, const OpAttrs& attrs) {
  const tensor::Tensor &indices = in[0], &values = in[1];
  const int64_t depth = attrs.Int("depth");
  HEDDLE_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(attrs.Int("axis"), indices.rank() + 1));
  Shape out = indices.shape();
  out.insert(out.begin() + axis, depth);
  return b.Compute("one_hot", out, [&](tensor::Iters s) {
    std::vector<Expr> at(s.begin(), s.end());
    at.erase(at.begin() + axis);
    Expr index = indices.At(std::move(at));
    if (index->dtype != ir::DType::kI64) index = ir::Cast(ir::DType::kI64, index);
    // An index outside of [-depth, depth) sets no element.
    Expr hit = Make(Op::kOr, {Make(Op::kEq, {index, s[axis]}),
                              Make(Op::kEq, {index + ir::Int(depth), s[axis]})});
    return ir::Select(hit, values(ir::Int(1)), values(ir::Int(0)));
  });
}

// reverse_sequence {time_axis, batch_axis}: reverses the first lengths[b] elements along time.
absl::StatusOr<TensorType> InferReverse(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 2, 2));
  HEDDLE_RETURN_IF_ERROR(ExpectIndices(in[1]));
  const int rank = static_cast<int>(in[0].shape.size());
  HEDDLE_RETURN_IF_ERROR(NormalizeAxis(attrs.Int("time_axis"), rank).status());
  HEDDLE_ASSIGN_OR_RETURN(int64_t batch, NormalizeAxis(attrs.Int("batch_axis"), rank));
  if (in[1].shape != Shape{in[0].shape[batch]})
    return BadInput("needs one length per batch element");
  return in[0];
}

absl::StatusOr<tensor::Tensor> ExpressReverse(tensor::Builder& b, Tensors in,
                                              const OpAttrs& attrs) {
  const int64_t time = attrs.Int("time_axis"), batch = attrs.Int("batch_axis");
  return b.Compute("reverse_sequence", in[0].shape(), [&](tensor::Iters s) {
    Expr length = in[1](s[batch]);
    if (length->dtype != ir::DType::kI64) length = ir::Cast(ir::DType::kI64, length);
    std::vector<Expr> index(s.begin(), s.end());
    Expr reversed = ir::Select(ir::Lt(s[time], length), length - ir::Int(1) - s[time], s[time]);
    index[time] =
        Make(Op::kMin, {Make(Op::kMax, {reversed, ir::Int(0)}), ir::Int(in[0].shape()[time] - 1)});
    return in[0].At(std::move(index));
  });
}

OpDef Indexing(OpKind kind, InferFn infer, ExpressFn express, std::vector<AttrSpec> attrs) {
  return MakeOp(kind, FusionClass::kInjective, infer, express, std::move(attrs));
}

OpDef GatherOp() {
  OpDef op = Indexing(OpKind::kGather, InferGather, ExpressGather,
                      {{"axis", int64_t{0}, AttrRole::kAxis}});
  op.layout.last = [](const OpUse& use) { return use.inputs[1].shape.size() == 1; };
  return op;
}

}  // namespace

void AppendIndexingOps(std::vector<OpDef>& ops) {
  ops.push_back(GatherOp());
  ops.push_back(Indexing(OpKind::kGatherElements, InferGatherElements, ExpressGatherElements,
                         {{"axis", int64_t{0}, AttrRole::kAxis}}));
  ops.push_back(
      Indexing(OpKind::kGatherNd, InferGatherNd, ExpressGatherNd, {{"batch_dims", int64_t{0}}}));
  ops.push_back(Indexing(OpKind::kOneHot, InferOneHot, ExpressOneHot,
                         {{"axis", int64_t{-1}}, {"depth", int64_t{0}}}));
  ops.push_back(Indexing(
      OpKind::kReverseSequence, InferReverse, ExpressReverse,
      {{"time_axis", int64_t{0}, AttrRole::kAxis}, {"batch_axis", int64_t{0}, AttrRole::kAxis}}));
}

}  // namespace heddle::graph
