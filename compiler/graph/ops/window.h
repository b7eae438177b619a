// Sliding windows over spatial dimensions, for convolutions and pools.
//
// Attributes: "kernel" (pools only), "strides" and "dilations" (default: all ones), "pads" (begins,
// then ends; default: zeros), "layout" (channel_layout.h).
#pragma once

#include <algorithm>

#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {

// The declarations of all these attributes but "kernel".
std::vector<AttrSpec> WindowAttrs();
// The value of the attribute "layout"; channels first for any other text.
Layout LayoutOf(const OpAttrs& attrs);
// Value of LayoutRule::last: a node in another layout than the imported one is a form already.
bool IsChannelsFirst(const OpUse& use);

struct Window {
  int n = 0;  // spatial dimensions
  bool channels_last = false, channels_blocked = false;
  Shape kernel, strides, dilations, begin, end;

  // The axis of the channels; in the blocked layout, the axis of the blocks.
  int ChannelAxis() const { return channels_last ? n + 1 : 1; }
  int SpatialAxis(int i) const { return channels_last ? 1 + i : 2 + i; }
  // The extent of the kernel, including its holes.
  int64_t Reach(int i) const { return (kernel[i] - 1) * dilations[i] + 1; }
  // The number of positions over an input of `extent`, rounded up if `ceil`. Not positive if the
  // window does not fit.
  int64_t Positions(int i, int64_t extent, bool ceil) const;

  // A copy of `like`, which has one entry per dimension of a tensor in this layout, with other
  // spatial entries.
  template <typename List, typename T>
  std::vector<T> WithSpatial(const List& like, const std::vector<T>& spatial) const {
    std::vector<T> out(like.begin(), like.end());
    std::copy(spatial.begin(), spatial.end(), out.begin() + SpatialAxis(0));
    return out;
  }
  // {N, C, spatial..} in the order of this layout, which must not be blocked.
  template <typename T>
  std::vector<T> Arrange(T batch, T channel, const std::vector<T>& spatial) const {
    std::vector<T> out{std::move(batch)};
    if (!channels_last) out.push_back(channel);
    out.insert(out.end(), spatial.begin(), spatial.end());
    if (channels_last) out.push_back(channel);
    return out;
  }
};

// The window that the attributes give, for an input in `layout` of rank n + 2, or n + 3 if channels
// are blocked. InvalidArgument: a list has the wrong length, or a value is out of range.
absl::StatusOr<Window> ParseWindow(const OpAttrs& attrs, Layout layout, Shape kernel,
                                   int input_rank);

// Checks the operands of a convolution: the input must have this rank, and the weights its type.
absl::Status CheckConvOperands(Types in, int input_rank);

// x, padded with `fill` to exactly the elements that the windows at the positions of `out` read.
tensor::Tensor PadForWindow(tensor::Builder& b, const tensor::Tensor& x, const Window& w,
                            const Shape& out, const ir::Expr& fill);
// The spatial indices, in the padded tensor, of tap `k` of the window at position `o`.
std::vector<ir::Expr> TapIndex(const Window& w, const std::vector<ir::Expr>& o, tensor::Iters k);
// The spatial iterators among those of an output in this layout.
std::vector<ir::Expr> SpatialOf(const Window& w, tensor::Iters s);

}  // namespace heddle::graph
