// grid_sample reads images at positions that are data.

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

using ir::Expr;
using ir::Make;
using ir::Op;

Expr Floor(Expr a) { return Make(Op::kFloor, {std::move(a)}); }

// grid_sample {mode: "nearest", "linear", "cubic"; padding: "zeros", "border", "reflection";
// align_corners}: samples x [N, C, H, W] at grid [N, h, w, 2], or x [N, C, D, H, W] at grid
// [N, d, h, w, 3]. The last dimension of the grid is (x, y) or (x, y, z), where -1 and 1 are the edges of the image or, with align_corners, the centres of its
// corner elements.
struct Sampling {
  std::string mode, padding;
  bool align = false;

  int64_t Taps() const { return mode == "nearest" ? 1 : mode == "linear" ? 2 : 4; }
};

absl::StatusOr<Sampling> ParseSampling(const OpAttrs& attrs) {
  Sampling s{attrs.Text("mode"), attrs.Text("padding"), attrs.Flag("align_corners")};
  if (s.mode != "nearest" && s.mode != "linear" && s.mode != "cubic")
    return BadInput(absl::StrCat("no mode ", s.mode));
  if (s.padding != "zeros" && s.padding != "border" && s.padding != "reflection")
    return BadInput(absl::StrCat("no padding ", s.padding));
  return s;
}

// Positions and taps along one axis of `extent` elements.
class SampledAxis {
 public:
  SampledAxis(const Sampling& how, int64_t extent, ir::DType dtype)
      : how_(how), extent_(extent), dtype_(dtype) {}

  // The position, in elements, of a coordinate of the grid.
  Expr Position(const Expr& coordinate) const {
    const double n = static_cast<double>(extent_);
    const Expr from_edge = coordinate + N(1);
    Expr at = how_.align ? from_edge * N((n - 1) / 2) : from_edge * N(n / 2) - N(0.5);
    if (how_.mode == "nearest") at = Make(Op::kRound, {at});
    // A cubic tap clamps its own index. Two elements beyond the edge, all taps read the edge, so
    // positions further out give the same; that far out, floats would not tell taps apart.
    if (how_.padding == "border" && how_.mode == "cubic") return Min(Max(at, N(-2)), N(n + 1));
    if (how_.padding == "border") return Min(Max(at, N(0)), N(n - 1));
    return how_.padding == "reflection" ? Reflected(at) : at;
  }

  // The position of tap k around `position`, as a float. It may be outside of the image.
  Expr Tap(const Expr& position, const Expr& k) const {
    if (how_.mode == "nearest") return position;
    const double first = how_.mode == "linear" ? 0 : -1;
    return Floor(position) + ir::Cast(dtype_, k) + N(first);
  }

  // The weight of a tap by its distance. With padding "zeros", it is zero outside of the image.
  Expr Weight(const Expr& position, const Expr& tap) const {
    Expr weight = N(1);
    const Expr d = Make(Op::kAbs, {position - tap});
    if (how_.mode == "linear") weight = N(1) - d;
    if (how_.mode == "cubic") {
      constexpr double a = -0.75;
      const Expr near = ((N(a + 2) * d - N(a + 3)) * d) * d + N(1);
      const Expr far = ((N(a) * d - N(5 * a)) * d + N(8 * a)) * d - N(4 * a);
      weight = ir::Select(ir::Le(d, N(1)), near, far);
    }
    if (how_.padding != "zeros") return weight;
    const Expr inside =
        ir::And(ir::Le(N(0), tap), ir::Le(tap, N(static_cast<double>(extent_ - 1))));
    return ir::Select(inside, weight, N(0));
  }

  // The index that a tap reads. It is always inside of the image.
  Expr Index(const Expr& tap) const {
    const Expr at = how_.padding == "reflection" ? Reflected(tap) : tap;
    return Min(Max(ir::Cast(ir::DType::kI64, at), ir::Int(0)), ir::Int(extent_ - 1));
  }

 private:
  Expr N(double value) const { return Number(value, dtype_); }

