// Data movement by known indices: reshape, transpose, concat, slice, pad, expand, tile, trilu.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

using ir::Expr;
using ir::Make;
using ir::Op;

using Inferred = absl::StatusOr<std::vector<TensorType>>;
using Expressed = absl::StatusOr<std::vector<tensor::Tensor>>;

OpDef Injective(std::string_view name, Inferred (*infer)(Types, const Attrs&),
                Expressed (*express)(tensor::Builder&, Tensors, const Attrs&)) {
  OpDef op{name, FusionClass::kInjective};
  op.infer = infer;
  op.express = express;
  return op;
}

// ---- reshape {shape}
// --------------------------------------------------------------------------------------------------

Inferred InferReshape(Types in, const Attrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  TensorType out{in[0].dtype, IntsAttr(attrs, "shape")};
  // Two negative extents have a positive product.
  HEDDLE_RETURN_IF_ERROR(CheckSize(out));
  if (NumElements(out) != NumElements(in[0])) {
    return BadInput(absl::StrCat("cannot reshape ", ToText(in[0]), " to ", ShapeText(out.shape)));
  }
  return std::vector{out};
}

// Dimensions are matched from the left in the smallest runs of equal volume, so that untouched ones
// keep plain indices.
Expressed ExpressReshape(tensor::Builder& b, Tensors in, const Attrs& attrs) {
  const Shape &from = in[0].shape(), to = IntsAttr(attrs, "shape");
  return std::vector{b.Compute("reshape", to, [&](tensor::Iters s) {
    std::vector<Expr> index;
    size_t i = 0, o = 0;
    while (i < from.size()) {
      size_t i_end = i + 1, o_end = o;
      int64_t volume = from[i], covered = 1;
      while (covered != volume || (o_end < to.size() && to[o_end] == 1)) {
        if (covered < volume || covered == volume)
          covered *= to[o_end++];
        else
          volume *= from[i_end++];
      }
      Expr linear = ir::Int(0);
      for (size_t d = o; d < o_end; ++d) {
        if (to[d] != 1) linear = linear * ir::Int(to[d]) + s[d];
      }
      int64_t inner = volume;
      for (size_t d = i; d < i_end; ++d) {
        const int64_t outer = inner;
        inner /= from[d];
        if (from[d] == 1) {
          index.push_back(ir::Int(0));
          continue;
        }
        Expr at = outer == volume ? linear : ir::FloorMod(linear, ir::Int(outer));
        index.push_back(inner == 1 ? at : ir::FloorDiv(at, ir::Int(inner)));
      }
      i = i_end;
      o = o_end;
    }
    return in[0].At(std::move(index));
  })};
}

// ---- transpose {perm}
// --------------------------------------------------------------------------------------------------

Inferred InferTranspose(Types in, const Attrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  const Shape perm = IntsAttr(attrs, "perm");
  Shape sorted = perm, identity(in[0].shape.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(identity.begin(), identity.end(), 0);
  if (sorted != identity)
    return BadInput(absl::StrCat("the permutation does not fit ", ToText(in[0])));
  TensorType out{in[0].dtype, {}};
  for (int64_t d : perm) out.shape.push_back(in[0].shape[d]);
  return std::vector{out};
}

Expressed ExpressTranspose(tensor::Builder& b, Tensors in, const Attrs& attrs) {
  const Shape perm = IntsAttr(attrs, "perm");
  Shape out;
  for (int64_t d : perm) out.push_back(in[0].shape()[d]);
  return std::vector{b.Compute("transpose", out, [&](tensor::Iters s) {
    std::vector<Expr> index(perm.size());
    for (size_t d = 0; d < perm.size(); ++d) index[perm[d]] = s[d];
    return in[0].At(std::move(index));
  })};
}

// ---- concat {axis}
// -----------------------------------------------------------------------------------------------------

Inferred InferConcat(Types in, const Attrs& attrs) {
  if (in.empty()) return BadInput("has no inputs");
  TensorType out = in[0];
  HEDDLE_ASSIGN_OR_RETURN(
      int64_t axis, NormalizeAxis(IntAttr(attrs, "axis"), static_cast<int>(out.shape.size())));
  for (const TensorType& t : in.subspan(1)) {
    bool fits = t.dtype == out.dtype && t.shape.size() == out.shape.size();
    for (size_t d = 0; fits && d < out.shape.size(); ++d) {
      fits = static_cast<int64_t>(d) == axis || t.shape[d] == out.shape[d];
    }
    if (!fits) return BadInput(absl::StrCat("cannot join ", ToText(in[0]), " and ", ToText(t)));
    out.shape[axis] += t.shape[axis];
  }
  return std::vector{out};
}

Expressed ExpressConcat(tensor::Builder& b, Tensors in, const Attrs& attrs) {
  Shape out = in[0].shape();
  HEDDLE_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(IntAttr(attrs, "axis"), in[0].rank()));
  out[axis] = 0;
  for (const tensor::Tensor& t : in) out[axis] += t.shape()[axis];
  return std::vector{b.Compute("concat", out, [&](tensor::Iters s) {
    Expr value;
    int64_t end = out[axis];
    // From the last part to the first: each guards the ones behind it.
    for (size_t k = in.size(); k-- > 0;) {
      const int64_t begin = end - in[k].shape()[axis];
      if (begin == end) continue;
      std::vector<Expr> index(s.begin(), s.end());
      index[axis] = s[axis] - ir::Int(begin);
      Expr part = in[k].At(std::move(index));
      value = value ? ir::Select(ir::Lt(s[axis], ir::Int(end)), part, value) : part;
      end = begin;
    }
    return value;
  })};
}

