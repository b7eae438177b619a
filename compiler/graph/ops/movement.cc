// Data movement by indices known at compile time: reshape, transpose, concat, slice, pad, expand,
// tile, trilu.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

using ir::Expr;
using ir::Make;
using ir::Op;

// ---- reshape {shape} ----

absl::StatusOr<TensorType> InferReshape(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  TensorType out{in[0].dtype, attrs.Ints("shape")};
  // This refuses negative extents, of which two would have a positive product.
  HEDDLE_RETURN_IF_ERROR(CheckSize(out));
  if (NumElements(out) != NumElements(in[0])) {
    return BadInput(absl::StrCat("cannot reshape ", ToText(in[0]), " to ", ShapeText(out.shape)));
  }
  return out;
}

// Matches dimensions from the left in the shortest runs of equal volume, so that unchanged
// dimensions keep plain indices.
absl::StatusOr<tensor::Tensor> ExpressReshape(tensor::Builder& b, Tensors in,
                                              const OpAttrs& attrs) {
  const Shape &from = in[0].shape(), to = attrs.Ints("shape");
  return b.Compute("reshape", to, [&](tensor::Iters s) {
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
  });
}

// ---- transpose {perm} ----

absl::StatusOr<TensorType> InferTranspose(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  const Shape perm = attrs.Ints("perm");
  Shape sorted = perm, identity(in[0].shape.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(identity.begin(), identity.end(), 0);
  if (sorted != identity)
    return BadInput(absl::StrCat("the permutation does not fit ", ToText(in[0])));
  TensorType out{in[0].dtype, {}};
  for (int64_t d : perm) out.shape.push_back(in[0].shape[d]);
  return out;
}

absl::StatusOr<tensor::Tensor> ExpressTranspose(tensor::Builder& b, Tensors in,
                                                const OpAttrs& attrs) {
  const Shape perm = attrs.Ints("perm");
  Shape out;
  for (int64_t d : perm) out.push_back(in[0].shape()[d]);
  return b.Compute("transpose", out, [&](tensor::Iters s) {
    std::vector<Expr> index(perm.size());
    for (size_t d = 0; d < perm.size(); ++d) index[perm[d]] = s[d];
    return in[0].At(std::move(index));
  });
}

// Copies element by element with strides. It must be fast, because transposes move the weights of
// whole models.
TensorData EvaluateTranspose(std::span<const TensorData> in, const TensorType& type,
                             const OpAttrs& attrs) {
  const TensorData& x = in[0];
  const Shape strides = RowMajorStrides(x.type.shape);
  Shape step;
  for (int64_t d : attrs.Ints("perm")) step.push_back(strides[d]);
  const int64_t size = ir::SizeOf(type.dtype), n = NumElements(type);
  std::string bytes(static_cast<size_t>(n * size), '\0');
  Shape at(step.size(), 0);
  int64_t source = 0;
  for (int64_t i = 0; i < n; ++i) {
    std::memcpy(bytes.data() + i * size, x.bytes->data() + source * size, size);
    for (size_t d = step.size(); d-- > 0;) {
      source += step[d];
      if (++at[d] < type.shape[d]) break;
      source -= step[d] * type.shape[d];
      at[d] = 0;
    }
  }
  return {type, SharedBytes::Of(std::move(bytes))};
}

// ---- concat {axis} ----

absl::StatusOr<TensorType> InferConcat(Types in, const OpAttrs& attrs) {
  if (in.empty()) return BadInput("has no inputs");
  TensorType out = in[0];
  HEDDLE_ASSIGN_OR_RETURN(int64_t axis,
                          NormalizeAxis(attrs.Int("axis"), static_cast<int>(out.shape.size())));
  for (const TensorType& t : in.subspan(1)) {
    bool fits = t.dtype == out.dtype && t.shape.size() == out.shape.size();
    for (size_t d = 0; fits && d < out.shape.size(); ++d) {
      fits = static_cast<int64_t>(d) == axis || t.shape[d] == out.shape[d];
    }
    if (!fits) return BadInput(absl::StrCat("cannot join ", ToText(in[0]), " and ", ToText(t)));
    out.shape[axis] += t.shape[axis];
  }
  return out;
}

TensorData EvaluateConcat(std::span<const TensorData> in, const TensorType& type,
                          const OpAttrs& attrs) {
  const auto rank = static_cast<int64_t>(type.shape.size());
  const int64_t given = attrs.Int("axis"), axis = given < 0 ? given + rank : given;
  int64_t outer = 1;
  for (int64_t d = 0; d < axis; ++d) outer *= type.shape[static_cast<size_t>(d)];
  std::string bytes;
  for (int64_t o = 0; o < outer; ++o) {
    for (const TensorData& part : in) {
      const size_t run = part.bytes->size() / static_cast<size_t>(outer);
      bytes.append(*part.bytes, static_cast<size_t>(o) * run, run);
    }
  }
  return {type, SharedBytes::Of(std::move(bytes))};
}

absl::StatusOr<tensor::Tensor> ExpressConcat(tensor::Builder& b, Tensors in, const OpAttrs& attrs) {
  Shape out = in[0].shape();
  HEDDLE_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(attrs.Int("axis"), in[0].rank()));
  out[axis] = 0;
  for (const tensor::Tensor& t : in) out[axis] += t.shape()[axis];
  return b.Compute("concat", out, [&](tensor::Iters s) {
    Expr value;
    int64_t end = out[axis];
    // From the last part to the first: each part selects between itself and the parts after it.
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
  });
}

