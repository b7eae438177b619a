// Translation of the ONNX operators that move data or ask for shapes.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/onnx/bounded.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/slices.h"

namespace heddle::graph {
namespace {

using ir::DType;

// ---- Shapes ----

void Reshape(NodeImport& n) {
  const ValueId x = n.In(0);
  std::vector<Extent> extents;
  if (n.opset() >= 5) extents = ShapeOperand(n, 1);
  Shape shape = n.opset() < 5 ? n.Ints("shape") : Shape();
  for (const Extent& e : extents) shape.push_back(e.value);
  const bool zero_copies = n.Int("allowzero") == 0;
  if (!n.ok()) return;
  int64_t known = 1, open = -1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0 && zero_copies) {
      if (d >= n.ShapeOf(x).size()) return n.Fail("a zero in the shape has no dimension to copy");
      shape[d] = n.ShapeOf(x)[d];
    }
    if (shape[d] < -1 || (shape[d] == -1 && open >= 0))
      return n.Fail(absl::StrCat("cannot reshape to [", absl::StrJoin(shape, ","), "]"));
    if (shape[d] == -1)
      open = static_cast<int64_t>(d);
    else if (__builtin_mul_overflow(known, shape[d], &known))
      return n.Fail("the shape is too large");
  }
  if (open >= 0) shape[open] = known == 0 ? 0 : NumElements(n.Type(x)) / known;
  const ValueId y = n.Reshape(x, shape);
  if (!n.ok()) return;
  // What the model says of lengths has to be what follows from the operand.
  for (size_t d = 0; d < extents.size(); ++d) {
    const auto& lengths = n.lengths().Of(y);
    const auto own = lengths.find(static_cast<int>(d));
    const ValueId found = own == lengths.end() ? -1 : own->second;
    const bool open_here = extents[d].length < 0 && extents[d].value <= 0;
    if (!open_here && extents[d].length != found)
      return n.Unsupported(absl::StrCat("a shape whose dimension ", d, " depends on data"));
  }
  n.Set(0, y);
}

void Flatten(NodeImport& n) {
  const ValueId x = n.In(0);
  const Shape& shape = n.ShapeOf(x);
  int64_t axis = n.Int("axis");
  if (axis < 0) axis += n.Rank(x);
  if (axis < 0 || axis > n.Rank(x)) return n.Fail("axis is outside the input");
  n.Set(0, n.Reshape(x, {Product({shape.begin(), shape.begin() + axis}),
                         Product({shape.begin() + axis, shape.end()})}));
}

Shape AxesOperand(NodeImport& n) {
  if (n.opset() < 13) return n.Ints("axes");
  return n.Has(1) ? n.ConstantInts(1) : Shape{};
}

void Squeeze(NodeImport& n) {
  const ValueId x = n.In(0);
  const Shape axes = n.Axes(AxesOperand(n), n.Rank(x));
  Shape shape;
  for (int64_t d = 0; d < n.Rank(x); ++d) {
    const bool named = std::binary_search(axes.begin(), axes.end(), d);
    if (named && n.ShapeOf(x)[d] != 1) return n.Fail(absl::StrCat("dimension ", d, " is not one"));
    if (!(named || (axes.empty() && n.ShapeOf(x)[d] == 1))) shape.push_back(n.ShapeOf(x)[d]);
  }
  n.Set(0, n.Reshape(x, shape));
}

void Unsqueeze(NodeImport& n) {
  const ValueId x = n.In(0);
  const Shape given = AxesOperand(n);
  const Shape axes = n.Axes(given, n.Rank(x) + static_cast<int>(given.size()));
  if (!n.ok()) return;
  Shape shape = n.ShapeOf(x);
  for (int64_t axis : axes) shape.insert(shape.begin() + axis, 1);
  n.Set(0, n.Reshape(x, shape));
}

void ShapeOp(NodeImport& n) {
  const Shape& shape = n.ShapeOf(n.In(0));
  const int64_t rank = static_cast<int64_t>(shape.size());
  const auto bound = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank); };
  const int64_t begin = bound(n.Int("start")), end = bound(n.HasAttr("end") ? n.Int("end") : rank);
  n.Set(0, ExtentsOf(n, n.In(0), static_cast<int>(begin), static_cast<int>(end)));
}

