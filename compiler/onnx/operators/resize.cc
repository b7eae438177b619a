// Translation of Resize, Upsample and GridSample. The interpolation of the first two is separable:
// along each resized axis, the result is a weighted sum of a few gathers. Their indices and weights
// are known at import (1 tap for nearest, 2 for linear, 4 for cubic; more with antialias, whose
// filter gets wider the more the image shrinks).
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/node.h"

namespace heddle::graph {
namespace {

// How output positions along one axis map to input positions.
struct AxisMap {
  int64_t in = 1, out = 1;
  // out / in, or exactly the model's scale if it gives one; then out = floor(in * scale).
  double scale = 1;
  double begin = 0, end = 1;  // tf_crop_and_resize: the part of the axis that is resized
};

struct Interpolation {
  std::string mode, coordinates, nearest;
  double cubic_a = -0.75;
  bool exclude_outside = false;
  bool antialias = false;
};

// How often a filter is stretched at most. Each tap is a gather.
constexpr double kWidest = 16;

double Coordinate(const Interpolation& how, const AxisMap& a, double o) {
  const double length = static_cast<double>(a.in) * a.scale;  // not rounded, as the standard says
  if (how.coordinates == "align_corners")
    return length > 1 ? o * static_cast<double>(a.in - 1) / (length - 1) : 0;
  if (how.coordinates == "asymmetric") return o / a.scale;
  if (how.coordinates == "tf_half_pixel_for_nn") return (o + 0.5) / a.scale;
  if (how.coordinates == "pytorch_half_pixel") return length > 1 ? (o + 0.5) / a.scale - 0.5 : 0;
  if (how.coordinates == "tf_crop_and_resize") {
    const double last = static_cast<double>(a.in - 1);
    return length > 1 ? a.begin * last + o * (a.end - a.begin) * last / (length - 1)
                      : 0.5 * (a.begin + a.end) * last;
  }
  const double half_pixel = (o + 0.5) / a.scale - 0.5;
  if (how.coordinates == "half_pixel_symmetric") {
    // The centre of the input stays in the centre, although the output has whole elements only.
    const double kept = static_cast<double>(a.out) / length;
    return static_cast<double>(a.in) / 2 * (1 - kept) + half_pixel;
  }
  return half_pixel;
}

double Nearest(const std::string& mode, double x) {
  if (mode == "floor") return std::floor(x);
  if (mode == "ceil") return std::ceil(x);
  if (mode == "round_prefer_ceil") return std::floor(x + 0.5);
  return std::ceil(x - 0.5);  // round_prefer_floor
}

double CubicWeight(double a, double distance) {
  const double d = std::fabs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

// The same as Taps for a filter that is stretched by 1 / scale, so that it also sees the elements
// between those that are kept.
std::pair<int64_t, std::vector<double>> StretchedTaps(const Interpolation& how, double scale,
                                                      double x) {
  const double reach = how.mode == "linear" ? 1 : 2, base = std::floor(x), t = x - base;
  const auto first = static_cast<int64_t>(std::floor(-reach / scale)) + 1;
  const int64_t count = 2 - 2 * first;
  std::vector<double> weights;
  double total = 0;
  for (int64_t k = 0; k < count; ++k) {
    const double d = (static_cast<double>(first + k) - t) * scale;
    weights.push_back(how.mode == "linear" ? std::max(1 - std::fabs(d), 0.0)
                                           : CubicWeight(how.cubic_a, d));
    total += weights.back();
  }
  for (double& w : weights) w /= total;
  return {static_cast<int64_t>(base) + first, weights};
}

// The taps around x: the first index, and one weight for each tap.
std::pair<int64_t, std::vector<double>> Taps(const Interpolation& how, double scale, double x) {
  if (how.mode == "nearest") return {static_cast<int64_t>(Nearest(how.nearest, x)), {1}};
  if (how.antialias && scale < 1) return StretchedTaps(how, scale, x);
  const double base = std::floor(x), t = x - base;
  if (how.mode == "linear") return {static_cast<int64_t>(base), {1 - t, t}};
  const double a = how.cubic_a;
  return {static_cast<int64_t>(base) - 1,
          {CubicWeight(a, 1 + t), CubicWeight(a, t), CubicWeight(a, 1 - t), CubicWeight(a, 2 - t)}};
}

ValueId ResizeAxis(NodeImport& n, ValueId x, int axis, const AxisMap& a, const Interpolation& how) {
  const ir::DType dtype = n.Type(x).dtype;
  if (how.mode != "nearest" && !ir::IsFloat(dtype)) {
    n.Unsupported("interpolation of integers");
    return -1;
  }
  if (how.antialias && how.mode != "nearest" && a.scale < 1 / kWidest) {
    n.Unsupported(absl::StrCat("antialias with a scale below 1/", kWidest));
    return -1;
  }
  const size_t taps = Taps(how, a.scale, 0).second.size();
  if (!n.CanMake({ir::DType::kI64, {static_cast<int64_t>(taps), a.out}})) return -1;
  std::vector<std::vector<int64_t>> indices(taps);
  std::vector<std::vector<double>> weights(taps);
  for (int64_t o = 0; o < a.out; ++o) {
    constexpr double kFarthest = 1e15;
    const double at = Coordinate(how, a, static_cast<double>(o));
    if (!(std::fabs(at) <= kFarthest)) {
      n.Fail(absl::StrCat("reads element ", at, " of an axis"));
      return -1;
    }
    auto [first, w] = Taps(how, a.scale, at);
    double total = 0;
    for (size_t k = 0; k < taps; ++k) {
      const int64_t i = first + static_cast<int64_t>(k);
      if (how.exclude_outside && (i < 0 || i >= a.in)) w[k] = 0;
      total += w[k];
    }
    for (size_t k = 0; k < taps; ++k) {
      indices[k].push_back(std::clamp<int64_t>(first + static_cast<int64_t>(k), 0, a.in - 1));
      weights[k].push_back(how.exclude_outside ? w[k] / total : w[k]);
    }
  }
  Shape along(n.Rank(x), 1);
  along[axis] = a.out;
  ValueId sum = -1;
  for (size_t k = 0; k < taps; ++k) {
    ValueId tap =
        n.Emit(OpKind::kGather, {x, n.Constant(FromInts(indices[k]))}, {{"axis", int64_t{axis}}});
    if (how.mode != "nearest")
      tap = n.Emit(OpKind::kMul, {tap, n.Constant(FromDoubles(weights[k], along, dtype))});
    sum = k == 0 ? tap : n.Emit(OpKind::kAdd, {sum, tap});
  }
  return sum;
}

// Sets the result to `value` where a cropped axis reaches beyond the input.
ValueId Extrapolate(NodeImport& n, ValueId y, const std::vector<AxisMap>& axes,
                    const Interpolation& how, double value) {
  for (size_t d = 0; d < axes.size(); ++d) {
    std::vector<double> inside;
    for (int64_t o = 0; o < axes[d].out; ++o) {
      const double x = Coordinate(how, axes[d], static_cast<double>(o));
      inside.push_back(x >= 0 && x <= static_cast<double>(axes[d].in - 1));
    }
    if (std::count(inside.begin(), inside.end(), 0) == 0) continue;
    Shape along(axes.size(), 1);
    along[d] = axes[d].out;
    y = n.Emit(OpKind::kWhere, {n.Constant(FromDoubles(inside, along, ir::DType::kBool)), y,
                                n.ScalarLike(value, y)});
  }
  return y;
}

// `exact`: the scales are those of the coordinates, although the sizes are rounded differently.
void ResizeWith(NodeImport& n, const std::vector<double>& scales, const Shape& sizes,
                const std::vector<double>& roi, const Interpolation& how, bool exact = false) {
  const ValueId x = n.In(0);
  if (!n.ok()) return;
  const size_t rank = n.ShapeOf(x).size();
  if ((sizes.empty() && scales.size() != rank) || (!sizes.empty() && sizes.size() != rank)) {
    return n.Fail("needs one scale or size per dimension");
  }
  const bool crop = how.coordinates == "tf_crop_and_resize";
  if (crop && roi.size() != 2 * rank)
    return n.Fail("needs a region of interest for every dimension");
  std::vector<AxisMap> axes(rank);
  for (size_t d = 0; d < rank; ++d) {
    AxisMap& a = axes[d];
    a.in = n.ShapeOf(x)[d];
    constexpr double kLongest = 1 << 24;  // every axis gets tables of indices
    const double length = sizes.empty() ? std::floor(static_cast<double>(a.in) * scales[d])
                                        : static_cast<double>(sizes[d]);
    if (!(length >= 1 && length <= kLongest))
      return n.Fail(absl::StrCat("dimension ", d, " gets an impossible size"));
    a.out = static_cast<int64_t>(length);
    a.scale = sizes.empty() || exact ? scales[d] : length / static_cast<double>(a.in);
    if (crop) a.begin = roi[d], a.end = roi[rank + d];
  }
  ValueId y = x;
  for (size_t d = 0; d < rank && n.ok(); ++d) {
    const bool whole = axes[d].begin == 0 && axes[d].end == 1;
    if (axes[d].in == axes[d].out && axes[d].scale == 1 && whole) continue;
    y = ResizeAxis(n, y, static_cast<int>(d), axes[d], how);
  }
  if (crop) y = Extrapolate(n, y, axes, how, n.Float("extrapolation_value"));
  n.Set(0, y);
}

// Turns scales, sizes and regions of some axes into those of all axes.
bool SpreadAxes(NodeImport& n, ValueId x, const Shape& axes, std::vector<double>& scales,
                Shape& sizes, std::vector<double>& roi) {
  const Shape& shape = n.ShapeOf(x);
  const size_t rank = shape.size(), count = axes.size();
  if ((!scales.empty() && scales.size() != count) || (!sizes.empty() && sizes.size() != count) ||
      (!roi.empty() && roi.size() != 2 * count)) {
    n.Fail("needs one scale or size per axis");
    return false;
  }
  std::vector<double> all_scales(rank, 1), all_roi(2 * rank, 0);
  std::fill(all_roi.begin() + static_cast<int64_t>(rank), all_roi.end(), 1);
  Shape all_sizes = shape;
  for (size_t i = 0; i < count; ++i) {
    const auto d = static_cast<size_t>(n.Axis(axes[i], static_cast<int>(rank)));
    if (!n.ok()) return false;
    if (!scales.empty()) all_scales[d] = scales[i];
    if (!sizes.empty()) all_sizes[d] = sizes[i];
    if (!roi.empty()) all_roi[d] = roi[i], all_roi[rank + d] = roi[count + i];
  }
  if (!scales.empty()) scales = all_scales;
  if (!sizes.empty()) sizes = all_sizes;
  if (!roi.empty()) roi = all_roi;
  return true;
}

// Makes `sizes` the sizes of one common scale, the smallest or largest of those that they ask for,
// over the axes (empty: all). Returns the scales.
std::vector<double> KeepAspect(NodeImport& n, ValueId x, const Shape& axes, bool smallest,
                               Shape& sizes) {
  const Shape& shape = n.ShapeOf(x);
  if (sizes.size() != shape.size()) return {};  // refused with the sizes
  std::vector<bool> resized(shape.size(), axes.empty());
  for (const int64_t axis : axes) resized[n.Axis(axis, n.Rank(x))] = true;
  double scale = smallest ? HUGE_VAL : 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    const double wanted = static_cast<double>(sizes[d]) / static_cast<double>(shape[d]);
    if (resized[d]) scale = smallest ? std::min(scale, wanted) : std::max(scale, wanted);
  }
  std::vector<double> scales(shape.size(), 1);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!resized[d]) continue;
    scales[d] = scale;
    const double length = std::floor(scale * static_cast<double>(shape[d]) + 0.5);
    sizes[d] = length < 1e9 ? static_cast<int64_t>(length) : -1;
  }
  return scales;
}