// ---- slice {starts, steps, sizes}: per dimension
// ------------------------------------------------------------------------

Inferred InferSlice(Types in, const Attrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  const Shape starts = IntsAttr(attrs, "starts"), steps = IntsAttr(attrs, "steps"),
              sizes = IntsAttr(attrs, "sizes");
  const size_t rank = in[0].shape.size();
  if (starts.size() != rank || steps.size() != rank || sizes.size() != rank) {
    return BadInput(absl::StrCat("starts, steps and sizes do not fit ", ToText(in[0])));
  }
  for (size_t d = 0; d < rank; ++d) {
    const int64_t last = starts[d] + (sizes[d] - 1) * steps[d];
    const bool inside =
        starts[d] >= 0 && starts[d] < in[0].shape[d] && last >= 0 && last < in[0].shape[d];
    if (sizes[d] != 0 && !inside) return BadInput(absl::StrCat("reaches outside ", ToText(in[0])));
  }
  return std::vector{TensorType{in[0].dtype, sizes}};
}

Expressed ExpressSlice(tensor::Builder& b, Tensors in, const Attrs& attrs) {
  const Shape starts = IntsAttr(attrs, "starts"), steps = IntsAttr(attrs, "steps");
  return std::vector{b.Compute("slice", IntsAttr(attrs, "sizes"), [&](tensor::Iters s) {
    std::vector<Expr> index;
    for (size_t d = 0; d < s.size(); ++d)
      index.push_back(s[d] * ir::Int(steps[d]) + ir::Int(starts[d]));
    return in[0].At(std::move(index));
  })};
}

// ---- pad {begin, end, mode, value}
// --------------------------------------------------------------------------------------- mode:
// "constant" (the value, or a scalar second operand), "edge", "reflect".

Inferred InferPad(Types in, const Attrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 2));
  const Shape begin = IntsAttr(attrs, "begin"), end = IntsAttr(attrs, "end");
  const std::string mode = StringAttr(attrs, "mode", "constant");
  if (begin.size() != in[0].shape.size() || end.size() != begin.size())
    return BadInput("pads do not fit the rank");
  if (mode != "constant" && mode != "edge" && mode != "reflect")
    return BadInput(absl::StrCat("unknown mode ", mode));
  TensorType out = in[0];
  for (size_t d = 0; d < begin.size(); ++d) {
    // Cropping (negative) is the importer's slice.
    const int64_t reach = mode == "reflect" ? in[0].shape[d] - 1 : int64_t{1} << 30;
    if (begin[d] < 0 || end[d] < 0 || begin[d] > reach || end[d] > reach) {
      return BadInput(absl::StrCat("pads of dimension ", d, " are out of range"));
    }
    out.shape[d] += begin[d] + end[d];
  }
  return std::vector{out};
}

Expr PadSource(const Expr& i, int64_t extent, const std::string& mode) {
  if (mode == "edge") return Make(Op::kMin, {Make(Op::kMax, {i, ir::Int(0)}), ir::Int(extent - 1)});
  // Reflection about the first and the last element; the clamp changes nothing, but bounds the
  // index where everybody can see it.
  Expr up = Make(Op::kMax, {i, ir::Int(0) - i});
  Expr down = Make(Op::kMin, {up, ir::Int(2 * (extent - 1)) - up});
  return Make(Op::kMin, {Make(Op::kMax, {down, ir::Int(0)}), ir::Int(extent - 1)});
}