void Size(NodeImport& n) {
  const ValueId x = n.In(0);
  if (n.lengths().Of(x).empty()) return n.Set(0, Scalar(n, NumElements(n.Type(x))));
  ValueId size = Scalar(n, 1);
  for (int d = 0; d < n.Rank(x); ++d) size = n.Emit(OpKind::kMul, {size, ExtentOf(n, x, d)});
  n.Set(0, size);
}

// ---- Movement ----

void Transpose(NodeImport& n) {
  const ValueId x = n.In(0);
  Shape perm = n.Ints("perm");
  if (perm.empty()) {
    perm.resize(n.Rank(x));
    std::iota(perm.rbegin(), perm.rend(), 0);
  }
  n.Set(0, n.Transpose(x, perm));
}

void ConcatOp(NodeImport& n) {
  std::vector<ValueId> parts;
  for (int i = 0; i < n.NumInputs(); ++i) {
    const ValueId v = n.In(i);
    parts.push_back(v);
  }
  if (parts.empty()) return n.Fail("has no inputs");
  const int64_t axis = n.Axis(n.Int("axis", 1), n.Rank(parts[0]));
  n.Set(0, Concat(n, parts, axis));
}

ValueId EmitSlice(NodeImport& n, ValueId x, const Shape& starts, const Shape& steps,
                  const Shape& sizes) {
  const bool whole = sizes == n.ShapeOf(x) &&
                     std::all_of(steps.begin(), steps.end(), [](int64_t s) { return s == 1; });
  return whole ? x
               : n.Emit(OpKind::kSlice, {x},
                        {{"starts", starts}, {"steps", steps}, {"sizes", sizes}});
}

// A bound of each element of an operand of integers; INT64_MAX if import cannot follow it.
Shape FollowOperand(NodeImport& n, int i) {
  const ValueId v = n.In(i);
  if (!n.ok()) return {};
  Shape bounds;
  for (int64_t k = 0; k < NumElements(n.Type(v)); ++k) {
    const auto one = Extents(n, Part(n, v, 0, k, k + 1));
    bounds.push_back(one && one->size() == 1 ? (*one)[0].value : INT64_MAX);
  }
  return bounds;
}

// Whether a slice of x needs data: its bounds are computed, or x has lengths along its axes.
bool NeedsData(NodeImport& n, ValueId x) {
  const ValueId starts = n.In(1), ends = n.In(2);
  if (!n.ok()) return false;
  if (n.ConstantData(starts) == nullptr || n.ConstantData(ends) == nullptr)
    return n.Rank(starts) == 1 && n.Rank(ends) == 1;
  const TensorData* axes = n.Has(3) ? n.ConstantData(n.In(3)) : nullptr;
  if (n.Has(3) && axes == nullptr) return false;
  for (const auto& [d, length] : n.lengths().Of(x)) {
    if (axes == nullptr && d < NumElements(n.Type(starts))) return true;
    for (const int64_t axis : axes == nullptr ? Shape{} : ToInts(*axes)) {
      if (axis == d || axis + n.Rank(x) == d) return true;
    }
  }
  return false;
}