// ---- slice {starts, steps, sizes}, each per dimension ----

absl::StatusOr<TensorType> InferSlice(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  const Shape starts = attrs.Ints("starts"), steps = attrs.Ints("steps"),
              sizes = attrs.Ints("sizes");
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
  return TensorType{in[0].dtype, sizes};
}

absl::StatusOr<tensor::Tensor> ExpressSlice(tensor::Builder& b, Tensors in, const OpAttrs& attrs) {
  const Shape starts = attrs.Ints("starts"), steps = attrs.Ints("steps");
  return b.Compute("slice", attrs.Ints("sizes"), [&](tensor::Iters s) {
    std::vector<Expr> index;
    for (size_t d = 0; d < s.size(); ++d)
      index.push_back(s[d] * ir::Int(steps[d]) + ir::Int(starts[d]));
    return in[0].At(std::move(index));
  });
}

// ---- pad {begin, end, mode, value} ----
//
// mode: "constant" (the value, or a scalar second operand), "edge" or "reflect".

absl::StatusOr<TensorType> InferPad(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 2));
  const Shape begin = attrs.Ints("begin"), end = attrs.Ints("end");
  const std::string mode = attrs.Text("mode");
  if (begin.size() != in[0].shape.size() || end.size() != begin.size())
    return BadInput("pads do not fit the rank");
  if (mode != "constant" && mode != "edge" && mode != "reflect")
    return BadInput(absl::StrCat("unknown mode ", mode));
  TensorType out = in[0];
  for (size_t d = 0; d < begin.size(); ++d) {
    // Negative padding would crop; the importer writes that as a slice.
    const int64_t reach = mode == "reflect" ? in[0].shape[d] - 1 : int64_t{1} << 30;
    if (begin[d] < 0 || end[d] < 0 || begin[d] > reach || end[d] > reach) {
      return BadInput(absl::StrCat("pads of dimension ", d, " are out of range"));
    }
    out.shape[d] += begin[d] + end[d];
  }
  return out;
}

Expr PadSource(const Expr& i, int64_t extent, const std::string& mode) {
  if (mode == "edge") return Make(Op::kMin, {Make(Op::kMax, {i, ir::Int(0)}), ir::Int(extent - 1)});
  // Reflects the index at the first and the last element. The clamp changes nothing, but lets
  // analyses see that the index is in range.
  Expr up = Make(Op::kMax, {i, ir::Int(0) - i});
  Expr down = Make(Op::kMin, {up, ir::Int(2 * (extent - 1)) - up});
  return Make(Op::kMin, {Make(Op::kMax, {down, ir::Int(0)}), ir::Int(extent - 1)});
}

