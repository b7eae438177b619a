// Writing by indices that are data, and sorting: scatter_elements, scatter_nd, top_k. Each element
// of the result looks at all updates (or all elements of its row) that could concern it. That is
// fast enough for the few updates in models; the importer refuses cases that would take long.
//
// Negative indices count from the end. An update whose index is out of range has no effect.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/ir/arithmetic.h"

namespace heddle::graph {
namespace {

using ir::DType;
using ir::Expr;
using ir::Make;
using ir::Op;
using ir::ReduceOp;

Expr Equal(Expr a, Expr b) { return Make(Op::kEq, {std::move(a), std::move(b)}); }

Expr FromEnd(Expr index, int64_t extent) {
  if (index->dtype != DType::kI64) index = ir::Cast(DType::kI64, index);
  return ir::Select(ir::Lt(index, ir::Int(0)), index + ir::Int(extent), index);
}

// "reduction" says how an update combines with the element. With "none", the last update replaces
// it.
absl::StatusOr<std::optional<ReduceOp>> ParseReduction(const OpAttrs& attrs) {
  const std::string name = attrs.Text("reduction");
  if (name == "none") return std::optional<ReduceOp>();
  if (name == "add") return std::optional(ReduceOp::kSum);
  if (name == "mul") return std::optional(ReduceOp::kProd);
  if (name == "max") return std::optional(ReduceOp::kMax);
  if (name == "min") return std::optional(ReduceOp::kMin);
  return BadInput(absl::StrCat("no reduction ", name));
}

absl::Status CheckScatter(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 3, 3));
  HEDDLE_ASSIGN_OR_RETURN(auto reduction, ParseReduction(attrs));
  if (in[1].dtype != DType::kI64 && in[1].dtype != DType::kI32)
    return BadInput(absl::StrCat("indices of type ", ToText(in[1]), "; i32 and i64 are supported"));
  if (in[2].dtype != in[0].dtype || (reduction && in[0].dtype == DType::kBool))
    return BadInput(absl::StrCat("cannot update ", ToText(in[0]), " with ", ToText(in[2])));
  return absl::OkStatus();
}

// ---- scatter_elements {axis, reduction} ----
//
// data[.., indices[.., k, ..], ..] = updates[.., k, ..]

absl::StatusOr<TensorType> InferScatterElements(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(CheckScatter(in, attrs));
  const Shape &data = in[0].shape, &indices = in[1].shape;
  HEDDLE_ASSIGN_OR_RETURN(int64_t axis,
                          NormalizeAxis(attrs.Int("axis"), static_cast<int>(data.size())));
  bool fits = data.size() == indices.size() && indices == in[2].shape;
  for (size_t d = 0; fits && d < data.size(); ++d)
    fits = static_cast<int64_t>(d) == axis || indices[d] <= data[d];
  if (!fits)
    return BadInput(absl::StrCat("indices ", ToText(in[1]), " do not fit ", ToText(in[0])));
  return in[0];
}

absl::StatusOr<tensor::Tensor> ExpressScatterElements(tensor::Builder& b, Tensors in,
                                                      const OpAttrs& attrs) {
  const tensor::Tensor &data = in[0], &indices = in[1], &updates = in[2];
  HEDDLE_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(attrs.Int("axis"), data.rank()));
  HEDDLE_ASSIGN_OR_RETURN(const auto reduction, ParseReduction(attrs));
  // The index of update k on the line through `at`. Positions beyond the updates read the last
  // ones, which `concerns` excludes.
  const auto update_at = [&](tensor::Iters at, const Expr& k) {
    std::vector<Expr> index(at.begin(), at.end());
    for (int d = 0; d < data.rank(); ++d) {
      const int64_t extent = indices.shape()[d];
      if (d == axis)
        index[d] = k;
      else if (extent < data.shape()[d])
        index[d] = Make(Op::kMin, {index[d], ir::Int(extent - 1)});
    }
    return index;
  };
  const auto concerns = [&](tensor::Iters at, const Expr& k) {
    Expr hit = Equal(FromEnd(indices.At(update_at(at, k)), data.shape()[axis]), at[axis]);
    for (int d = 0; d < data.rank(); ++d) {
      const int64_t extent = indices.shape()[d];
      if (d != axis && extent < data.shape()[d]) hit = ir::And(hit, ir::Lt(at[d], ir::Int(extent)));
    }
    return hit;
  };
  const Shape line{indices.shape()[axis]};
  if (reduction) {
    tensor::Tensor sum = b.Reduce(
        "scatter_reduce", data.shape(), line, *reduction, [&](tensor::Iters s, tensor::Iters r) {
          return ir::Select(concerns(s, r[0]), updates.At(update_at(s, r[0])),
                            ir::Identity(*reduction, data.dtype()));
        });
    return b.Compute("scatter_elements", data.shape(), [&](tensor::Iters s) {
      return Make(ir::CombineOp(*reduction),
                  {data.At({s.begin(), s.end()}), sum.At({s.begin(), s.end()})});
    });
  }
  tensor::Tensor last = b.Reduce("scatter_last", data.shape(), line, ReduceOp::kMax,
                                 [&](tensor::Iters s, tensor::Iters r) {
                                   return ir::Select(concerns(s, r[0]), r[0], ir::Int(-1));
                                 });
  return b.Compute("scatter_elements", data.shape(), [&](tensor::Iters s) {
    const Expr k = last.At({s.begin(), s.end()});
    // The clamp lets analyses see that the index is in range.
    const Expr safe = Make(Op::kMin, {Make(Op::kMax, {k, ir::Int(0)}), ir::Int(line[0] - 1)});
    return ir::Select(Equal(k, ir::Int(-1)), data.At({s.begin(), s.end()}),
                      updates.At(update_at(s, safe)));
  });
}