void Split(NodeImport& n) {
  const ValueId x = n.In(0);
  const int64_t axis = n.Axis(n.Int("axis"), n.Rank(x));
  if (!n.ok() || n.Rank(x) == 0) return n.Fail("needs a dimension to split");
  const int64_t extent = n.ShapeOf(x)[axis], parts = n.NumOutputs();
  const bool counted = n.HasAttr("num_outputs");
  Shape sizes = n.HasAttr("split") ? n.Ints("split") : n.Has(1) ? n.ConstantInts(1) : Shape{};
  if (!n.ok()) return;
  if (counted && n.Has(1)) return n.Fail("has both sizes and num_outputs");
  if (counted && n.Int("num_outputs") != parts)
    return n.Fail(
        absl::StrCat("has ", parts, " outputs, but num_outputs is ", n.Int("num_outputs")));
  if (sizes.empty()) {
    // Only since opset 18, the last part may be smaller.
    if (!counted && extent % parts != 0)
      return n.Fail(absl::StrCat(extent, " elements are not ", parts, " equal parts"));
    const int64_t each = (extent + parts - 1) / parts;
    for (int64_t i = 0; i < parts; ++i) sizes.push_back(std::min(each, extent - i * each));
  }
  const bool possible = std::all_of(sizes.begin(), sizes.end(),
                                    [&](int64_t size) { return size >= 0 && size <= extent; });
  if (static_cast<int64_t>(sizes.size()) != parts || !possible ||
      std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) != extent) {
    return n.Fail(absl::StrCat("the parts do not add up to ", extent));
  }
  Shape starts(n.Rank(x), 0), out = n.ShapeOf(x);
  const Shape steps(n.Rank(x), 1);
  for (int64_t i = 0; i < parts; ++i) {
    out[axis] = sizes[i];
    if (n.Wants(static_cast<int>(i)))
      n.Set(static_cast<int>(i), EmitSlice(n, x, starts, steps, out));
    starts[axis] += sizes[i];
  }
}

// A slice by bounds that are data, or of dimensions with lengths.
void SliceByData(NodeImport& n, ValueId x) {
  const Shape axes = n.Has(3) ? n.ConstantInts(3) : Shape{};
  const int64_t count = NumElements(n.Type(n.In(1)));
  if (count > n.Rank(x) || NumElements(n.Type(n.In(2))) != count)
    return n.Fail("starts and ends differ in length, or are more than the dimensions");
  const Shape steps = n.Has(4) ? n.ConstantInts(4) : Shape(static_cast<size_t>(count), 1);
  if (!n.ok()) return;
  const Shape ends = FollowOperand(n, 2);
  if ((n.Has(3) && axes.size() != steps.size()) || static_cast<int64_t>(steps.size()) != count)
    return n.Fail("starts, ends, axes and steps differ in length");
  for (int64_t k = 0; k < count && n.ok(); ++k) {
    const auto d = static_cast<int>(n.Axis(n.Has(3) ? axes[k] : k, n.Rank(x)));
    if (!n.ok()) return;
    if (steps[k] != 1) return n.Unsupported("steps along a dimension whose bounds are data");
    const ValueId extent = ExtentOf(n, x, d), zero = Scalar(n, 0);
    const auto bound = [&](int operand) {
      ValueId at = n.Cast(n.Reshape(Part(n, n.In(operand), 0, k, k + 1), {}), DType::kI64);
      at = n.Emit(OpKind::kWhere,
                  {n.Emit(OpKind::kLess, {at, zero}), n.Emit(OpKind::kAdd, {at, extent}), at});
      return n.Emit(OpKind::kMin, {n.Emit(OpKind::kMax, {at, zero}), extent});
    };
    const ValueId start = bound(1), end = bound(2);
    const ValueId length = n.Emit(OpKind::kMax, {n.Emit(OpKind::kSub, {end, start}), zero});
    if (!n.ok()) return;
    // A negative end counts from the extent, and has no bound.
    x = Window(n, x, d, start, length, ends[k] >= 0 ? std::max<int64_t>(ends[k], 1) : INT64_MAX);
  }
  n.Set(0, x);
}