Expressed ExpressPad(tensor::Builder& b, Tensors in, const Attrs& attrs) {
  const tensor::Tensor& x = in[0];
  const Shape begin = IntsAttr(attrs, "begin"), end = IntsAttr(attrs, "end");
  const std::string mode = StringAttr(attrs, "mode", "constant");
  Shape out = x.shape();
  for (size_t d = 0; d < out.size(); ++d) out[d] += begin[d] + end[d];
  if (mode == "constant") {
    Expr fill = in.size() == 2 ? in[1].At(std::vector<Expr>(in[1].rank(), ir::Int(0)))
                               : NumberAttr(attrs, "value", x.dtype());
    tensor::Tensor padded = PadTo(b, x, begin, out, fill);
    if (padded.buffer() != x.buffer()) return std::vector{padded};
    return std::vector{b.Compute("pad", out, [&](tensor::Iters s) {
      return x.At({s.begin(), s.end()});
    })};
  }
  return std::vector{b.Compute("pad", out, [&](tensor::Iters s) {
    std::vector<Expr> index;
    for (size_t d = 0; d < s.size(); ++d) {
      const bool plain = begin[d] == 0 && end[d] == 0;
      index.push_back(plain ? s[d] : PadSource(s[d] - ir::Int(begin[d]), x.shape()[d], mode));
    }
    return x.At(std::move(index));
  })};
}

// ---- expand {shape}, tile {repeats}
// -----------------------------------------------------------------------------------

Inferred InferExpand(Types in, const Attrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  HEDDLE_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(in[0].shape, IntsAttr(attrs, "shape")));
  if (shape != IntsAttr(attrs, "shape"))
    return BadInput(absl::StrCat("cannot expand ", ToText(in[0])));
  return std::vector{TensorType{in[0].dtype, shape}};
}

Expressed ExpressExpand(tensor::Builder& b, Tensors in, const Attrs& attrs) {
  return std::vector{b.Compute("expand", IntsAttr(attrs, "shape"), [&](tensor::Iters s) {
    return in[0].At(BroadcastIndex(s, IntsAttr(attrs, "shape"), in[0].shape()));
  })};
}

Inferred InferTile(Types in, const Attrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  const Shape repeats = IntsAttr(attrs, "repeats");
  if (repeats.size() != in[0].shape.size()) return BadInput("repeats do not fit the rank");
  TensorType out = in[0];
  for (size_t d = 0; d < repeats.size(); ++d) {
    if (repeats[d] < 0) return BadInput("repeats are negative");
    if (__builtin_mul_overflow(out.shape[d], repeats[d], &out.shape[d]))
      return BadInput(absl::StrCat("repeats dimension ", d, " too often"));
  }
  return std::vector{out};
}

Expressed ExpressTile(tensor::Builder& b, Tensors in, const Attrs& attrs) {
  const Shape repeats = IntsAttr(attrs, "repeats"), &shape = in[0].shape();
  Shape out = shape;
  for (size_t d = 0; d < out.size(); ++d) out[d] *= repeats[d];
  return std::vector{b.Compute("tile", out, [&](tensor::Iters s) {
    std::vector<Expr> index;
    for (size_t d = 0; d < s.size(); ++d) {
      if (shape[d] == 1)
        index.push_back(ir::Int(0));
      else
        index.push_back(repeats[d] == 1 ? s[d] : ir::FloorMod(s[d], ir::Int(shape[d])));
    }
    return in[0].At(std::move(index));
  })};
}

// ---- trilu {upper, k}
// ---------------------------------------------------------------------------------------------------

Inferred InferTrilu(Types in, const Attrs&) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  if (in[0].shape.size() < 2) return BadInput("needs matrices");
  return std::vector{in[0]};
}

Expressed ExpressTrilu(tensor::Builder& b, Tensors in, const Attrs& attrs) {
  const tensor::Tensor& x = in[0];
  // A diagonal beyond the matrix keeps all or nothing, as one just beyond it does; so sums of
  // indices stay small.
  const int64_t rows = x.shape()[x.rank() - 2], columns = x.shape().back();
  const int64_t k = std::clamp(IntAttr(attrs, "k"), -rows - 1, columns + 1);
  return std::vector{b.Compute("trilu", x.shape(), [&](tensor::Iters s) {
    const Expr diagonal = s[s.size() - 2] + ir::Int(k), column = s.back();
    Expr keep =
        IntAttr(attrs, "upper", 1) != 0 ? ir::Le(diagonal, column) : ir::Le(column, diagonal);
    return ir::Select(keep, x.At({s.begin(), s.end()}), ir::Zero(x.dtype()));
  })};
}

}  // namespace

void AppendMovementOps(std::vector<OpDef>& ops) {
  ops.push_back(Injective("reshape", InferReshape, ExpressReshape));
  ops.push_back(Injective("transpose", InferTranspose, ExpressTranspose));
  ops.push_back(Injective("concat", InferConcat, ExpressConcat));
  ops.push_back(Injective("slice", InferSlice, ExpressSlice));
  ops.push_back(Injective("pad", InferPad, ExpressPad));
  ops.push_back(Injective("expand", InferExpand, ExpressExpand));
  ops.push_back(Injective("tile", InferTile, ExpressTile));
  ops.push_back(Injective("trilu", InferTrilu, ExpressTrilu));
}

}  // namespace heddle::graph