void Resize(NodeImport& n) {
  Interpolation how;
  how.mode = n.OneOf("mode", {"nearest", "linear", "cubic"});
  if (n.opset() < 11) {
    how.coordinates = "asymmetric";
    how.nearest = "floor";
    return ResizeWith(n, n.ConstantDoubles(1), {}, {}, how);
  }
  how.coordinates =
      n.OneOf("coordinate_transformation_mode",
              {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
               "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"});
  how.nearest =
      n.OneOf("nearest_mode", {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
  how.cubic_a = n.Float("cubic_coeff_a");
  how.exclude_outside = n.Int("exclude_outside") != 0;
  how.antialias = n.Int("antialias") != 0;
  n.Ignore({"extrapolation_value"});  // read where an axis is cropped
  auto roi = n.Has(1) && how.coordinates == "tf_crop_and_resize" ? n.ConstantDoubles(1)
                                                                 : std::vector<double>{};
  auto scales = n.Has(2) ? n.ConstantDoubles(2) : std::vector<double>{};
  Shape sizes = n.Has(3) ? n.ConstantInts(3) : Shape{};
  const ValueId x = n.In(0);
  const std::string policy =
      n.OneOf("keep_aspect_ratio_policy", {"stretch", "not_larger", "not_smaller"});
  const Shape axes = n.Ints("axes");
  if (!n.ok()) return;
  // Old exporters write an empty operand for the one of the two that they do not mean.
  if (scales.empty() == sizes.empty()) return n.Fail("needs either scales or sizes");
  if (!axes.empty() && !SpreadAxes(n, x, axes, scales, sizes, roi)) return;
  const bool keeps = policy != "stretch" && !sizes.empty();
  if (keeps) scales = KeepAspect(n, x, axes, policy == "not_larger", sizes);
  ResizeWith(n, scales, sizes, roi, how, keeps);
}

void Upsample(NodeImport& n) {
  Interpolation how;
  how.mode = n.OneOf("mode", {"nearest", "linear"});
  how.coordinates = "asymmetric";
  how.nearest = "floor";
  std::vector<double> scales;
  if (n.opset() >= 9) {
    scales = n.ConstantDoubles(1);
  } else if (const auto* a = n.Find("scales")) {
    scales.assign(a->floats().begin(), a->floats().end());
  }
  ResizeWith(n, scales, {}, {}, how);
}

void GridSample(NodeImport& n) {
  const int dims = n.Rank(n.In(0)) - 2;
  if (n.ok() && dims != 2 && dims != 3)
    return n.Unsupported("anything but two or three spatial dimensions");
  // Opset 20 dropped the prefix of bilinear and bicubic.
  const std::string mode = n.OneOf("mode", {"bilinear", "linear", "nearest", "bicubic", "cubic"});
  if (dims == 3 && mode.find("cubic") != std::string::npos)
    return n.Fail("cubic interpolation needs two spatial dimensions");
  n.Set(0, n.Emit(OpKind::kGridSample, {n.In(0), n.In(1)},
                  {{"mode", mode.compare(0, 2, "bi") == 0 ? mode.substr(2) : mode},
                   {"padding", n.OneOf("padding_mode", {"zeros", "border", "reflection"})},
                   {"align_corners", n.Int("align_corners")}}));
}

}  // namespace

void AddResizeTranslations(TranslationTable& table) {
  table["Resize"] = {Resize,
                     "scales or sizes that are not constants; interpolation of integers; antialias "
                     "with a scale below 1/16"};
  table["GridSample"] = {
      GridSample, "images and grid of two types; anything but two or three spatial dimensions"};
  table["Upsample"] = {Upsample, "scales that are not constants"};
}

}  // namespace heddle::graph