// ---- scatter_nd {reduction} ----
//
// data[indices[u..]] = updates[u..]; indices[u..] has one index for each leading dimension.

absl::StatusOr<TensorType> InferScatterNd(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(CheckScatter(in, attrs));
  const Shape &data = in[0].shape, &indices = in[1].shape;
  const int64_t depth = indices.empty() ? 0 : indices.back();
  if (depth < 1 || depth > static_cast<int64_t>(data.size()))
    return BadInput(absl::StrCat("indices ", ToText(in[1]), " do not fit ", ToText(in[0])));
  Shape updates(indices.begin(), indices.end() - 1);
  updates.insert(updates.end(), data.begin() + depth, data.end());
  if (updates != in[2].shape)
    return BadInput(absl::StrCat("updates ", ToText(in[2]), " do not fit ", ToText(in[0])));
  return in[0];
}

absl::StatusOr<tensor::Tensor> ExpressScatterNd(tensor::Builder& b, Tensors in,
                                                const OpAttrs& attrs) {
  const tensor::Tensor &data = in[0], &indices = in[1], &updates = in[2];
  HEDDLE_ASSIGN_OR_RETURN(const auto reduction, ParseReduction(attrs));
  const int64_t depth = indices.shape().back();
  const Shape places(data.shape().begin(), data.shape().begin() + depth);
  Shape lead(indices.shape().begin(), indices.shape().end() - 1);
  if (lead.empty()) lead = {1};
  const bool single = indices.rank() == 1;
  const auto concerns = [&](tensor::Iters at, tensor::Iters u) {
    Expr hit;
    for (int64_t d = 0; d < depth; ++d) {
      std::vector<Expr> index(u.begin(), single ? u.begin() : u.end());
      index.push_back(ir::Int(d));
      Expr equal = Equal(FromEnd(indices.At(std::move(index)), data.shape()[d]), at[d]);
      hit = hit ? ir::And(hit, equal) : equal;
    }
    return hit;
  };
  const auto update_at = [&](const std::vector<Expr>& u, tensor::Iters at) {
    std::vector<Expr> index(u.begin(), single ? u.begin() : u.end());
    index.insert(index.end(), at.begin() + depth, at.end());
    return updates.At(std::move(index));
  };
  if (reduction) {
    tensor::Tensor sum = b.Reduce(
        "scatter_reduce", data.shape(), lead, *reduction, [&](tensor::Iters s, tensor::Iters r) {
          return ir::Select(concerns(s, r), update_at({r.begin(), r.end()}, s),
                            ir::Identity(*reduction, data.dtype()));
        });
    return b.Compute("scatter_nd", data.shape(), [&](tensor::Iters s) {
      return Make(ir::CombineOp(*reduction),
                  {data.At({s.begin(), s.end()}), sum.At({s.begin(), s.end()})});
    });
  }
  const int64_t count = Product(lead);
  tensor::Tensor last =
      b.Reduce("scatter_last", places, lead, ReduceOp::kMax, [&](tensor::Iters s, tensor::Iters r) {
        Expr number = ir::Int(0);
        for (size_t d = 0; d < lead.size(); ++d) number = number * ir::Int(lead[d]) + r[d];
        return ir::Select(concerns(s, r), number, ir::Int(-1));
      });
  return b.Compute("scatter_nd", data.shape(), [&](tensor::Iters s) {
    const Expr number = last.At({s.begin(), s.begin() + depth});
    // The clamp lets analyses see that the index is in range.
    const Expr safe = Make(Op::kMin, {Make(Op::kMax, {number, ir::Int(0)}), ir::Int(count - 1)});
    const Shape strides = RowMajorStrides(lead);
    std::vector<Expr> u;
    for (size_t d = 0; d < lead.size(); ++d)
      u.push_back(ir::FloorMod(ir::FloorDiv(safe, ir::Int(strides[d])), ir::Int(lead[d])));
    return ir::Select(Equal(number, ir::Int(-1)), data.At({s.begin(), s.end()}), update_at(u, s));
  });
}

