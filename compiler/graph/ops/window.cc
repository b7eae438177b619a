#include "compiler/graph/ops/window.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace heddle::graph {

using ir::Expr;

int64_t Window::Positions(int i, int64_t extent, bool ceil) const {
  const int64_t room = extent + begin[i] + end[i] - Reach(i);
  const int64_t reached = ceil ? room + strides[i] - 1 : room;
  if (reached < 0) return 0;
  const int64_t positions = reached / strides[i] + 1;
  // The last position of a rounded-up count must start inside of the input or its leading padding.
  return ceil && (positions - 1) * strides[i] >= extent + begin[i] ? positions - 1 : positions;
}

std::vector<AttrSpec> WindowAttrs() {
  return {{"strides", Shape{}},
          {"dilations", Shape{}},
          {"pads", Shape{}},
          {"layout", std::string(LayoutName(Layout::kChannelsFirst)), AttrRole::kLayout}};
}

Layout LayoutOf(const OpAttrs& attrs) {
  for (const Layout layout : kLayouts) {
    if (attrs.Text("layout") == LayoutName(layout)) return layout;
  }
  return Layout::kChannelsFirst;
}

bool IsChannelsFirst(const OpUse& use) { return LayoutOf(use.attrs) == Layout::kChannelsFirst; }

absl::StatusOr<Window> ParseWindow(const OpAttrs& attrs, Layout layout, Shape kernel,
                                   int input_rank) {
  Window w;
  w.channels_last = layout == Layout::kChannelsLast;
  w.channels_blocked = layout == Layout::kChannelsBlocked;
  w.n = input_rank - (w.channels_blocked ? 3 : 2);
  if (w.n < 1 || w.n > 3) {
    return BadInput(
        absl::StrCat("needs 1 to 3 spatial dimensions, the input has rank ", input_rank));
  }
  const size_t n = static_cast<size_t>(w.n);
  const auto list = [&](std::string_view name, size_t length, int64_t fallback) {
    return attrs.Has(name) ? attrs.Ints(name) : Shape(length, fallback);
  };
  w.kernel = std::move(kernel);
  w.strides = list("strides", n, 1);
  w.dilations = list("dilations", n, 1);
  const Shape pads = list("pads", 2 * n, 0);
  if (w.kernel.size() != n || w.strides.size() != n || w.dilations.size() != n ||
      pads.size() != 2 * n) {
    return BadInput(
        absl::StrCat("kernel, strides, dilations or pads do not fit ", n, " spatial dimensions"));
  }
  w.begin.assign(pads.begin(), pads.begin() + w.n);
  w.end.assign(pads.begin() + w.n, pads.end());
  // Far above the values of any model, and far below those whose products overflow.
  constexpr int64_t kLimit = int64_t{1} << 20;
  for (size_t i = 0; i < n; ++i) {
    for (int64_t v : {w.kernel[i], w.strides[i], w.dilations[i]}) {
      if (v < 1 || v > kLimit)
        return BadInput(absl::StrCat("kernel, stride or dilation ", v, " is out of range"));
    }
    for (int64_t v : {w.begin[i], w.end[i]}) {
      if (v < 0 || v > kLimit) return BadInput(absl::StrCat("padding ", v, " is out of range"));
    }
  }
  return w;
}

tensor::Tensor PadForWindow(tensor::Builder& b, const tensor::Tensor& x, const Window& w,
                            const Shape& out, const Expr& fill) {
  Shape begin(x.rank(), 0), extents = x.shape();
  bool needed = false;
  for (int i = 0; i < w.n; ++i) {
    const int d = w.SpatialAxis(i);
    const int64_t reads = (out[d] - 1) * w.strides[i] + w.Reach(i);
    needed |= w.begin[i] != 0 || reads > x.shape()[d];
    begin[d] = w.begin[i];
    extents[d] = reads;
  }
  return needed ? PadTo(b, x, begin, extents, fill) : x;
}

std::vector<Expr> TapIndex(const Window& w, const std::vector<Expr>& o, tensor::Iters k) {
  std::vector<Expr> index;
  for (int i = 0; i < w.n; ++i) {
    index.push_back(o[i] * ir::Int(w.strides[i]) + k[i] * ir::Int(w.dilations[i]));
  }
  return index;
}

std::vector<Expr> SpatialOf(const Window& w, tensor::Iters s) {
  std::vector<Expr> out;
  for (int i = 0; i < w.n; ++i) out.push_back(s[w.SpatialAxis(i)]);
  return out;
}

absl::Status CheckConvOperands(Types in, int input_rank) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 2, 2));
  if (static_cast<int>(in[0].shape.size()) != input_rank) {
    return BadInput(absl::StrCat("needs an input of rank ", input_rank, ", got ", ToText(in[0])));
  }
  if (in[0].dtype != in[1].dtype || in[0].dtype == ir::DType::kBool) {
    return BadInput(absl::StrCat("cannot multiply ", ToText(in[0]), " by ", ToText(in[1])));
  }
  return absl::OkStatus();
}

}  // namespace heddle::graph