  // The position, reflected at the edges of the axis until it is inside.
  Expr Reflected(const Expr& at) const {
    const double low = how_.align ? 0 : -0.5;
    const double range = static_cast<double>(how_.align ? extent_ - 1 : extent_);
    if (range == 0) return N(0);
    const Expr from_low = at - N(low);
    const Expr turn = from_low - Floor(from_low * N(0.5 / range)) * N(2 * range);
    return Min(turn, N(2 * range) - turn) + N(low);
  }

  const Sampling& how_;
  int64_t extent_;
  ir::DType dtype_;
};

absl::StatusOr<TensorType> InferGridSample(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 2, 2));
  HEDDLE_RETURN_IF_ERROR(ParseSampling(attrs).status());
  const Shape &x = in[0].shape, &grid = in[1].shape;
  const bool fits = (x.size() == 4 || x.size() == 5) && grid.size() == x.size() &&
                    grid[0] == x[0] && grid.back() == static_cast<int64_t>(x.size()) - 2;
  if (!fits) return BadInput(absl::StrCat("grid ", ToText(in[1]), " does not fit ", ToText(in[0])));
  if (in[0].dtype != in[1].dtype || !ir::IsFloat(in[0].dtype))
    return BadInput(absl::StrCat("is not defined on ", ToText(in[0]), " and ", ToText(in[1])));
  Shape out{x[0], x[1]};
  out.insert(out.end(), grid.begin() + 1, grid.end() - 1);
  return TensorType{in[0].dtype, out};
}

absl::StatusOr<tensor::Tensor> ExpressGridSample(tensor::Builder& b, Tensors in,
                                                 const OpAttrs& attrs) {
  const tensor::Tensor &x = in[0], &grid = in[1];
  HEDDLE_ASSIGN_OR_RETURN(const Sampling how, ParseSampling(attrs));
  const Shape points(grid.shape().begin(), grid.shape().end() - 1);
  const auto dims = static_cast<size_t>(x.rank() - 2);
  std::vector<SampledAxis> axes;
  for (size_t d = 0; d < dims; ++d) axes.emplace_back(how, x.shape()[d + 2], x.dtype());
  // The first coordinate is that of the last axis.
  constexpr const char* kNames[] = {"grid_sample_x", "grid_sample_y", "grid_sample_z"};
  std::vector<tensor::Tensor> positions(dims);
  for (size_t c = 0; c < dims; ++c) {
    const size_t d = dims - 1 - c;
    positions[d] = b.Compute(kNames[c], points, [&](tensor::Iters s) {
      std::vector<Expr> at(s.begin(), s.end());
      at.push_back(ir::Int(static_cast<int64_t>(c)));
      return axes[d].Position(grid.At(std::move(at)));
    });
  }
  Shape out{x.shape()[0], x.shape()[1]};
  out.insert(out.end(), points.begin() + 1, points.end());
  return b.Reduce("grid_sample", out, Shape(dims, how.Taps()), ir::ReduceOp::kSum,
                  [&](tensor::Iters s, tensor::Iters r) {
                    std::vector<Expr> point{s[0]}, index{s[0], s[1]};
                    point.insert(point.end(), s.begin() + 2, s.end());
                    Expr weight;
                    for (size_t d = 0; d < dims; ++d) {
                      const Expr p = positions[d].At(point), tap = axes[d].Tap(p, r[d]);
                      const Expr w = axes[d].Weight(p, tap);
                      weight = d == 0 ? w : weight * w;
                      index.push_back(axes[d].Index(tap));
                    }
                    return weight * x.At(std::move(index));
                  });
}

}  // namespace

void AppendSamplingOps(std::vector<OpDef>& ops) {
  ops.push_back(MakeOp(OpKind::kGridSample, FusionClass::kComplexOutFusable, InferGridSample,
                       ExpressGridSample,
                       {{"mode", std::string("linear")},
                        {"padding", std::string("zeros")},
                        {"align_corners", int64_t{0}}}));
}

}  // namespace heddle::graph