// ---- top_k {axis, k, largest} ----
//
// The indices of the k largest (or smallest) elements, in order. Equal elements keep their order. A
// NaN is larger than any number and equal to another NaN, because the order must be total:
// otherwise two elements would have the same rank.

Expr Before(const Expr& a, const Expr& b) {
  if (!ir::IsFloat(a->dtype)) return ir::Lt(a, b);
  const Expr only_b_nan = ir::And(Make(Op::kNot, {Make(Op::kIsNan, {a})}), Make(Op::kIsNan, {b}));
  return Make(Op::kOr, {ir::Lt(a, b), only_b_nan});
}

Expr SamePlace(const Expr& a, const Expr& b) {
  if (!ir::IsFloat(a->dtype)) return Equal(a, b);
  return Make(Op::kOr, {Equal(a, b), ir::And(Make(Op::kIsNan, {a}), Make(Op::kIsNan, {b}))});
}

absl::StatusOr<TensorType> InferTopK(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  if (in[0].dtype == DType::kBool) return BadInput("is not defined on bool");
  HEDDLE_ASSIGN_OR_RETURN(int64_t axis,
                          NormalizeAxis(attrs.Int("axis"), static_cast<int>(in[0].shape.size())));
  const int64_t k = attrs.Int("k");
  if (k < 1 || k > in[0].shape[axis])
    return BadInput(absl::StrCat("cannot take ", k, " of ", ToText(in[0])));
  TensorType out{DType::kI64, in[0].shape};
  out.shape[axis] = k;
  return out;
}

absl::StatusOr<tensor::Tensor> ExpressTopK(tensor::Builder& b, Tensors in, const OpAttrs& attrs) {
  const tensor::Tensor& x = in[0];
  HEDDLE_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(attrs.Int("axis"), x.rank()));
  const bool largest = attrs.Flag("largest");
  const Shape line{x.shape()[axis]};
  const auto along = [&](tensor::Iters s, const Expr& k) {
    std::vector<Expr> index(s.begin(), s.end());
    index[axis] = k;
    return index;
  };
  // For each element, the number of elements of its line that come before it.
  tensor::Tensor rank = b.Reduce(
      "top_k_rank", x.shape(), line, ReduceOp::kSum, [&](tensor::Iters s, tensor::Iters r) {
        const Expr mine = x.At({s.begin(), s.end()}), other = x.At(along(s, r[0]));
        const Expr better = largest ? Before(mine, other) : Before(other, mine);
        const Expr earlier = ir::And(SamePlace(mine, other), ir::Lt(r[0], s[axis]));
        return ir::Select(Make(Op::kOr, {better, earlier}), ir::Int(1), ir::Int(0));
      });
  Shape out = x.shape();
  out[axis] = attrs.Int("k");
  return b.Reduce("top_k", out, line, ReduceOp::kSum, [&](tensor::Iters s, tensor::Iters r) {
    return ir::Select(Equal(rank.At(along(s, r[0])), s[axis]), r[0], ir::Int(0));
  });
}

OpDef Complex(OpKind kind, InferFn infer, ExpressFn express, std::vector<AttrSpec> attrs) {
  return MakeOp(kind, FusionClass::kComplexOutFusable, infer, express, std::move(attrs));
}

}  // namespace

void AppendScatterOps(std::vector<OpDef>& ops) {
  const AttrSpec reduction{"reduction", std::string("none")};
  ops.push_back(Complex(OpKind::kScatterElements, InferScatterElements, ExpressScatterElements,
                        {{"axis", int64_t{0}, AttrRole::kAxis}, reduction}));
  ops.push_back(Complex(OpKind::kScatterNd, InferScatterNd, ExpressScatterNd, {reduction}));
  ops.push_back(Complex(
      OpKind::kTopK, InferTopK, ExpressTopK,
      {{"axis", int64_t{-1}, AttrRole::kAxis}, {"k", int64_t{0}}, {"largest", int64_t{1}}}));
}

}  // namespace heddle::graph