absl::StatusOr<tensor::Tensor> ExpressPad(tensor::Builder& b, Tensors in, const OpAttrs& attrs) {
  const tensor::Tensor& x = in[0];
  const Shape begin = attrs.Ints("begin"), end = attrs.Ints("end");
  const std::string mode = attrs.Text("mode");
  Shape out = x.shape();
  for (size_t d = 0; d < out.size(); ++d) out[d] += begin[d] + end[d];
  if (mode == "constant") {
    Expr fill = in.size() == 2 ? in[1].At(std::vector<Expr>(in[1].rank(), ir::Int(0)))
                               : NumberAttr(attrs, "value", x.dtype());
    tensor::Tensor padded = PadTo(b, x, begin, out, fill);
    if (padded.buffer() != x.buffer()) return padded;
    return b.Compute("pad", out, [&](tensor::Iters s) { return x.At({s.begin(), s.end()}); });
  }
  return b.Compute("pad", out, [&](tensor::Iters s) {
    std::vector<Expr> index;
    for (size_t d = 0; d < s.size(); ++d) {
      const bool plain = begin[d] == 0 && end[d] == 0;
      index.push_back(plain ? s[d] : PadSource(s[d] - ir::Int(begin[d]), x.shape()[d], mode));
    }
    return x.At(std::move(index));
  });
}

// ---- expand {shape}, tile {repeats} ----

absl::StatusOr<TensorType> InferExpand(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  HEDDLE_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(in[0].shape, attrs.Ints("shape")));
  if (shape != attrs.Ints("shape")) return BadInput(absl::StrCat("cannot expand ", ToText(in[0])));
  return TensorType{in[0].dtype, shape};
}

absl::StatusOr<tensor::Tensor> ExpressExpand(tensor::Builder& b, Tensors in, const OpAttrs& attrs) {
  return b.Compute("expand", attrs.Ints("shape"), [&](tensor::Iters s) {
    return in[0].At(BroadcastIndex(s, attrs.Ints("shape"), in[0].shape()));
  });
}

absl::StatusOr<TensorType> InferTile(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  const Shape repeats = attrs.Ints("repeats");
  if (repeats.size() != in[0].shape.size()) return BadInput("repeats do not fit the rank");
  TensorType out = in[0];
  for (size_t d = 0; d < repeats.size(); ++d) {
    if (repeats[d] < 0) return BadInput("repeats are negative");
    if (__builtin_mul_overflow(out.shape[d], repeats[d], &out.shape[d]))
      return BadInput(absl::StrCat("repeats dimension ", d, " too often"));
  }
  return out;
}

absl::StatusOr<tensor::Tensor> ExpressTile(tensor::Builder& b, Tensors in, const OpAttrs& attrs) {
  const Shape repeats = attrs.Ints("repeats"), &shape = in[0].shape();
  Shape out = shape;
  for (size_t d = 0; d < out.size(); ++d) out[d] *= repeats[d];
  return b.Compute("tile", out, [&](tensor::Iters s) {
    std::vector<Expr> index;
    for (size_t d = 0; d < s.size(); ++d) {
      if (shape[d] == 1)
        index.push_back(ir::Int(0));
      else
        index.push_back(repeats[d] == 1 ? s[d] : ir::FloorMod(s[d], ir::Int(shape[d])));
    }
    return in[0].At(std::move(index));
  });
}

// ---- trilu {upper, k} ----

absl::StatusOr<TensorType> InferTrilu(Types in, const OpAttrs&) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  if (in[0].shape.size() < 2) return BadInput("needs matrices");
  return in[0];
}

absl::StatusOr<tensor::Tensor> ExpressTrilu(tensor::Builder& b, Tensors in, const OpAttrs& attrs) {
  const tensor::Tensor& x = in[0];
  // A diagonal far outside of the matrix has the same effect as one just outside of it. The clamp
  // keeps sums of indices small.
  const int64_t rows = x.shape()[x.rank() - 2], columns = x.shape().back();
  const int64_t k = std::clamp(attrs.Int("k"), -rows - 1, columns + 1);
  return b.Compute("trilu", x.shape(), [&](tensor::Iters s) {
    const Expr diagonal = s[s.size() - 2] + ir::Int(k), column = s.back();
    Expr keep = attrs.Flag("upper") ? ir::Le(diagonal, column) : ir::Le(column, diagonal);
    return ir::Select(keep, x.At({s.begin(), s.end()}), ir::Zero(x.dtype()));
  });
}

// ---- Definitions ----

bool CopiesAlways(const OpAttrs&) { return true; }

AttrSpec Ints(std::string_view name, AttrRole role = AttrRole::kPlain) {
  return {.name = name, .fallback = Shape{}, .role = role, .required = true};
}

