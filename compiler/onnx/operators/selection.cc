// Translation of the operators that choose among elements, so that the size of their results depends
// on data: NonZero, Compress, Unique, NonMaxSuppression (TopK: scatter.cc).
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/bounded.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/slices.h"

namespace heddle::graph {
namespace {

using ir::DType;

// Limits the intermediate tensors of a choice.
constexpr int64_t kMostElements = int64_t{1} << 28;

bool IsAffordable(NodeImport& n, double cost, double most, const std::string& what) {
  if (cost > most) n.Unsupported(absl::StrCat("a choice among ", what));
  return n.ok();
}

// ---- Running sums and choices, in rows of about the root of the length ----

struct RunningSums {
  ValueId within = -1;  // i32 [.., rows, width]: the sums inside of each row
  ValueId before = -1;  // i32 [.., rows]: the sums of all rows before
  ValueId total = -1;   // i32 [.., rows]: the same with the row itself
  int64_t rows = 0, width = 0;
};

// The running sums of flags [lead, count]. Each row of each part is summed by itself, so that the
// work is far below the square of the count.
RunningSums SumRows(NodeImport& n, ValueId flags) {
  RunningSums r;
  if (!n.ok()) return r;
  const int64_t lead = n.ShapeOf(flags)[0], count = n.ShapeOf(flags)[1];
  r.width = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  r.rows = (count + r.width - 1) / r.width;
  ValueId x = n.Cast(flags, DType::kI32);
  if (r.rows * r.width != count)
    x = n.Emit(OpKind::kPad, {x},
               {{"begin", Shape{0, 0}}, {"end", Shape{0, r.rows * r.width - count}}});
  r.within =
      n.Emit(OpKind::kCumSum, {n.Reshape(x, {lead, r.rows, r.width})}, {{"axis", int64_t{2}}});
  const ValueId sums = At(n, r.within, 2, r.width - 1);
  r.total = n.Emit(OpKind::kCumSum, {sums}, {{"axis", int64_t{1}}});
  r.before = n.Emit(OpKind::kSub, {r.total, sums});
  return r;
}

// What was chosen: the places in the order of the flags, as i64; what stands behind the first `count`
// (an i64 scalar) is filling.
struct Chosen {
  ValueId places = -1, count = -1;
};

// The places of flags [count] that are set, of which there are at most `most`.
Chosen Choose(NodeImport& n, ValueId flags, int64_t most) {
  if (!n.ok()) return {};
  if (const TensorData* known = n.ConstantData(flags)) {
    Shape places;
    const Shape set = ToInts(*known);
    for (size_t i = 0; i < set.size(); ++i) {
      if (set[i] != 0) places.push_back(static_cast<int64_t>(i));
    }
    return {n.Constant(FromInts(places)), Scalar(n, static_cast<int64_t>(places.size()))};
  }
  // Operators with equal flags, as exporters write them, get equal lengths.
  if (const auto* made = n.lengths().FindChoice(flags)) return {made->first, made->second};
  const int64_t extent = n.ShapeOf(flags)[0];
  most = std::min(most, extent);
  const RunningSums r = SumRows(n, n.Reshape(flags, {1, extent}));
  if (!IsAffordable(n, static_cast<double>(most) * static_cast<double>(r.width + r.rows),
                    static_cast<double>(kMostElements),
                    absl::StrCat(extent, " elements, of which up to ", most, " are chosen")))
    return {};
  // The k-th place lies behind the rows whose sum is at most k, and inside of its row behind those
  // whose sum is at most what is left of k.
  const ValueId numbers = n.Reshape(n.Cast(Count(n, most), DType::kI32), {most, 1});
  const auto how_many = [&](ValueId sums, ValueId up_to) {
    const ValueId is = n.Emit(OpKind::kLessEqual, {sums, up_to});
    return n.Emit(OpKind::kReduceSum, {n.Cast(is, DType::kI32)},
                  {{"axes", Shape{1}}, {"keepdims", int64_t{0}}});
  };
  const ValueId row = n.Emit(OpKind::kClip, {how_many(r.total, numbers)},
                             {{"min", int64_t{0}}, {"max", r.rows - 1}});
  const auto of_row = [&](ValueId v) {
    return n.Emit(OpKind::kGather, {v, row}, {{"axis", int64_t{0}}});
  };
  const ValueId left =
      n.Emit(OpKind::kSub, {numbers, n.Reshape(of_row(n.Reshape(r.before, {r.rows})), {most, 1})});
  const ValueId column = how_many(of_row(n.Reshape(r.within, {r.rows, r.width})), left);
  const ValueId place =
      n.Emit(OpKind::kAdd, {n.Emit(OpKind::kMul, {n.Cast(row, DType::kI64), Scalar(n, r.width)}),
                            n.Cast(column, DType::kI64)});
  const Chosen chosen{n.Emit(OpKind::kClip, {place}, {{"min", int64_t{0}}, {"max", extent - 1}}),
                      n.Reshape(n.Cast(Part(n, r.total, 1, r.rows - 1, r.rows), DType::kI64), {})};
  if (n.ok()) n.lengths().KeepChoice(flags, {chosen.places, chosen.count});
  return chosen;
}

// ---- NonZero, Compress ----

void NonZero(NodeImport& n) {
  ValueId x = n.In(0);
  if (!n.ok()) return;
  const Shape shape = n.ShapeOf(x);
  if (shape.empty()) return n.Unsupported("a scalar");
  if (n.Type(x).dtype != DType::kBool)
    x = n.Emit(OpKind::kNot, {n.Emit(OpKind::kEqual, {x, n.ScalarLike(0, x)})});
  const LengthTable::ByDimension lengths = n.ok() ? n.lengths().Of(x) : LengthTable::ByDimension();
  for (const auto& [dimension, length] : lengths) x = Filled(n, x, dimension, n.ScalarLike(0, x));
  const ValueId flags = n.Reshape(x, {Product(shape)});
  const Chosen chosen = Choose(n, flags, INT64_MAX);
  if (!n.ok()) return;
  const auto rank = static_cast<int64_t>(shape.size());
  const auto column = [&](const Shape& values) {
    return n.Reshape(n.Constant(FromInts(values)), {rank, 1});
  };
  Shape strides = RowMajorStrides(shape), extents = shape;
  for (int64_t& d : strides) d = std::max<int64_t>(d, 1);
  for (int64_t& d : extents) d = std::max<int64_t>(d, 1);
  const ValueId places = n.Reshape(chosen.places, {1, n.ShapeOf(chosen.places)[0]});
  const ValueId outer = n.Emit(OpKind::kFloorDiv, {places, column(strides)});
  n.Set(0, WithLength(n, n.Emit(OpKind::kFloorMod, {outer, column(extents)}), 1, chosen.count));
}

void Compress(NodeImport& n) {
  ValueId x = n.In(0), flags = n.In(1);
  if (!n.ok()) return;
  if (!n.HasAttr("axis")) x = n.Reshape(x, {Product(n.ShapeOf(x))});
  const auto axis = static_cast<int>(n.HasAttr("axis") ? n.Axis(n.Int("axis"), n.Rank(x)) : 0);
  if (!n.ok() || n.Rank(x) == 0 || n.Rank(flags) != 1) return n.Fail("needs a vector of flags");
  const LengthTable::ByDimension lengths = n.lengths().Of(flags);
  if (!lengths.empty() && n.lengths().Of(x).count(axis) == 0)
    return n.Unsupported("flags whose number depends on data");
  if (!lengths.empty()) flags = Filled(n, flags, 0, n.ScalarLike(0, flags));
  // Missing flags are not set.
  if (n.ok() && n.ShapeOf(flags)[0] > n.ShapeOf(x)[axis])
    flags = Part(n, flags, 0, 0, n.ShapeOf(x)[axis]);
  const Chosen chosen = Choose(n, flags, INT64_MAX);
  const ValueId y = n.Emit(OpKind::kGather, {x, chosen.places}, {{"axis", int64_t{axis}}});
  n.Set(0, WithLength(n, y, axis, chosen.count));
}

// ---- Unique ----

ValueId SortedBy(NodeImport& n, ValueId keys) {  // the places of the elements of a vector, in order
  if (!n.ok()) return -1;
  return n.Emit(OpKind::kTopK, {keys},
                {{"axis", int64_t{0}}, {"k", n.ShapeOf(keys)[0]}, {"largest", int64_t{0}}});
}

ValueId Pick(NodeImport& n, ValueId v, ValueId places) {
  return n.Emit(OpKind::kGather, {v, places}, {{"axis", int64_t{0}}});
}

// The order of the rows of a matrix, compared element by element from the first on.
ValueId RowOrder(NodeImport& n, ValueId x) {
  if (!n.ok()) return -1;
  const int64_t count = n.ShapeOf(x)[0], width = n.ShapeOf(x)[1];
  if (width == 1) return SortedBy(n, n.Reshape(x, {count}));
  // Where each pair of rows differs first, and what the first of the pair has there.
  const ValueId equal =
      n.Emit(OpKind::kEqual, {n.Reshape(x, {count, 1, width}), n.Reshape(x, {1, count, width})});
  const ValueId differs = n.Cast(n.Emit(OpKind::kNot, {equal}), DType::kI32);
  const ValueId first =
      n.Emit(OpKind::kArgMax, {differs}, {{"axes", Shape{2}}, {"keepdims", int64_t{0}}});
  const ValueId at = n.Emit(OpKind::kReshape, {first}, {{"shape", Shape{count * count, 1}}});
  const ValueId row =
      n.Emit(OpKind::kFloorDiv,
             {n.Reshape(Count(n, count * count), {count * count, 1}), Scalar(n, count)});
  const ValueId mine = n.Reshape(
      n.Emit(OpKind::kGatherNd, {x, Concat(n, {row, at}, 1)}, {{"batch_dims", int64_t{0}}}),
      {count, count});
  const ValueId other = n.Transpose(mine, {1, 0});
  // The place of a row is the number of those before it.
  const ValueId numbers = Count(n, count);
  const ValueId earlier =
      n.Emit(OpKind::kLess, {n.Reshape(numbers, {1, count}), n.Reshape(numbers, {count, 1})});
  const ValueId before =
      n.Emit(OpKind::kOr, {n.Emit(OpKind::kLess, {other, mine}),
                           n.Emit(OpKind::kAnd, {n.Emit(OpKind::kEqual, {other, mine}), earlier})});
  const ValueId places = n.Emit(OpKind::kReduceSum, {n.Cast(before, DType::kI64)},
                                {{"axes", Shape{1}}, {"keepdims", int64_t{0}}});
  return SortedBy(n, places);
}

void Unique(NodeImport& n) {
  ValueId x = n.In(0);
  const bool sorted = n.Int("sorted", 1) != 0, along = n.HasAttr("axis");
  if (!n.ok()) return;
  const DType dtype = n.Type(x).dtype;
  // The parts that are compared, as rows of a matrix.
  Shape perm, shape = n.ShapeOf(x);
  const int64_t axis = along ? n.Axis(n.Int("axis"), n.Rank(x)) : 0;
  if (!n.ok()) return;
  for (int64_t d = 0; d < n.Rank(x); ++d) perm.push_back(d);
  if (along) {
    perm.erase(perm.begin() + axis);
    perm.insert(perm.begin(), axis);
  }
  const int64_t count = along ? shape[axis] : Product(shape);
  if (Product(shape) == 0) return n.Unsupported("tensors without elements");
  const int64_t width = Product(shape) / count;
  const ValueId whole = along ? n.Transpose(x, perm) : n.Reshape(x, {count});
  ValueId rows = n.Reshape(whole, {count, width});
  if (dtype == DType::kBool) rows = n.Cast(rows, DType::kU8);
  const auto pairs = static_cast<double>(count) * static_cast<double>(count);
  if (!IsAffordable(n, pairs, kMostComparisons, absl::StrCat(count, " elements")) ||
      (width > 1 &&
       !IsAffordable(n, pairs * static_cast<double>(width), static_cast<double>(kMostElements),
                     absl::StrCat(count, " parts of ", width, " elements"))))
    return;
  // In sorted order, equal parts stand beside each other, the first one of the tensor first.
  const ValueId order = RowOrder(n, rows), in_order = Pick(n, rows, order);
  const ValueId first = n.Constant(Filled({DType::kBool, {1}}, 1));
  ValueId begins = first;
  if (count > 1) {
    const ValueId same = n.Emit(
        OpKind::kEqual, {Part(n, in_order, 0, 1, count), Part(n, in_order, 0, 0, count - 1)});
    const ValueId differs = n.Cast(n.Emit(OpKind::kNot, {same}), DType::kI32);
    const ValueId any =
        n.Emit(OpKind::kReduceMax, {differs}, {{"axes", Shape{1}}, {"keepdims", int64_t{0}}});
    begins = Concat(n, {first, n.Cast(any, DType::kBool)}, 0);
  }
  const Chosen chosen = Choose(n, begins, INT64_MAX);
  if (!n.ok()) return;
  // Filling stands behind all that is meant, also after it is sorted.
  const ValueId numbers = Count(n, n.ShapeOf(chosen.places)[0]);
  const ValueId meant = n.Emit(OpKind::kLess, {numbers, chosen.count});
  const ValueId end = Scalar(n, count);
  ValueId indices = n.Emit(OpKind::kWhere, {meant, Pick(n, order, chosen.places), end});
  const ValueId starts = n.Emit(OpKind::kWhere, {meant, chosen.places, end});
  const int64_t bound = n.ok() ? n.ShapeOf(starts)[0] : 1;
  const ValueId next = Concat(n, {Part(n, starts, 0, 1, bound), n.Constant(FromInts({count}))}, 0);
  ValueId counts = bound > 1 ? n.Emit(OpKind::kSub, {next, starts}) : n.Constant(FromInts({count}));
  const RunningSums sums = SumRows(n, n.Reshape(begins, {1, count}));
  // The number of the group of each part, in the order of the tensor.
  const ValueId grouped =
      n.Reshape(n.Emit(OpKind::kAdd, {sums.within, n.Reshape(sums.before, {1, sums.rows, 1})}),
                {sums.rows * sums.width});
  const ValueId group =
      n.Emit(OpKind::kSub, {n.Cast(Part(n, grouped, 0, 0, count), DType::kI64), Scalar(n, 1)});
  ValueId inverse = Pick(n, group, SortedBy(n, order));
  if (!sorted) {
    const ValueId by_appearance = SortedBy(n, indices);
    indices = Pick(n, indices, by_appearance);
    counts = Pick(n, counts, by_appearance);
    inverse = Pick(n, SortedBy(n, by_appearance), inverse);
  }
  ValueId y = Pick(n, whole, indices);
  if (along && n.ok()) {
    Shape back(perm.size());
    for (size_t i = 0; i < perm.size(); ++i) back[perm[i]] = static_cast<int64_t>(i);
    y = n.Transpose(y, back);
  }
  n.Set(0, WithLength(n, y, static_cast<int>(axis), chosen.count));
  if (n.Wants(1)) n.Set(1, WithLength(n, indices, 0, chosen.count));
  if (n.Wants(2)) n.Set(2, inverse);
  if (n.Wants(3)) n.Set(3, WithLength(n, counts, 0, chosen.count));
}

// ---- NonMaxSuppression ----

// Corners y1, x1, y2, x2 with y1 <= y2 and x1 <= x2.
ValueId Corners(NodeImport& n, ValueId boxes, bool centres) {
  const auto part = [&](int64_t k) { return Part(n, boxes, 2, k, k + 1); };
  const auto op = [&](OpKind kind, ValueId a, ValueId b) { return n.Emit(kind, {a, b}); };
  if (!centres) {
    return Concat(n,
                  {op(OpKind::kMin, part(0), part(2)), op(OpKind::kMin, part(1), part(3)),
                   op(OpKind::kMax, part(0), part(2)), op(OpKind::kMax, part(1), part(3))},
                  2);
  }
  // Centre x, centre y, width, height.
  const ValueId two = n.ScalarLike(2, boxes);
  const ValueId half_width = op(OpKind::kDiv, part(2), two),
                half_height = op(OpKind::kDiv, part(3), two);
  return Concat(n,
                {op(OpKind::kSub, part(1), half_height), op(OpKind::kSub, part(0), half_width),
                 op(OpKind::kAdd, part(1), half_height), op(OpKind::kAdd, part(0), half_width)},
                2);
}

void NonMaxSuppression(NodeImport& n) {
  const ValueId boxes = n.In(0);
  ValueId scores = n.In(1);
  const bool centres = n.Int("center_point_box") != 0;
  if (!n.ok()) return;
  if (n.Rank(boxes) != 3 || n.Rank(scores) != 3 || n.ShapeOf(boxes)[2] != 4 ||
      n.ShapeOf(scores)[0] != n.ShapeOf(boxes)[0] || n.ShapeOf(scores)[2] != n.ShapeOf(boxes)[1])
    return n.Fail("needs boxes [batches, boxes, 4] and scores [batches, classes, boxes]");
  const int64_t batches = n.ShapeOf(scores)[0], classes = n.ShapeOf(scores)[1],
                count = n.ShapeOf(scores)[2], rows = batches * classes;
  // Boxes beyond their number get no score.
  const auto &of_boxes = n.lengths().Of(boxes), &of_scores = n.lengths().Of(scores);
  const bool bounded = of_boxes.count(1) != 0 || of_scores.count(2) != 0;
  if (of_boxes.size() > (bounded ? 1 : 0) || of_scores.size() > (bounded ? 1 : 0) ||
      (of_boxes.count(1) != 0 && of_scores.count(2) != 0 && of_boxes.at(1) != of_scores.at(2)))
    return n.Unsupported("a number of batches or classes that depends on data");
  const ValueId length = of_scores.count(2) != 0 ? of_scores.at(2) : bounded ? of_boxes.at(1) : -1;
  const ValueId most_operand = n.Has(2) ? ScalarOperand(n, 2) : Scalar(n, 0);
  const ValueId overlap =
      n.Has(3) ? n.Reshape(n.In(3), {}) : n.Constant(FromDoubles({0}, {}, DType::kF32));
  if (!n.ok()) return;
  const bool none = rows * count == 0;
  const auto bound = Extents(n, most_operand);
  const int64_t most = bound ? std::clamp<int64_t>((*bound)[0].value, 0, count) : count;
  if (most == 0 || none) {
    for (int i = 3; i < 5; ++i) n.IgnoreOperand(i);
    return n.Set(0, n.Constant({{DType::kI64, {0, 3}}, SharedBytes::Of("")}));
  }
  if (!IsAffordable(
          n, static_cast<double>(rows) * static_cast<double>(count) * static_cast<double>(count),
          kMostComparisons, absl::StrCat(rows, " times ", count, " boxes")))
    return;
  ValueId usable = -1;
  if (bounded) {
    scores = n.EmitFixed(OpKind::kIdentity, {scores});
    usable = n.Emit(OpKind::kLess, {n.Reshape(Count(n, count), {1, 1, count}), length});
    scores = n.Emit(OpKind::kWhere, {usable, scores, n.ScalarLike(-HUGE_VAL, scores)});
  }
  const ValueId order = n.Emit(OpKind::kTopK, {scores},
                               {{"axis", int64_t{2}}, {"k", count}, {"largest", int64_t{1}}});
  const ValueId score = n.Emit(OpKind::kGatherElements, {scores, order}, {{"axis", int64_t{2}}});
  // Without a threshold, every box may be chosen.
  ValueId may = n.Has(4) ? n.Emit(OpKind::kLess, {n.Reshape(n.In(4), {}), score})
                         : n.Fill({DType::kBool, {batches, classes, count}}, 1);
  if (bounded) may = n.Emit(OpKind::kAnd, {may, n.Emit(OpKind::kLess, {order, length})});
  const ValueId corners = Corners(n, n.EmitFixed(OpKind::kIdentity, {boxes}), centres);
  const ValueId sorted =
      n.Emit(OpKind::kGatherNd, {corners, n.Reshape(order, {batches, classes * count, 1})},
             {{"batch_dims", int64_t{1}}});
  const ValueId suppressed = n.Emit(OpKind::kSuppress, {n.Reshape(sorted, {rows, count, 4}),
                                                        n.Reshape(may, {rows, count}), overlap});
  ValueId chosen = n.Emit(OpKind::kEqual, {suppressed, n.ScalarLike(0, suppressed)});
  if (!bound || most < count || (*bound)[0].length >= 0) {
    // The first ones of each row.
    const RunningSums sums = SumRows(n, chosen);
    const ValueId number =
        n.Reshape(n.Emit(OpKind::kAdd, {sums.within, n.Reshape(sums.before, {rows, sums.rows, 1})}),
                  {rows, sums.rows * sums.width});
    const ValueId within = n.Emit(
        OpKind::kLessEqual, {n.Cast(Part(n, number, 1, 0, count), DType::kI64), most_operand});
    chosen = n.Emit(OpKind::kAnd, {chosen, within});
  }
  const Chosen all = Choose(n, n.Reshape(chosen, {rows * count}), rows * most);
  const ValueId row = n.Emit(OpKind::kFloorDiv, {all.places, Scalar(n, count)});
  const ValueId box = Pick(n, n.Reshape(order, {rows * count}), all.places);
  if (!n.ok()) return;
  const int64_t results = n.ShapeOf(all.places)[0];
  const auto column = [&](ValueId v) { return n.Reshape(v, {results, 1}); };
  const ValueId triples =
      Concat(n,
             {column(n.Emit(OpKind::kFloorDiv, {row, Scalar(n, classes)})),
              column(n.Emit(OpKind::kFloorMod, {row, Scalar(n, classes)})), column(box)},
             1);
  n.Set(0, WithLength(n, triples, 0, all.count));
}

}  // namespace

void AddSelectionTranslations(TranslationTable& table) {
  table["NonZero"] = {NonZero, "scalars; more than 2^18 elements, about"};
  table["Compress"] = {Compress, "more than 2^18 flags, about"};
  table["Unique"] = {Unique, "more than 1e5 elements; along an axis, 2^28 pairs of elements"};
  table["NonMaxSuppression"] = {NonMaxSuppression, "more than 1e10 pairs of boxes"};
}

}  // namespace heddle::graph
