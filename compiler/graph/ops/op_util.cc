#include "compiler/graph/ops/op_util.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "compiler/ir/arithmetic.h"

namespace heddle::graph {

using ir::DType;
using ir::Expr;

std::string ShapeText(const Shape& shape) {
  return shape.empty() ? "scalar" : absl::StrJoin(shape, "x");
}

int64_t Product(const Shape& shape) { return NumElements({ir::DType::kI8, shape}); }

Shape RowMajorStrides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (int d = static_cast<int>(shape.size()) - 2; d >= 0; --d) {
    strides[d] = strides[d + 1] * shape[d + 1];
  }
  return strides;
}

void AppendRange(int64_t begin, int64_t end, Shape* list) {
  for (int64_t d = begin; d < end; ++d) list->push_back(d);
}

absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b) {
  const size_t rank = std::max(a.size(), b.size());
  Shape out(rank);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t x = i < rank - a.size() ? 1 : a[i - (rank - a.size())];
    const int64_t y = i < rank - b.size() ? 1 : b[i - (rank - b.size())];
    if (x != y && x != 1 && y != 1) {
      return BadInput(
          absl::StrCat("shapes ", ShapeText(a), " and ", ShapeText(b), " do not broadcast"));
    }
    out[i] = x == 1 ? y : x;
  }
  return out;
}

std::vector<Expr> BroadcastIndex(tensor::Iters at, const Shape& result, const Shape& shape) {
  std::vector<Expr> index;
  const size_t skip = at.size() - shape.size();
  for (size_t d = 0; d < shape.size(); ++d) {
    index.push_back(shape[d] == result[skip + d] ? at[skip + d] : ir::Int(0));
  }
  return index;
}

Expr Number(double value, DType dtype) {
  return ir::IsFloat(dtype) ? ir::Float(value, dtype)
                            : ir::Int(ir::FloatToInt(value, dtype), dtype);
}

Expr NumberAttr(const OpAttrs& attrs, std::string_view name, DType dtype) {
  const auto* whole = std::get_if<int64_t>(&attrs.Get(name));
  if (whole != nullptr && !ir::IsFloat(dtype)) return ir::Int(*whole, dtype);
  return Number(attrs.Float(name), dtype);
}

Expr Min(Expr a, Expr b) { return ir::Make(ir::Op::kMin, {std::move(a), std::move(b)}); }
Expr Max(Expr a, Expr b) { return ir::Make(ir::Op::kMax, {std::move(a), std::move(b)}); }
Expr Div(Expr a, Expr b) { return ir::Make(ir::Op::kDiv, {std::move(a), std::move(b)}); }
Expr Exp(Expr x) { return ir::Make(ir::Op::kExp, {std::move(x)}); }

Expr Lowest(DType dtype) { return ir::Identity(ir::ReduceOp::kMax, dtype); }

tensor::Tensor PadTo(tensor::Builder& b, const tensor::Tensor& x, const Shape& begin,
                     const Shape& extents, const Expr& fill) {
  bool needed = false;
  for (int d = 0; d < x.rank(); ++d) needed |= begin[d] != 0 || extents[d] > x.shape()[d];
  if (!needed) return x;
  // Positions that are far apart may read nothing but the leading padding.
  for (int d = 0; d < x.rank(); ++d) {
    if (extents[d] <= begin[d])
      return b.Compute("pad", extents, [&](tensor::Iters) { return fill; });
  }
  return b.Compute("pad", extents, [&](tensor::Iters s) {
    Expr inside;
    std::vector<Expr> index;
    const auto require = [&](Expr condition) {
      inside = inside ? ir::And(inside, std::move(condition)) : std::move(condition);
    };
    for (int d = 0; d < x.rank(); ++d) {
      Expr i = s[d] - ir::Int(begin[d]);
      if (begin[d] > 0) require(ir::Le(ir::Int(0), i));
      if (extents[d] - begin[d] > x.shape()[d]) require(ir::Lt(i, ir::Int(x.shape()[d])));
      index.push_back(std::move(i));
    }
    Expr value = x.At(std::move(index));
    return inside ? ir::Select(inside, value, fill) : value;
  });
}

absl::StatusOr<int64_t> NormalizeAxis(int64_t axis, int rank) {
  const int64_t a = axis < 0 ? axis + rank : axis;
  if (a < 0 || a >= rank) {
    return BadInput(absl::StrCat("axis ", axis, " is outside a tensor of rank ", rank));
  }
  return a;
}

absl::StatusOr<Shape> NormalizeAxes(const Shape& axes, int rank) {
  Shape out;
  for (int64_t axis : axes) {
    HEDDLE_ASSIGN_OR_RETURN(auto a, NormalizeAxis(axis, rank));
    out.push_back(a);
  }
  std::sort(out.begin(), out.end());
  if (std::adjacent_find(out.begin(), out.end()) != out.end()) {
    return BadInput(absl::StrCat("axes [", absl::StrJoin(axes, ","), "] name a dimension twice"));
  }
  return out;
}

Shape ReducedShape(const Shape& shape, const Shape& axes, bool keepdims) {
  Shape out;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
    if (!reduced) out.push_back(shape[d]);
    if (reduced && keepdims) out.push_back(1);
  }
  return out;
}

tensor::Tensor ReduceOver(tensor::Builder& b, const std::string& name, const tensor::Tensor& x,
                          const Shape& axes, bool keepdims, ir::ReduceOp op,
                          const std::function<Expr(std::vector<Expr>)>& value) {
  Shape extents;
  for (int64_t axis : axes) extents.push_back(x.shape()[axis]);
  return b.Reduce(name, ReducedShape(x.shape(), axes, keepdims), extents, op,
                  [&](tensor::Iters s, tensor::Iters r) {
                    std::vector<Expr> index;
                    size_t next_s = 0, next_r = 0;
                    for (int64_t d = 0; d < x.rank(); ++d) {
                      if (next_r < axes.size() && axes[next_r] == d) {
                        index.push_back(r[next_r++]);
                        if (keepdims) ++next_s;
                      } else {
                        index.push_back(s[next_s++]);
                      }
                    }
                    return value(std::move(index));
                  });
}

std::vector<Expr> KeptIndex(tensor::Iters at, const Shape& axes) {
  std::vector<Expr> index(at.begin(), at.end());
  for (int64_t axis : axes) index[axis] = ir::Int(0);
  return index;
}

bool Always(const OpUse&) { return true; }

bool ResultBlocks(const OpUse& use, int64_t block) { return Blocks(use.output, block); }

bool OperandAndResultBlock(const OpUse& use, int64_t block) {
  return Blocks(use.inputs[0], block) && Blocks(use.output, block);
}

LayoutRule AlignedLayout() {
  LayoutRule rule;
  rule.operands = LayoutRule::Operands::kAligned;
  rule.last = Always;
  rule.blocked = ResultBlocks;
  return rule;
}

OpDef MakeOp(OpKind kind, FusionClass fusion, InferFn infer, ExpressFn express,
             std::vector<AttrSpec> attrs) {
  OpDef op{kind, fusion};
  op.attrs = std::move(attrs);
  op.infer = infer;
  op.express = express;
  return op;
}

absl::Status ExpectInputs(Types inputs, size_t min, size_t max) {
  if (inputs.size() >= min && inputs.size() <= max) return absl::OkStatus();
  return BadInput(absl::StrCat("has ", inputs.size(), " inputs, needs ", min,
                               max == min ? "" : absl::StrCat(" to ", max)));
}

absl::Status BadInput(std::string_view what) {
  return absl::InvalidArgumentError(absl::string_view(what.data(), what.size()));
}

}  // namespace heddle::graph