void Slice(NodeImport& n) {
  const ValueId x = n.In(0);
  const bool attributes = n.opset() < 10;
  if (n.ok() && !attributes && NeedsData(n, x)) return SliceByData(n, x);
  const Shape starts = attributes ? n.Ints("starts") : n.ConstantInts(1);
  const Shape ends = attributes ? n.Ints("ends") : n.ConstantInts(2);
  Shape axes = attributes ? n.Ints("axes") : n.Has(3) ? n.ConstantInts(3) : Shape{};
  Shape steps = !attributes && n.Has(4) ? n.ConstantInts(4) : Shape(starts.size(), 1);
  if (!n.ok()) return;
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (ends.size() != starts.size() || axes.size() != starts.size() ||
      steps.size() != starts.size()) {
    return n.Fail("starts, ends, axes and steps differ in length");
  }
  Shape from(n.Rank(x), 0), by(n.Rank(x), 1), sizes = n.ShapeOf(x);
  for (size_t k = 0; k < axes.size(); ++k) {
    const int64_t d = n.Axis(axes[k], n.Rank(x)), step = steps[k];
    if (!n.ok() || step == 0) return n.Fail("a step is zero");
    const int64_t extent = n.ShapeOf(x)[d];
    const auto bound = [&](int64_t i, int64_t low, int64_t high) {
      return std::clamp(i < 0 ? i + extent : i, low, high);
    };
    const int64_t start = step > 0 ? bound(starts[k], 0, extent) : bound(starts[k], 0, extent - 1);
    // With a negative step, an end far below zero means "before the first element".
    const int64_t end = step > 0 ? bound(ends[k], 0, extent)
                                 : (ends[k] < -extent ? -1 : bound(ends[k], -1, extent - 1));
    const int64_t distance = step > 0 ? end - start : start - end;
    // The most negative step has no positive counterpart.
    const int64_t stride = step > 0 ? step : step == INT64_MIN ? INT64_MAX : -step;
    from[d] = start;
    by[d] = step;
    sizes[d] = distance <= 0 ? 0 : (distance - 1) / stride + 1;
    if (sizes[d] == 1) by[d] = 1;
  }
  n.Set(0, EmitSlice(n, x, from, by, sizes));
}

// The tensor repeated in all directions, `begin` elements before and `end` elements after.
ValueId Wrapped(NodeImport& n, ValueId x, const Shape& begin, const Shape& end) {
  for (int d = 0; d < n.Rank(x) && n.ok(); ++d) {
    if (begin[d] == 0 && end[d] == 0) continue;
    const int64_t extent = n.ShapeOf(x)[d];
    if (!n.CanMake({DType::kI64, {begin[d] + extent + end[d]}})) return -1;
    Shape indices;
    for (int64_t i = -begin[d]; i < extent + end[d]; ++i)
      indices.push_back((i % extent + extent) % extent);
    x = n.Emit(OpKind::kGather, {x, n.Constant(FromInts(indices))}, {{"axis", int64_t{d}}});
  }
  return x;
}

void Pad(NodeImport& n) {
  ValueId x = n.In(0);
  const int rank = n.Rank(x);
  const Shape given = n.opset() < 2    ? n.Ints("paddings")
                      : n.opset() < 11 ? n.Ints("pads")
                                       : n.ConstantInts(1);
  if (!n.ok()) return;
  Shape begin(rank, 0), end(rank, 0);
  const Shape axes = n.Has(3) ? n.ConstantInts(3) : Shape{};
  const size_t count = axes.empty() ? static_cast<size_t>(rank) : axes.size();
  if (given.size() != 2 * count) return n.Fail("pads do not fit the input's rank");
  for (size_t i = 0; i < count; ++i) {
    const int64_t d = axes.empty() ? static_cast<int64_t>(i) : n.Axis(axes[i], rank);
    if (!n.ok()) return;
    constexpr int64_t kFarthest = int64_t{1} << 40;
    if (given[i] != std::clamp(given[i], -kFarthest, kFarthest) ||
        given[count + i] != std::clamp(given[count + i], -kFarthest, kFarthest)) {
      return n.Fail("pads are out of range");
    }
    begin[d] = given[i];
    end[d] = given[count + i];
  }
  // Negative pads crop.
  Shape starts(rank, 0), sizes = n.ShapeOf(x);
  for (int d = 0; d < rank; ++d) {
    starts[d] = std::max<int64_t>(-begin[d], 0);
    sizes[d] -= starts[d] + std::max<int64_t>(-end[d], 0);
    if (sizes[d] <= 0) return n.Unsupported("pads that crop everything");
    begin[d] = std::max<int64_t>(begin[d], 0);
    end[d] = std::max<int64_t>(end[d], 0);
  }
  const std::string mode = n.OneOf("mode", {"constant", "reflect", "edge", "wrap"});
  if (!n.ok()) return;
  x = EmitSlice(n, x, starts, Shape(rank, 1), sizes);
  if (mode == "wrap") {
    n.IgnoreOperand(2);
    return n.Set(0, Wrapped(n, x, begin, end));
  }
  Attrs attrs{{"begin", begin}, {"end", end}, {"mode", mode}, {"value", n.Float("value")}};
  std::vector<ValueId> inputs{x};
  if (n.opset() >= 11 && n.Has(2)) {
    const TensorData* fill = n.ConstantData(n.In(2));
    if (fill != nullptr && NumElements(fill->type) == 1)
      attrs["value"] = ToAttr(*fill);
    else
      inputs.push_back(n.In(2));
  }
  n.Set(0, n.Emit(OpKind::kPad, inputs, attrs));
}