OpDef Movement(OpKind kind, InferFn infer, ExpressFn express, std::vector<AttrSpec> attrs) {
  return MakeOp(kind, FusionClass::kInjective, infer, express, std::move(attrs));
}

OpDef ReshapeOp() {
  OpDef op = Movement(OpKind::kReshape, InferReshape, ExpressReshape, {Ints("shape")});
  op.relabels = true;
  op.laws.copies = CopiesAlways;
  return op;
}

OpDef TransposeOp() {
  OpDef op = Movement(OpKind::kTranspose, InferTranspose, ExpressTranspose, {Ints("perm")});
  op.evaluate = EvaluateTranspose;
  op.laws.copies = [](const OpAttrs& attrs) {
    return std::is_sorted(attrs.Ints("perm").begin(), attrs.Ints("perm").end());
  };
  return op;
}

OpDef ConcatOp() {
  OpDef op = Movement(OpKind::kConcat, InferConcat, ExpressConcat,
                      {{"axis", int64_t{0}, AttrRole::kAxis}});
  op.evaluate = EvaluateConcat;
  op.layout = AlignedLayout();
  op.layout.blocked = [](const OpUse& use, int64_t block) {
    return Blocks(use.output, block) &&
           std::all_of(use.inputs.begin(), use.inputs.end(),
                       [&](const TensorType& part) { return part.shape[1] % block == 0; });
  };
  op.laws.copies = CopiesAlways;  // types are equal only if there is one part
  return op;
}

OpDef SliceOp() {
  OpDef op = Movement(OpKind::kSlice, InferSlice, ExpressSlice,
                      {Ints("starts", AttrRole::kOffsets), Ints("steps", AttrRole::kFactors),
                       Ints("sizes", AttrRole::kExtents)});
  op.layout.last = Always;
  op.layout.blocked = [](const OpUse& use, int64_t block) {
    return OperandAndResultBlock(use, block) && use.attrs.Ints("steps")[1] == 1 &&
           use.attrs.Ints("starts")[1] % block == 0;
  };
  op.laws.copies = [](const OpAttrs& attrs) {
    return std::all_of(attrs.Ints("steps").begin(), attrs.Ints("steps").end(),
                       [](int64_t step) { return step == 1; });
  };
  return op;
}

OpDef PadOp() {
  OpDef op = Movement(
      OpKind::kPad, InferPad, ExpressPad,
      {Ints("begin", AttrRole::kOffsets), Ints("end", AttrRole::kOffsets),
       AttrSpec{"mode", std::string("constant")}, AttrSpec{"value", 0.0, AttrRole::kPlain, true}});
  op.layout.last = Always;
  op.layout.blocked = [](const OpUse& use, int64_t block) {
    return OperandAndResultBlock(use, block) && use.attrs.Ints("begin")[1] == 0 &&
           use.attrs.Ints("end")[1] == 0;
  };
  op.laws.copies = CopiesAlways;
  return op;
}

OpDef ExpandOp() {
  OpDef op =
      Movement(OpKind::kExpand, InferExpand, ExpressExpand, {Ints("shape", AttrRole::kExtents)});
  // The attribute has a number for each dimension of the result.
  op.layout.last = [](const OpUse& use) {
    return use.inputs[0].shape.size() == use.output.shape.size();
  };
  op.laws.copies = CopiesAlways;
  return op;
}

OpDef TileOp() {
  OpDef op = Movement(OpKind::kTile, InferTile, ExpressTile, {Ints("repeats", AttrRole::kFactors)});
  op.layout.last = Always;
  op.laws.copies = CopiesAlways;
  return op;
}

OpDef TriluOp() {
  return Movement(OpKind::kTrilu, InferTrilu, ExpressTrilu,
                  {{"upper", int64_t{1}}, {"k", int64_t{0}}});
}

}  // namespace

void AppendMovementOps(std::vector<OpDef>& ops) {
  ops.push_back(ReshapeOp());
  ops.push_back(TransposeOp());
  ops.push_back(ConcatOp());
  ops.push_back(SliceOp());
  ops.push_back(PadOp());
  ops.push_back(ExpandOp());
  ops.push_back(TileOp());
  ops.push_back(TriluOp());
}

}  // namespace heddle::graph
