// Translation of the operators that sample images at positions of their own: regions of interest,
// deformable convolutions, affine grids; and of those that place blocks into images.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/precision.h"
#include "compiler/onnx/slices.h"

namespace heddle::graph {
namespace {

using ir::DType;

// Arithmetic on tensors as formulas.
struct Math {
  NodeImport& n;
  ValueId Scalar(double v, ValueId like) const { return n.ScalarLike(v, like); }
  ValueId Add(ValueId a, ValueId b) const { return n.Emit(OpKind::kAdd, {a, b}); }
  ValueId Plus(ValueId a, double b) const { return b == 0 ? a : Add(a, Scalar(b, a)); }
  ValueId Sub(ValueId a, ValueId b) const { return n.Emit(OpKind::kSub, {a, b}); }
  ValueId Mul(ValueId a, ValueId b) const { return n.Emit(OpKind::kMul, {a, b}); }
  ValueId Times(ValueId a, double b) const { return b == 1 ? a : Mul(a, Scalar(b, a)); }
  ValueId Div(ValueId a, ValueId b) const { return n.Emit(OpKind::kDiv, {a, b}); }
  ValueId Max(ValueId a, double b) const { return n.Emit(OpKind::kMax, {a, Scalar(b, a)}); }
  ValueId Min(ValueId a, double b) const { return n.Emit(OpKind::kMin, {a, Scalar(b, a)}); }
  ValueId Floor(ValueId a) const { return n.Emit(OpKind::kFloor, {a}); }
  ValueId Ceil(ValueId a) const { return n.Emit(OpKind::kCeil, {a}); }
  ValueId And(ValueId a, ValueId b) const { return n.Emit(OpKind::kAnd, {a, b}); }
  ValueId LessEqual(ValueId a, ValueId b) const { return n.Emit(OpKind::kLessEqual, {a, b}); }
  ValueId Less(ValueId a, ValueId b) const { return n.Emit(OpKind::kLess, {a, b}); }
  ValueId Where(ValueId c, ValueId a, ValueId b) const { return n.Emit(OpKind::kWhere, {c, a, b}); }
  ValueId Values(const std::vector<double>& values, const Shape& shape, ValueId like) const {
    return n.Constant(FromDoubles(values, shape, n.Type(like).dtype));
  }
  // start, start + step, ..
  ValueId Range(int64_t count, double start, double step, const Shape& shape, ValueId like) const {
    std::vector<double> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(start + static_cast<double>(i) * step);
    return Values(values, shape, like);
  }
};

// ---- Crops, pads, grids ----

void CenterCropPad(NodeImport& n) {
  const ValueId x = n.In(0);
  const Shape wanted = n.ConstantInts(1);
  Shape axes = n.Ints("axes");
  if (!n.ok()) return;
  const int rank = n.Rank(x);
  if (axes.empty()) {
    axes.resize(static_cast<size_t>(rank));
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (wanted.size() != axes.size()) return n.Fail("needs one size for each axis");
  Shape starts(static_cast<size_t>(rank), 0), begin = starts, end = starts, sizes = n.ShapeOf(x);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t d = n.Axis(axes[i], rank);
    constexpr int64_t kMost = int64_t{1} << 40;
    if (!n.ok() || wanted[i] < 0 || wanted[i] > kMost)
      return n.Fail(absl::StrCat("cannot crop to ", wanted[i], " elements"));
    const int64_t extent = n.ShapeOf(x)[d], more = std::max<int64_t>(wanted[i] - extent, 0);
    starts[d] = std::max<int64_t>(extent - wanted[i], 0) / 2;
    sizes[d] = std::min(extent, wanted[i]);
    begin[d] = more / 2;
    end[d] = more - more / 2;
  }
  ValueId y = sizes == n.ShapeOf(x) ? x
                                    : n.Emit(OpKind::kSlice, {x},
                                             {{"starts", starts},
                                              {"steps", Shape(static_cast<size_t>(rank), 1)},
                                              {"sizes", sizes}});
  const bool pads = std::any_of(end.begin(), end.end(), [](int64_t e) { return e != 0; });
  if (pads)
    y = n.Emit(OpKind::kPad, {y},
               {{"begin", begin}, {"end", end}, {"mode", std::string("constant")}, {"value", 0.0}});
  n.Set(0, y);
}

void AffineGrid(NodeImport& n) {
  const ValueId given = n.In(0), theta = Single(n, given);
  const Shape size = n.ConstantInts(1);
  const bool align = n.Int("align_corners") != 0;
  if (!n.ok()) return;
  const auto dims = static_cast<int64_t>(size.size()) - 2;
  if ((dims != 2 && dims != 3) || n.ShapeOf(theta) != Shape{size[0], dims, dims + 1})
    return n.Fail("theta does not fit the size");
  const Shape extents(size.begin() + 2, size.end());
  if (std::any_of(extents.begin(), extents.end(), [](int64_t e) { return e < 1; }))
    return n.Fail("the size is not positive");
  const int64_t points = Product(extents);
  if (!n.CanMake({n.Type(theta).dtype, {points, dims + 1}})) return;
  std::vector<double> base;  // (x, y, .., 1) of each point; x runs fastest
  for (int64_t p = 0; p < points; ++p) {
    std::vector<double> at;
    int64_t rest = p;
    for (int64_t d = dims; d-- > 0;) {
      const double i = static_cast<double>(rest % extents[d]);
      const double extent = static_cast<double>(extents[d]);
      rest /= extents[d];
      at.push_back(!align ? (2 * i + 1) / extent - 1 : extent == 1 ? 0 : 2 * i / (extent - 1) - 1);
    }
    base.insert(base.end(), at.begin(), at.end());
    base.push_back(1);
  }
  const ValueId grid = n.Constant(FromDoubles(base, {1, points, dims + 1}, n.Type(theta).dtype));
  const ValueId y = n.Emit(OpKind::kMatmul, {grid, n.Transpose(theta, {0, 2, 1})});
  Shape shape{size[0]};
  shape.insert(shape.end(), extents.begin(), extents.end());
  shape.push_back(dims);
  n.Set(0, n.Cast(n.Reshape(y, shape), n.Type(given).dtype));
}

// ---- Blocks into images ----

// A transposed convolution whose weights pass on each row of a block to its place.
void Col2Im(NodeImport& n) {
  const ValueId x = n.In(0);
  const Shape image = n.ConstantInts(1), block = n.ConstantInts(2);
  if (!n.ok()) return;
  const size_t dims = block.size();
  if (dims < 1 || dims > 3) return n.Unsupported(absl::StrCat(dims, " spatial dimensions"));
  const auto list = [&](const char* name, size_t length, int64_t fallback) {
    Shape v = n.Ints(name);
    if (v.empty()) v.assign(length, fallback);
    if (v.size() != length)
      n.Fail(absl::StrCat(name, " has ", v.size(), " entries, needs ", length));
    return v;
  };
  const Shape strides = list("strides", dims, 1), dilations = list("dilations", dims, 1),
              pads = list("pads", 2 * dims, 0);
  if (!n.ok()) return;
  if (image.size() != dims || n.Rank(x) != 3) return n.Fail("the image does not fit the blocks");
  constexpr int64_t kLimit = int64_t{1} << 20;
  for (const Shape* values : {&image, &block, &strides, &dilations}) {
    for (const int64_t v : *values) {
      if (v < 1 || v > kLimit) return n.Fail("an extent, stride or dilation is out of range");
    }
  }
  for (const int64_t v : pads) {
    if (v < 0 || v > kLimit) return n.Fail("pads are out of range");
  }
  const Shape shape = n.ShapeOf(x);
  const int64_t taps = Product(block);
  if (shape[1] % taps != 0) return n.Fail("the blocks do not fit the channels");
  const int64_t channels = shape[1] / taps;
  Shape input{shape[0] * channels, taps}, extra;
  for (size_t d = 0; d < dims; ++d) {
    const int64_t span = image[d] + pads[d] + pads[dims + d] - dilations[d] * (block[d] - 1) - 1;
    if (span < 0) return n.Fail("the image is smaller than a block");
    input.push_back(span / strides[d] + 1);
    extra.push_back(span % strides[d]);
  }
  if (Product({input.begin() + 2, input.end()}) != shape[2])
    return n.Fail(absl::StrCat("has ", shape[2], " blocks, but the image takes ",
                               Product({input.begin() + 2, input.end()})));
  Shape weights{taps, 1};
  weights.insert(weights.end(), block.begin(), block.end());
  if (!n.CanMake({n.Type(x).dtype, weights})) return;
  std::vector<double> values(static_cast<size_t>(taps * taps), 0);
  for (int64_t i = 0; i < taps; ++i) values[static_cast<size_t>(i * taps + i)] = 1;
  const ValueId y =
      n.Emit(kTransposedConvolutions[dims - 1],
             {n.Reshape(x, input), n.Constant(FromDoubles(values, weights, n.Type(x).dtype))},
             {{"strides", strides},
              {"dilations", dilations},
              {"pads", pads},
              {"output_padding", extra},
              {"groups", int64_t{1}}});
  Shape result{shape[0], channels};
  result.insert(result.end(), image.begin(), image.end());
  n.Set(0, n.Reshape(y, result));
}

void MaxUnpool(NodeImport& n) {
  const ValueId x = n.In(0), indices = n.In(1);
  const Shape kernel = n.Ints("kernel_shape");
  Shape strides = n.Ints("strides"), pads = n.Ints("pads");
  const Shape wanted = n.Has(2) ? n.ConstantInts(2) : Shape{};
  if (!n.ok()) return;
  const Shape shape = n.ShapeOf(x);
  const size_t dims = kernel.size();
  if (strides.empty()) strides.assign(dims, 1);
  if (pads.empty()) pads.assign(2 * dims, 0);
  if (shape.size() != dims + 2 || strides.size() != dims || pads.size() != 2 * dims ||
      n.ShapeOf(indices) != shape)
    return n.Fail("kernel_shape, strides, pads or indices do not fit the input");
  Shape full{shape[0], shape[1]};
  for (size_t d = 0; d < dims; ++d) {
    constexpr int64_t kLimit = int64_t{1} << 20;
    if (strides[d] < 1 || strides[d] > kLimit || kernel[d] < 1 || kernel[d] > kLimit ||
        pads[d] < 0 || pads[d] > kLimit || pads[dims + d] < 0 || pads[dims + d] > kLimit)
      return n.Fail("kernel, strides or pads are out of range");
    full.push_back((shape[d + 2] - 1) * strides[d] + kernel[d] - pads[d] - pads[dims + d]);
    if (full.back() < 1) return n.Fail("nothing is left of the output");
  }
  // Indices count through the whole tensor; every channel gets its own part.
  const int64_t planes = shape[0] * shape[1], inside = Product(shape) / planes,
                outside = Product({full.begin() + 2, full.end()});
  if (static_cast<double>(planes) * static_cast<double>(inside) * static_cast<double>(outside) >
      kMostComparisons)
    return n.Unsupported("more than 1e10 comparisons of elements with indices");
  const ValueId place = n.Emit(
      OpKind::kFloorMod,
      {n.Reshape(indices, {planes, inside}), n.ScalarLike(static_cast<double>(outside), indices)});
  ValueId y = n.Emit(
      OpKind::kScatterElements,
      {n.Fill({n.Type(x).dtype, {planes, outside}}, 0), place, n.Reshape(x, {planes, inside})},
      {{"axis", int64_t{1}}, {"reduction", std::string("none")}});
  y = n.Reshape(y, full);
  if (!wanted.empty() && wanted != full) {
    Shape end;
    for (size_t d = 0; d < full.size(); ++d) {
      if (wanted.size() != full.size() || wanted[d] < full[d])
        return n.Fail(
            absl::StrCat("output_shape ", ShapeText(wanted), " is smaller than ", ShapeText(full)));
      end.push_back(wanted[d] - full[d]);
    }
    y = n.Emit(OpKind::kPad, {y},
               {{"begin", Shape(full.size(), 0)},
                {"end", end},
                {"mode", std::string("constant")},
                {"value", 0.0}});
  }
  n.Set(0, y);
}

// ---- Sampling ----

// A corner of the cell that a position lies in, along one axis: where it is, and its weight.
struct Corner {
  ValueId index = -1, weight = -1;
};

// Gathers x, whose dimensions are `batch` leading ones, the spatial ones, and channels. The
// positions have the leading ones, too, and agree in shape.
ValueId PickPositions(NodeImport& n, ValueId x, const std::vector<ValueId>& at,
                      int64_t batch_dims) {
  std::vector<ValueId> parts;
  if (!n.ok()) return -1;
  for (const ValueId v : at) {
    Shape shape = n.ShapeOf(v);
    shape.push_back(1);
    parts.push_back(n.Reshape(n.Cast(v, DType::kI64), shape));
  }
  return n.Emit(OpKind::kGatherNd, {x, Concat(n, parts, n.Rank(parts[0]) - 1)},
                {{"batch_dims", batch_dims}});
}

ValueId Broadcast(NodeImport& n, ValueId v, const Shape& shape) {
  return n.ShapeOf(v) == shape ? v : n.Emit(OpKind::kExpand, {v}, {{"shape", shape}});
}

// The value of ROI r at [channels, rows, columns], from `samples` by `samples` points in each of its
// bins. The sum of points is divided by their number.
void RoiAlign(NodeImport& n) {
  const Math m{n};
  const ValueId given = n.In(0), x = Single(n, given), rois = Single(n, n.In(1));
  const bool average = n.OneOf("mode", {"avg", "max"}) == "avg";
  // Before opset 16, coordinates were not shifted by half an element.
  const bool half = n.opset() >= 16 && n.OneOf("coordinate_transformation_mode",
                                               {"half_pixel", "output_half_pixel"}) == "half_pixel";
  const int64_t height = n.Int("output_height"), width = n.Int("output_width");
  const int64_t ratio = n.Int("sampling_ratio");
  const double scale = n.Float("spatial_scale");
  const ValueId batches = n.In(2);
  if (!n.ok()) return;
  constexpr int64_t kMost = 1 << 12;
  if (n.Rank(x) != 4 || n.Rank(rois) != 2 || n.ShapeOf(rois)[1] != 4 ||
      n.ShapeOf(batches) != Shape{n.ShapeOf(rois)[0]})
    return n.Fail("needs an image of rank 4, regions of 4 numbers, and an index for each");
  if (height < 1 || width < 1 || height > kMost || width > kMost || ratio < 0 || ratio > kMost)
    return n.Fail("the output or the sampling ratio is out of range");
  const Shape shape = n.ShapeOf(x);
  const int64_t count = n.ShapeOf(rois)[0];
  const std::vector<double> known =
      n.ConstantData(rois) == nullptr ? std::vector<double>{} : ToDoubles(*n.ConstantData(rois));
  if (ratio == 0 && known.empty())
    return n.Unsupported("sampling_ratio 0 with regions that are not constants");
  // Positions and corners along one axis; `first` is the column of the regions.
  struct Axis {
    int64_t bins, samples;
    ValueId counts = -1, exists = -1, valid = -1;  // `exists`: -1 for all points
    std::array<Corner, 2> corners{};
  };
  const auto along = [&](int64_t first, int64_t extent, int64_t bins) {
    Axis a{bins, ratio};
    const auto column = [&](int64_t i) { return n.Reshape(At(n, rois, 1, i), {count, 1, 1}); };
    const double shift = half ? -0.5 : 0;
    const ValueId start = m.Plus(m.Times(column(first), scale), shift);
    const ValueId end = m.Plus(m.Times(column(first + 2), scale), shift);
    ValueId size = m.Sub(end, start);
    if (!half) size = m.Max(size, 1);
    const ValueId bin = m.Div(size, m.Scalar(static_cast<double>(bins), size));
    ValueId step = bin;
    if (ratio == 0) {
      std::vector<double> counts;
      for (int64_t r = 0; r < count; ++r) {
        const double length = (known[r * 4 + first + 2] - known[r * 4 + first]) * scale;
        const double each = (half ? length : std::max(length, 1.0)) / static_cast<double>(bins);
        const double samples = each > 1 ? std::ceil(each) : 1;  // NaN: one
        counts.push_back(std::min(samples, static_cast<double>(kMost)));
        a.samples = std::max(a.samples, static_cast<int64_t>(counts.back()));
      }
      a.counts = m.Values(counts, {count, 1, 1}, x);
      step = m.Div(bin, a.counts);
      a.exists = m.Less(m.Range(a.samples, 0, 1, {1, 1, a.samples}, x), a.counts);
    } else {
      step = m.Times(bin, 1 / static_cast<double>(ratio));
    }
    const ValueId bin_start = m.Add(start, m.Mul(m.Range(bins, 0, 1, {1, bins, 1}, x), bin));
    ValueId at = m.Add(bin_start, m.Mul(m.Range(a.samples, 0.5, 1, {1, 1, a.samples}, x), step));
    const double last = static_cast<double>(extent - 1);
    // More than one element beyond the image, there is nothing.
    a.valid = m.And(m.LessEqual(m.Scalar(-1, at), at), m.LessEqual(at, m.Scalar(last + 1, at)));
    at = m.Min(m.Max(at, 0), last);
    const ValueId low = m.Floor(at), high = m.Min(m.Plus(low, 1), last), rest = m.Sub(at, low);
    a.corners = {Corner{low, m.Sub(m.Scalar(1, rest), rest)}, Corner{high, rest}};
    return a;
  };
  const Axis down = along(1, shape[2], height), across = along(0, shape[3], width);
  if (!n.ok()) return;
  // [regions, bins down, samples down, bins across, samples across]
  const Shape points{count, height, down.samples, width, across.samples};
  const auto rows = [&](ValueId v) {
    return n.Reshape(Broadcast(n, v, {count, height, down.samples}),
                     {count, height, down.samples, 1, 1});
  };
  const auto columns = [&](ValueId v) {
    return n.Reshape(Broadcast(n, v, {count, width, across.samples}),
                     {count, 1, 1, width, across.samples});
  };
  const ValueId image = n.Transpose(x, {0, 2, 3, 1});
  const ValueId batch =
      Broadcast(n, n.Reshape(n.Cast(batches, DType::kI64), {count, 1, 1, 1, 1}), points);
  Shape with_channel = points;
  with_channel.push_back(1);
  ValueId sum = -1;
  for (const Corner& y : down.corners) {
    for (const Corner& z : across.corners) {
      const ValueId value = PickPositions(
          n, image,
          {batch, Broadcast(n, rows(y.index), points), Broadcast(n, columns(z.index), points)}, 0);
      const ValueId weight = m.Mul(rows(y.weight), columns(z.weight));
      const ValueId part = m.Mul(value, n.Reshape(Broadcast(n, weight, points), with_channel));
      sum = sum < 0 ? part : average ? m.Add(sum, part) : n.Emit(OpKind::kMax, {sum, part});
    }
  }
  const auto both = [&](ValueId a, ValueId b) {
    return n.Reshape(Broadcast(n, m.And(rows(a), columns(b)), points), with_channel);
  };
  const Attrs over{{"axes", Shape{2, 4}}, {"keepdims", int64_t{0}}};
  ValueId y = m.Where(both(down.valid, across.valid), sum, m.Scalar(0, sum));
  if (ratio == 0)
    y = m.Where(both(down.exists, across.exists), y, m.Scalar(average ? 0 : -HUGE_VAL, y));
  if (!average) {
    y = n.Emit(OpKind::kReduceMax, {y}, over);
  } else if (ratio == 0) {
    const ValueId total = n.Reshape(m.Mul(down.counts, across.counts), {count, 1, 1, 1});
    y = m.Div(n.Emit(OpKind::kReduceSum, {y}, over), total);
  } else {
    y = n.Emit(OpKind::kReduceMean, {y}, over);
  }
  n.Set(0, n.Cast(n.Transpose(y, {0, 3, 1, 2}), n.Type(given).dtype));
}

// Each bin takes the maximum of whole elements; which ones is compared element by element, first
// along the rows and then along the columns.
void MaxRoiPool(NodeImport& n) {
  const Math m{n};
  const ValueId given = n.In(0), x = Single(n, given), rois = Single(n, n.In(1));
  const Shape pooled = n.Ints("pooled_shape");
  const double scale = n.Float("spatial_scale");
  if (!n.ok()) return;
  if (n.Rank(x) != 4 || n.Rank(rois) != 2 || n.ShapeOf(rois)[1] != 5 || pooled.size() != 2 ||
      pooled[0] < 1 || pooled[1] < 1)
    return n.Fail("needs an image of rank 4, regions of 5 numbers, and two positive sizes");
  const Shape shape = n.ShapeOf(x);
  const int64_t count = n.ShapeOf(rois)[0];
  // Halves are rounded away from zero.
  const auto rounded = [&](ValueId v) {
    const ValueId zero = m.Scalar(0, v);
    return m.Where(m.Less(v, zero), m.Ceil(m.Plus(v, -0.5)), m.Floor(m.Plus(v, 0.5)));
  };
  // Whether an element belongs to a bin: [regions, bins, extent].
  const auto inside = [&](int64_t first, int64_t extent, int64_t bins) {
    const auto column = [&](int64_t i) {
      return rounded(m.Times(n.Reshape(At(n, rois, 1, i), {count, 1, 1}), scale));
    };
    const ValueId start = column(first);
    const ValueId size = m.Max(m.Plus(m.Sub(column(first + 2), start), 1), 1);
    const ValueId bin = m.Div(size, m.Scalar(static_cast<double>(bins), size));
    const ValueId i = m.Range(bins, 0, 1, {1, bins, 1}, x);
    const ValueId low = m.Add(m.Floor(m.Mul(i, bin)), start);
    const ValueId high = m.Add(m.Ceil(m.Mul(m.Plus(i, 1), bin)), start);
    const ValueId at = m.Range(extent, 0, 1, {1, 1, extent}, x);
    return m.And(m.LessEqual(low, at), m.Less(at, high));
  };
  const ValueId rows = inside(2, shape[2], pooled[0]), columns = inside(1, shape[3], pooled[1]);
  const ValueId batch = n.Cast(n.Reshape(At(n, rois, 1, 0), {count}), DType::kI64);
  const ValueId images = n.Emit(OpKind::kGather, {x, batch}, {{"axis", int64_t{0}}});
  const auto most = [&](ValueId v) {
    return n.Emit(OpKind::kReduceMax, {v},
                  {{"axes", Shape{int64_t{n.Rank(v)} - 1}}, {"keepdims", int64_t{0}}});
  };
  const ValueId lowest = m.Scalar(-HUGE_VAL, x);
  // [regions, channels, height, bins across]
  const ValueId by_row =
      most(m.Where(n.Reshape(columns, {count, 1, 1, pooled[1], shape[3]}),
                   n.Reshape(images, {count, shape[1], shape[2], 1, shape[3]}), lowest));
  const ValueId turned =
      n.Reshape(n.Transpose(by_row, {0, 1, 3, 2}), {count, shape[1], 1, pooled[1], shape[2]});
  const ValueId y =
      most(m.Where(n.Reshape(rows, {count, 1, pooled[0], 1, shape[2]}), turned, lowest));
  // An empty bin gives zero.
  const ValueId empty = n.Emit(OpKind::kEqual, {y, lowest});
  n.Set(0, n.Cast(m.Where(empty, m.Scalar(0, y), y), n.Type(given).dtype));
}

// A convolution whose taps lie at positions that are data. The taps are gathered into a matrix.
void DeformConv(NodeImport& n) {
  const Math m{n};
  const ValueId given = n.In(0), x = Single(n, given), w = Single(n, n.In(1)),
                offset = Single(n, n.In(2));
  const int64_t group = n.Int("group"), offsets = n.Int("offset_group");
  if (!n.ok()) return;
  const Shape shape = n.ShapeOf(x), weights = n.ShapeOf(w);
  const auto dims = static_cast<int64_t>(shape.size()) - 2;
  if (dims < 1 || dims > 3) return n.Unsupported(absl::StrCat(dims, " spatial dimensions"));
  if (weights.size() != shape.size()) return n.Fail("the kernel does not fit the input's rank");
  const Shape kernel(weights.begin() + 2, weights.end());
  if (n.HasAttr("kernel_shape") && n.Ints("kernel_shape") != kernel)
    return n.Fail("kernel_shape is not that of the weights");
  const auto list = [&](const char* name, int64_t length, int64_t fallback) {
    Shape v = n.Ints(name);
    if (v.empty()) v.assign(static_cast<size_t>(length), fallback);
    if (static_cast<int64_t>(v.size()) != length)
      n.Fail(absl::StrCat(name, " has ", v.size(), " entries, needs ", length));
    for (const int64_t e : v) {
      if (e < fallback || e > (1 << 20)) n.Fail(absl::StrCat(name, " are out of range"));
    }
    return v;
  };
  const Shape strides = list("strides", dims, 1), dilations = list("dilations", dims, 1),
              pads = list("pads", 2 * dims, 0);
  if (!n.ok()) return;
  const int64_t batch = shape[0], channels = shape[1], results = weights[0];
  if (group < 1 || offsets < 1 || channels % group != 0 || results % group != 0 ||
      channels % offsets != 0 || weights[1] != channels / group)
    return n.Fail("the groups do not fit the channels");
  Shape out;
  for (int64_t d = 0; d < dims; ++d) {
    const int64_t span =
        shape[d + 2] + pads[d] + pads[dims + d] - (kernel[d] - 1) * dilations[d] - 1;
    if (span < 0) return n.Fail("the kernel is larger than the padded input");
    out.push_back(span / strides[d] + 1);
  }
  const int64_t taps = Product(kernel), points = Product(out);
  Shape expected{batch, offsets * taps * dims};
  expected.insert(expected.end(), out.begin(), out.end());
  if (n.ShapeOf(offset) != expected)
    return n.Fail(absl::StrCat("the offsets are ", ShapeText(n.ShapeOf(offset)), ", need ",
                               ShapeText(expected)));
  // [batch, offset groups, taps, dims, points]
  const ValueId moved = n.Reshape(offset, {batch, offsets, taps, dims, points});
  const Shape places{batch, offsets, taps, points};
  std::vector<std::array<Corner, 2>> axes;
  for (int64_t d = 0; d < dims; ++d) {
    if (!n.CanMake({n.Type(x).dtype, {taps, points}})) return;
    std::vector<double> regular;  // where taps lie without offsets
    for (int64_t k = 0; k < taps; ++k) {
      for (int64_t p = 0; p < points; ++p) {
        int64_t tap = k, point = p;
        for (int64_t e = dims - 1; e > d; --e) tap /= kernel[e], point /= out[e];
        regular.push_back(static_cast<double>(point % out[d] * strides[d] - pads[d] +
                                              tap % kernel[d] * dilations[d]));
      }
    }
    const ValueId at = m.Add(At(n, moved, 3, d), m.Values(regular, {1, 1, taps, points}, x));
    const double last = static_cast<double>(shape[d + 2] - 1);
    const ValueId low = m.Floor(at), high = m.Plus(low, 1), rest = m.Sub(at, low);
    const auto corner = [&](ValueId index, ValueId weight) {
      const ValueId in_image =
          m.And(m.LessEqual(m.Scalar(0, index), index), m.LessEqual(index, m.Scalar(last, index)));
      return Corner{m.Min(m.Max(index, 0), last), m.Where(in_image, weight, m.Scalar(0, weight))};
    };
    axes.push_back({corner(low, m.Sub(m.Scalar(1, rest), rest)), corner(high, rest)});
  }
  if (!n.ok()) return;
  // [batch, offset groups, spatial.., channels of the group]
  Shape split{batch, offsets, channels / offsets};
  split.insert(split.end(), shape.begin() + 2, shape.end());
  Shape perm{0, 1};
  for (int64_t d = 0; d < dims; ++d) perm.push_back(3 + d);
  perm.push_back(2);
  const ValueId image = n.Transpose(n.Reshape(x, split), perm);
  ValueId columns = -1;  // [batch, offset groups, taps, points, channels of the group]
  for (int64_t c = 0; c < (int64_t{1} << dims) && n.ok(); ++c) {
    std::vector<ValueId> at;
    ValueId weight = -1;
    for (int64_t d = 0; d < dims; ++d) {
      const Corner& corner = axes[d][c >> d & 1];
      at.push_back(corner.index);
      weight = weight < 0 ? corner.weight : m.Mul(weight, corner.weight);
    }
    Shape with_channel = places;
    with_channel.push_back(1);
    const ValueId part = m.Mul(PickPositions(n, image, at, 2), n.Reshape(weight, with_channel));
    columns = columns < 0 ? part : m.Add(columns, part);
  }
  if (n.Has(4)) {
    const ValueId mask = Single(n, n.In(4));
    if (n.ok() && NumElements(n.Type(mask)) != batch * offsets * taps * points)
      return n.Fail("the mask does not fit the offsets");
    columns = m.Mul(columns, n.Reshape(mask, {batch, offsets, taps, points, 1}));
  }
  const ValueId matrix = n.Reshape(n.Transpose(columns, {0, 1, 4, 2, 3}),
                                   {batch, group, channels / group * taps, points});
  ValueId y = n.Emit(OpKind::kMatmul,
                     {n.Reshape(w, {1, group, results / group, channels / group * taps}), matrix});
  Shape result{batch, results};
  result.insert(result.end(), out.begin(), out.end());
  y = n.Reshape(y, result);
  if (n.Has(3)) y = m.Add(y, n.AlongAxis(Single(n, n.In(3)), 1, static_cast<int>(dims) + 2));
  n.Set(0, n.Cast(y, n.Type(given).dtype));
}

// ---- Determinants ----

// Expansion by the first row that is left; `columns` are the bits of those that are left.
void Det(NodeImport& n) {
  const Math m{n};
  const ValueId given = n.In(0), x = Single(n, given);
  if (!n.ok()) return;
  const Shape shape = n.ShapeOf(x);
  if (shape.size() < 2 || shape.back() != shape[shape.size() - 2])
    return n.Fail("needs square matrices");
  constexpr int64_t kLargest = 5;  // the terms double with each row
  const int64_t size = shape.back();
  if (size > kLargest)
    return n.Unsupported(absl::StrCat("matrices larger than ", kLargest, "x", kLargest));
  const Shape batch(shape.begin(), shape.end() - 2);
  const int rank = static_cast<int>(shape.size());
  std::map<unsigned, ValueId> minors{{0u, m.Scalar(1, x)}};  // of the last rows, by columns
  for (int64_t row = size; row-- > 0;) {
    std::map<unsigned, ValueId> larger;
    for (unsigned columns = 0; columns < (1u << size); ++columns) {
      if (__builtin_popcount(columns) != size - row) continue;
      ValueId sum = -1;
      bool negative = false;
      for (int64_t c = 0; c < size; ++c) {
        if ((columns >> c & 1) == 0) continue;
        const ValueId element = At(n, At(n, x, rank - 2, row), rank - 2, c);
        const ValueId part = m.Mul(element, minors.at(columns & ~(1u << c)));
        sum = sum < 0 ? part : negative ? m.Sub(sum, part) : m.Add(sum, part);
        negative = !negative;
      }
      larger[columns] = sum;
    }
    minors = std::move(larger);
  }
  n.Set(0, n.Cast(minors.begin()->second, n.Type(given).dtype));
}

}  // namespace

void AddRegionTranslations(TranslationTable& table) {
  constexpr const char* kSpatial = "more than 3 spatial dimensions";
  table["CenterCropPad"] = {CenterCropPad, "a shape that is not constant"};
  table["AffineGrid"] = {AffineGrid, "a size that is not constant"};
  table["Col2Im"] = {Col2Im, "shapes that are not constants; more than 3 spatial dimensions"};
  table["MaxUnpool"] = {MaxUnpool,
                        "an output_shape that is not constant; more than 1e10 "
                        "comparisons of elements with indices"};
  table["RoiAlign"] = {RoiAlign, "sampling_ratio 0 with regions that are not constants"};
  table["MaxRoiPool"] = MaxRoiPool;
  table["DeformConv"] = {DeformConv, kSpatial};
  table["Det"] = {Det, "matrices larger than 5x5"};
}

}  // namespace heddle::graph