void Expand(NodeImport& n) {
  const ValueId x = n.In(0);
  std::vector<Extent> extents = ShapeOperand(n, 1);
  if (!n.ok()) return;
  Shape wanted;
  for (const Extent& e : extents) wanted.push_back(e.value);
  auto shape = BroadcastShapes(n.ShapeOf(x), wanted);
  if (!shape.ok()) return n.Fail(std::string(shape.status().message()));
  const ValueId y = *shape == n.ShapeOf(x) ? x : n.Emit(OpKind::kExpand, {x}, {{"shape", *shape}});
  if (!n.ok()) return;
  // A length may repeat a dimension of one, or be the one that the operand has.
  const auto more = static_cast<int>(shape->size() - extents.size());
  for (size_t k = 0; k < extents.size(); ++k) {
    const int d = static_cast<int>(k) + more, own = d - (n.Rank(y) - n.Rank(x));
    const auto& lengths = n.lengths().Of(y);
    const auto found = lengths.find(d);
    const bool repeats = own < 0 || n.ShapeOf(x)[own] == 1;
    if (found != lengths.end() ? extents[k].length >= 0 && extents[k].length != found->second
                               : extents[k].length >= 0 && !repeats)
      return n.Unsupported(absl::StrCat("a shape whose dimension ", k, " depends on data"));
  }
  extents.insert(extents.begin(), static_cast<size_t>(more), Extent{});
  n.Set(0, WithExtents(n, y, extents));
}

void Tile(NodeImport& n) {
  if (n.opset() < 6) return n.Unsupported("before opset 6");
  n.Set(0, n.Emit(OpKind::kTile, {n.In(0)}, {{"repeats", n.ConstantInts(1)}}));
}

void Gather(NodeImport& n) {
  const std::string& type = n.proto().op_type();
  const ValueId x = n.In(0), indices = n.In(1);
  if (type == "GatherND")
    return n.Set(0, n.Emit(OpKind::kGatherNd, {x, indices}, {{"batch_dims", n.Int("batch_dims")}}));
  const int64_t axis = n.Axis(n.Int("axis"), n.Rank(x));
  n.Set(0, n.Emit(type == "Gather" ? OpKind::kGather : OpKind::kGatherElements, {x, indices},
                  {{"axis", axis}}));
}

void OneHot(NodeImport& n) {
  ValueId indices = n.In(0);
  const Shape depth = n.ConstantInts(1);
  if (!n.ok()) return;
  if (depth.size() != 1 || depth[0] < 1) return n.Fail("needs one positive depth");
  if (n.Type(indices).dtype != DType::kI32) indices = n.Cast(indices, DType::kI64);
  n.Set(0, n.Emit(OpKind::kOneHot, {indices, n.In(2)},
                  {{"axis", n.Axis(n.Int("axis"), n.Rank(indices) + 1)}, {"depth", depth[0]}}));
}

void DepthToSpace(NodeImport& n) {
  const ValueId x = n.In(0);
  // Keeps the product of its square and a dimension in range.
  constexpr int64_t kLargestBlock = 1 << 15;
  const int64_t b = n.Int("blocksize");
  if (!n.ok() || n.Rank(x) != 4 || b < 1 || b > kLargestBlock || n.ShapeOf(x)[1] % (b * b) != 0)
    return n.Fail("the block size does not fit");
  const int64_t batch = n.ShapeOf(x)[0], c = n.ShapeOf(x)[1] / (b * b), h = n.ShapeOf(x)[2],
                w = n.ShapeOf(x)[3];
  ValueId y;
  if (n.OneOf("mode", {"DCR", "CRD"}) == "CRD") {
    y = n.Transpose(n.Reshape(x, {batch, c, b, b, h, w}), {0, 1, 4, 2, 5, 3});
  } else {
    y = n.Transpose(n.Reshape(x, {batch, b, b, c, h, w}), {0, 3, 4, 1, 5, 2});
  }
  n.Set(0, n.Reshape(y, {batch, c, h * b, w * b}));
}

void SpaceToDepth(NodeImport& n) {
  const ValueId x = n.In(0);
  // Keeps the product of its square and a dimension in range.
  constexpr int64_t kLargestBlock = 1 << 15;
  const int64_t b = n.Int("blocksize");
  if (!n.ok() || n.Rank(x) != 4 || b < 1 || b > kLargestBlock || n.ShapeOf(x)[2] % b != 0 ||
      n.ShapeOf(x)[3] % b != 0) {
    return n.Fail("the block size does not fit");
  }
  const int64_t batch = n.ShapeOf(x)[0], c = n.ShapeOf(x)[1], h = n.ShapeOf(x)[2] / b,
                w = n.ShapeOf(x)[3] / b;
  const bool by_channel = n.OneOf("mode", {"DCR", "CRD"}) == "CRD";
  const ValueId y = n.Transpose(n.Reshape(x, {batch, c, h, b, w, b}),
                                by_channel ? Shape{0, 1, 3, 5, 2, 4} : Shape{0, 3, 5, 1, 2, 4});
  n.Set(0, n.Reshape(y, {batch, c * b * b, h, w}));
}

void Trilu(NodeImport& n) {
  const Shape k = n.Has(1) ? n.ConstantInts(1) : Shape{0};
  if (!n.ok() || k.size() != 1) return n.Fail("needs one diagonal");
  n.Set(0, n.Emit(OpKind::kTrilu, {n.In(0)}, {{"upper", n.Int("upper")}, {"k", k[0]}}));
}

void ReverseSequence(NodeImport& n) {
  const ValueId x = n.In(0);
  n.Set(0, n.Emit(OpKind::kReverseSequence, {x, n.In(1)},
                  {{"time_axis", n.Axis(n.Int("time_axis"), n.Rank(x))},
                   {"batch_axis", n.Axis(n.Int("batch_axis"), n.Rank(x))}}));
}

}  // namespace

void AddMovementTranslations(TranslationTable& table) {
  table["Reshape"] = {Reshape, "a shape that is neither constant nor made of computed lengths"};
  table["Flatten"] = Flatten;
  table["Squeeze"] = {Squeeze, "axes that are not constants"};
  table["Unsqueeze"] = {Unsqueeze, "axes that are not constants"};
  table["Shape"] = ShapeOp;
  table["Size"] = Size;
  table["Transpose"] = Transpose;
  table["Concat"] = ConcatOp;
  table["Split"] = {Split, "sizes that are not constants"};
  table["Slice"] = {Slice, "axes or steps that are not constants; steps with computed bounds"};
  table["Pad"] = {Pad, "pads that are not constants, or crop everything"};
  table["Expand"] = {Expand, "a shape that is neither constant nor made of computed lengths"};
  table["Tile"] = {Tile, "repeats that are not constants; opsets before 6"};
  for (const char* name : {"Gather", "GatherElements", "GatherND"}) table[name] = Gather;
  table["OneHot"] = {OneHot, "a depth that is not constant"};
  table["DepthToSpace"] = DepthToSpace;
  table["SpaceToDepth"] = SpaceToDepth;
  table["Trilu"] = {Trilu, "a diagonal that is not constant"};
  table["ReverseSequence"] = ReverseSequence;
}

}  // namespace heddle::graph
