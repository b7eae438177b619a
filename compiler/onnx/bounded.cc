#include "compiler/onnx/bounded.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/graph/core/operator.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/onnx/slices.h"

namespace heddle::graph {
namespace {

using ir::DType;

constexpr int64_t kUnknown = INT64_MAX;
constexpr int64_t kLeastBound = 2;

// Operators whose translations take extents from nothing but what they emit, or from this file.
bool TakesLengths(const std::string& type) {
  static const auto* known = new std::set<std::string>{"Abs",
                                                       "Acos",
                                                       "Acosh",
                                                       "Add",
                                                       "And",
                                                       "ArgMax",
                                                       "ArgMin",
                                                       "Asin",
                                                       "Asinh",
                                                       "Atan",
                                                       "Atanh",
                                                       "BatchNormalization",
                                                       "Cast",
                                                       "CastLike",
                                                       "Ceil",
                                                       "Celu",
                                                       "Clip",
                                                       "Compress",
                                                       "Concat",
                                                       "ConcatFromSequence",
                                                       "Conv",
                                                       "Cos",
                                                       "Cosh",
                                                       "CumProd",
                                                       "CumSum",
                                                       "Div",
                                                       "Elu",
                                                       "Equal",
                                                       "Erf",
                                                       "Exp",
                                                       "Expand",
                                                       "Floor",
                                                       "Gather",
                                                       "GatherElements",
                                                       "GatherND",
                                                       "Gelu",
                                                       "Gemm",
                                                       "Greater",
                                                       "GreaterOrEqual",
                                                       "HardSigmoid",
                                                       "HardSwish",
                                                       "Identity",
                                                       "If",
                                                       "IsInf",
                                                       "IsNaN",
                                                       "LeakyRelu",
                                                       "Less",
                                                       "LessOrEqual",
                                                       "Log",
                                                       "LogSoftmax",
                                                       "MatMul",
                                                       "Max",
                                                       "MaxPool",
                                                       "Mean",
                                                       "Min",
                                                       "Mish",
                                                       "Mod",
                                                       "Mul",
                                                       "Neg",
                                                       "NonMaxSuppression",
                                                       "NonZero",
                                                       "Not",
                                                       "Or",
                                                       "PRelu",
                                                       "Pow",
                                                       "Range",
                                                       "Reciprocal",
                                                       "ReduceL1",
                                                       "ReduceL2",
                                                       "ReduceLogSum",
                                                       "ReduceLogSumExp",
                                                       "ReduceMax",
                                                       "ReduceMean",
                                                       "ReduceMin",
                                                       "ReduceProd",
                                                       "ReduceSum",
                                                       "ReduceSumSquare",
                                                       "Relu",
                                                       "Reshape",
                                                       "Round",
                                                       "Scatter",
                                                       "ScatterElements",
                                                       "ScatterND",
                                                       "Selu",
                                                       "SequenceAt",
                                                       "SequenceConstruct",
                                                       "SequenceInsert",
                                                       "Shape",
                                                       "Shrink",
                                                       "Sigmoid",
                                                       "Sign",
                                                       "Sin",
                                                       "Sinh",
                                                       "Size",
                                                       "Slice",
                                                       "Softmax",
                                                       "Softplus",
                                                       "Softsign",
                                                       "Sqrt",
                                                       "Squeeze",
                                                       "Sub",
                                                       "Sum",
                                                       "Swish",
                                                       "Tan",
                                                       "Tanh",
                                                       "ThresholdedRelu",
                                                       "Tile",
                                                       "TopK",
                                                       "Transpose",
                                                       "Unsqueeze",
                                                       "Where",
                                                       "Xor"};
  return known->count(type) != 0;
}

std::string DependsOn(NodeImport& n, ValueId v) {
  const ValueId length = n.lengths().Of(v).begin()->second;
  const LengthTable::Origin* origin = n.lengths().Find(length);
  return absl::StrCat("'", n.ValueName(v), "', whose size depends on ",
                      origin == nullptr ? "data" : origin->text);
}

ValueId NumberConstant(NodeImport& n, double value, DType dtype) {
  return n.Constant(FromDoubles({value}, {}, dtype));
}

// The largest or smallest number of a type; infinite for floats.
ValueId Extreme(NodeImport& n, DType dtype, bool largest) {
  if (ir::IsFloat(dtype)) return NumberConstant(n, largest ? HUGE_VAL : -HUGE_VAL, dtype);
  const uint64_t ones = ~uint64_t{0} >> (64 - 8 * ir::SizeOf(dtype));
  const uint64_t most = ir::IsUnsigned(dtype) ? ones : ones / 2;
  const uint64_t least = ir::IsUnsigned(dtype) ? 0 : most + 1;
  return n.Constant(Repeated(FromInts({static_cast<int64_t>(largest ? most : least)}, dtype), {}));
}

// ---- How lengths move ----

class Rules {
 public:
  Rules(NodeImport& n, OpKind kind, std::vector<ValueId> inputs, Attrs attrs)
      : n_(n), kind_(kind), in_(std::move(inputs)), attrs_(std::move(attrs)) {}

  ValueId Run() {
    const ValueId special = Follow();
    if (!n_.ok()) return -1;
    if (special >= 0) return special;
    const ValueId out = n_.EmitFixed(kind_, in_, attrs_);
    if (!n_.ok()) return -1;
    for (const auto& [dimension, length] : result_) n_.lengths().Set(out, dimension, length);
    return out;
  }

 private:
  using ByDimension = LengthTable::ByDimension;

  const ByDimension& Lengths(size_t i) const { return n_.lengths().Of(in_[i]); }
  const Shape& ShapeOf(size_t i) const { return n_.ShapeOf(in_[i]); }
  int Rank(size_t i) const { return n_.Rank(in_[i]); }
  ValueId LengthOf(size_t i, int dimension) const {
    const auto it = Lengths(i).find(dimension);
    return it == Lengths(i).end() ? -1 : it->second;
  }
  OpAttrs Read() const { return OpAttrs(Def(kind_).attrs, attrs_); }
  int Axis(const char* name, size_t i = 0) const {
    const auto axis = static_cast<int>(Read().Int(name));
    return axis < 0 ? axis + Rank(i) : axis;
  }

  ValueId Refuse(size_t i) {
    n_.Unsupported(DependsOn(n_, in_[i]));
    return -1;
  }

  // Operands from `first` on must have no lengths.
  bool OnlyBefore(size_t first) {
    for (size_t i = first; i < in_.size(); ++i) {
      if (!Lengths(i).empty()) Refuse(i);
    }
    return n_.ok();
  }

  // The filling along a dimension of an operand becomes `fill`.
  void Fill(size_t i, int dimension, ValueId fill) {
    if (LengthOf(i, dimension) >= 0) in_[i] = Filled(n_, in_[i], dimension, fill);
  }

  // Dimension `at` of the result is made of dimension at + offsets[i] of each operand, broadcast.
  void Align(int at, const std::vector<int>& offsets) {
    ValueId length = -1;
    for (size_t i = 0; i < offsets.size(); ++i) {
      if (at + offsets[i] < 0) continue;
      const ValueId own = LengthOf(i, at + offsets[i]);
      if (own >= 0) length = own;
    }
    if (length < 0) return;
    for (size_t i = 0; i < offsets.size(); ++i) {
      const int d = at + offsets[i];
      if (d < 0 || LengthOf(i, d) == length || ShapeOf(i)[d] == 1) continue;
      return n_.Unsupported(absl::StrCat("operands of different sizes, '", n_.ValueName(in_[0]),
                                         "' and '", n_.ValueName(in_[i]),
                                         "', that depend on data"));
    }
    result_[at] = length;
  }

  void AlignAll() {
    int rank = 0;
    for (size_t i = 0; i < in_.size(); ++i) rank = std::max(rank, Rank(i));
    std::vector<int> offsets;
    for (size_t i = 0; i < in_.size(); ++i) offsets.push_back(Rank(i) - rank);
    for (int d = 0; d < rank && n_.ok(); ++d) Align(d, offsets);
  }

  // Makes indices into a dimension with a length count from its start.
  void CountFromStart(size_t data, int dimension, size_t indices) {
    const ValueId length = LengthOf(data, dimension);
    if (length < 0) return;
    if (const TensorData* known = n_.ConstantData(in_[indices])) {
      const Shape values = ToInts(*known);
      if (std::all_of(values.begin(), values.end(), [](int64_t i) { return i >= 0; })) return;
    }
    ValueId& v = in_[indices];
    v = n_.Cast(v, DType::kI64);
    const ValueId negative = n_.Emit(OpKind::kLess, {v, Scalar(n_, 0)});
    v = n_.Emit(OpKind::kWhere, {negative, n_.Emit(OpKind::kAdd, {v, length}), v});
  }

  ValueId Follow();
  ValueId FollowReshape();
  ValueId FollowConcat();
  ValueId FollowReduction();
  ValueId FollowGather();
  ValueId FollowScatter();
  ValueId FollowMatmul();

  NodeImport& n_;
  OpKind kind_;
  std::vector<ValueId> in_;
  Attrs attrs_;
  ByDimension result_;
};

// The result if it is not the operator with these operands; otherwise -1.
ValueId Rules::Follow() {
  const OpDef& def = Def(kind_);
  if (def.family == OpFamily::kReduction) return FollowReduction();
  if (def.family == OpFamily::kConvolution || def.family == OpFamily::kPool) {
    // Images of a batch do not meet.
    if (Lengths(0).size() != 1 || Lengths(0).begin()->first != 0 || !OnlyBefore(1))
      return Refuse(0);
    result_ = Lengths(0);
    return -1;
  }
  switch (kind_) {
    case OpKind::kBatchNorm:
      if (LengthOf(0, 1) >= 0 || !OnlyBefore(1)) return Refuse(0);
      result_ = Lengths(0);
      return -1;
    case OpKind::kTranspose: {
      const Shape perm = Read().Ints("perm");
      for (int d = 0; d < Rank(0); ++d) {
        const ValueId length = LengthOf(0, static_cast<int>(perm[d]));
        if (length >= 0) result_[d] = length;
      }
      return -1;
    }
    case OpKind::kReshape:
      return FollowReshape();
    case OpKind::kConcat:
      return FollowConcat();
    case OpKind::kSlice: {
      for (const auto& [d, length] : Lengths(0)) {
        const bool whole = Read().Ints("starts")[d] == 0 && Read().Ints("steps")[d] == 1 &&
                           Read().Ints("sizes")[d] == ShapeOf(0)[d];
        if (!whole) return Refuse(0);
      }
      result_ = Lengths(0);
      return -1;
    }
    case OpKind::kPad: {
      for (const auto& [d, length] : Lengths(0)) {
        if (Read().Ints("begin")[d] != 0 || Read().Ints("end")[d] != 0) return Refuse(0);
      }
      result_ = Lengths(0);
      return -1;
    }
    case OpKind::kTile: {
      for (const auto& [d, length] : Lengths(0)) {
        if (Read().Ints("repeats")[d] != 1) return Refuse(0);
      }
      result_ = Lengths(0);
      return -1;
    }
    case OpKind::kExpand: {
      const auto more = static_cast<int>(Read().Ints("shape").size()) - Rank(0);
      for (const auto& [d, length] : Lengths(0)) {
        if (Read().Ints("shape")[d + more] != ShapeOf(0)[d]) return Refuse(0);
        result_[d + more] = length;
      }
      return -1;
    }
    case OpKind::kGather:
    case OpKind::kGatherElements:
    case OpKind::kGatherNd:
      return FollowGather();
    case OpKind::kScatterElements:
    case OpKind::kScatterNd:
      return FollowScatter();
    case OpKind::kMatmul:
      return FollowMatmul();
    case OpKind::kOneHot: {
      const auto axis = static_cast<int>(Read().Int("axis"));
      if (!OnlyBefore(1)) return -1;
      for (const auto& [d, length] : Lengths(0)) result_[d < axis ? d : d + 1] = length;
      return -1;
    }
    case OpKind::kTopK: {
      // What comes last: a NaN is larger than any number.
      const DType dtype = n_.Type(in_[0]).dtype;
      const bool largest = Read().Flag("largest");
      const int axis = Axis("axis");
      if (LengthOf(0, axis) >= 0)
        Fill(0, axis,
             !largest && ir::IsFloat(dtype) ? NumberConstant(n_, NAN, dtype)
                                            : Extreme(n_, dtype, !largest));
      result_ = Lengths(0);
      return -1;
    }
    case OpKind::kCumSum:
    case OpKind::kCumProd: {
      result_ = Lengths(0);
      if (Read().Flag("reverse"))
        Fill(0, Axis("axis"), n_.ScalarLike(kind_ == OpKind::kCumProd ? 1 : 0, in_[0]));
      return -1;
    }
    case OpKind::kSoftmax:
    case OpKind::kLogSoftmax: {
      result_ = Lengths(0);
      for (int64_t axis : Read().Ints("axes"))
        Fill(0, static_cast<int>(axis), n_.ScalarLike(-HUGE_VAL, in_[0]));
      return -1;
    }
    case OpKind::kNormalize: {
      if (!OnlyBefore(1)) return -1;
      for (int64_t axis : Read().Ints("axes")) {
        if (LengthOf(0, static_cast<int>(axis)) >= 0) return Refuse(0);
      }
      result_ = Lengths(0);
      return -1;
    }
    default:
      break;
  }
  if (def.elementwise) {
    AlignAll();
    return -1;
  }
  for (size_t i = 0; i < in_.size(); ++i) {
    if (!Lengths(i).empty()) return Refuse(i);
  }
  return -1;
}

// A dimension with a length stays, or merges with those behind it: then the length is multiplied.
ValueId Rules::FollowReshape() {
  const Shape &from = ShapeOf(0), to = Read().Ints("shape");
  for (const auto& [d, length] : Lengths(0)) {
    const int64_t before = Product({from.begin(), from.begin() + d}), extent = from[d];
    int64_t reached = 1;
    bool found = false;
    for (size_t k = 0; k < to.size() && !found; reached *= to[k++]) {
      if (reached != before || to[k] % extent != 0) continue;
      // The dimensions that merge have no length of their own.
      int64_t times = to[k] / extent, merged = 1;
      int last = d;
      while (last + 1 < Rank(0) && merged < times) {
        if (LengthOf(0, last + 1) >= 0) break;
        merged *= from[++last];
      }
      if (merged != times) continue;
      found = true;
      ValueId scaled = length;
      if (times != 1) {
        scaled = n_.Emit(OpKind::kMul, {length, Scalar(n_, times)});
        if (const auto* origin = n_.lengths().Find(length))
          n_.lengths().Define(scaled, {origin->bound * times, origin->text});
      }
      result_[static_cast<int>(k)] = scaled;
    }
    if (!found) return Refuse(0);
  }
  return -1;
}

ValueId Rules::FollowConcat() {
  const int axis = Axis("axis");
  bool along = false;
  for (size_t i = 0; i < in_.size(); ++i) along |= LengthOf(i, axis) >= 0;
  for (int d = 0; d < Rank(0) && n_.ok(); ++d) {
    if (d != axis) Align(d, std::vector<int>(in_.size(), 0));
  }
  if (!along || !n_.ok()) return -1;
  // The meant elements of all parts move together: place k of the result reads place
  // k - (lengths before the part) + (extents before the part) of all parts one after the other.
  ValueId end = Scalar(n_, 0), from = -1;
  int64_t extents = 0, bound = 0;
  for (size_t i = 0; i < in_.size(); ++i) bound += ShapeOf(i)[axis];
  const ValueId places = Count(n_, bound);
  for (size_t i = 0; i < in_.size() && n_.ok(); ++i) {
    const ValueId here =
        n_.Emit(OpKind::kAdd, {n_.Emit(OpKind::kSub, {places, end}), Scalar(n_, extents)});
    from = i == 0 ? here
                  : n_.Emit(OpKind::kWhere, {n_.Emit(OpKind::kLess, {places, end}), from, here});
    end = n_.Emit(OpKind::kAdd, {end, ExtentOf(n_, in_[i], axis)});
    extents += ShapeOf(i)[axis];
  }
  const ValueId all = n_.EmitFixed(kind_, in_, attrs_);
  const ValueId out = n_.EmitFixed(OpKind::kGather, {all, from}, {{"axis", int64_t{axis}}});
  if (!n_.ok()) return -1;
  for (const auto& [d, length] : result_) n_.lengths().Set(out, d, length);
  return WithLength(n_, out, axis, end);
}

ValueId Rules::FollowReduction() {
  Shape axes = Read().Ints("axes");
  for (int64_t& axis : axes) axis = axis < 0 ? axis + Rank(0) : axis;
  const bool keeps = Read().Flag("keepdims");
  const DType dtype = n_.Type(in_[0]).dtype;
  int dropped = 0;
  ValueId count = -1;  // of what is reduced
  for (int d = 0; d < Rank(0); ++d) {
    const bool reduced = std::find(axes.begin(), axes.end(), d) != axes.end();
    const ValueId length = LengthOf(0, d);
    if (reduced) {
      if (kind_ == OpKind::kReduceMean) {
        const ValueId extent = ExtentOf(n_, in_[0], d);
        count = count < 0 ? extent : n_.Emit(OpKind::kMul, {count, extent});
      }
      if (!keeps) ++dropped;
    } else if (length >= 0) {
      result_[d - dropped] = length;
    }
    if (!reduced || length < 0) continue;
    switch (kind_) {
      case OpKind::kReduceMax:
      case OpKind::kArgMax:
      case OpKind::kReduceMin:
      case OpKind::kArgMin: {
        const bool max = kind_ == OpKind::kReduceMax || kind_ == OpKind::kArgMax;
        if (Def(kind_).attrs.size() > 2 && Read().Flag("select_last_index")) return Refuse(0);
        Fill(0, d, Extreme(n_, dtype, !max));
        break;
      }
      case OpKind::kReduceLogSumExp:
        if (!ir::IsFloat(dtype)) return Refuse(0);
        Fill(0, d, Extreme(n_, dtype, false));
        break;
      case OpKind::kReduceProd:
        Fill(0, d, n_.ScalarLike(1, in_[0]));
        break;
      default:  // sums
        Fill(0, d, n_.ScalarLike(0, in_[0]));
    }
  }
  if (kind_ != OpKind::kReduceMean || n_.ConstantData(count) != nullptr) return -1;
  const bool single = ir::IsHalf(dtype);
  const ValueId terms = single ? n_.Cast(in_[0], DType::kF32) : in_[0];
  const ValueId sum = n_.Emit(OpKind::kReduceSum, {terms}, attrs_);
  return n_.Cast(n_.Emit(OpKind::kDiv, {sum, n_.Cast(count, n_.Type(terms).dtype)}), dtype);
}

ValueId Rules::FollowGather() {
  if (kind_ == OpKind::kGatherNd) {
    const auto depth = static_cast<int>(ShapeOf(1).back());
    const int last = Rank(1) - 1;
    if (Read().Int("batch_dims") != 0 || LengthOf(1, last) >= 0) return Refuse(0);
    for (const auto& [d, length] : Lengths(1)) result_[d] = length;
    bool indexed = false;
    for (const auto& [d, length] : Lengths(0)) {
      if (d >= depth) result_[d - depth + last] = length;
      indexed |= d < depth;
    }
    if (!indexed) return -1;
    // Negative indices count from the end of what is meant.
    const ValueId indices = n_.Cast(in_[1], DType::kI64);
    const ValueId negative = n_.Emit(OpKind::kLess, {indices, Scalar(n_, 0)});
    const ValueId ends = n_.Emit(OpKind::kAdd, {indices, ExtentsOf(n_, in_[0], 0, depth)});
    in_[1] = n_.Emit(OpKind::kWhere, {negative, ends, indices});
    return -1;
  }
  const int axis = Axis("axis");
  CountFromStart(0, axis, 1);
  if (!n_.ok()) return -1;
  if (kind_ == OpKind::kGatherElements) {
    for (const auto& [d, length] : Lengths(0)) {
      if (d != axis && LengthOf(1, d) != length) return Refuse(0);
    }
    result_ = Lengths(1);
    return -1;
  }
  for (const auto& [d, length] : Lengths(1)) result_[axis + d] = length;
  for (const auto& [d, length] : Lengths(0)) {
    if (d != axis) result_[d < axis ? d : d + Rank(1) - 1] = length;
  }
  return -1;
}

// An index out of range writes nothing, so the filling of indices becomes such an index.
ValueId Rules::FollowScatter() {
  if (!Lengths(0).empty()) return Refuse(0);
  const bool elements = kind_ == OpKind::kScatterElements;
  if (elements ? Lengths(2) != Lengths(1)
               : std::any_of(Lengths(2).begin(), Lengths(2).end(),
                             [&](const auto& l) { return LengthOf(1, l.first) != l.second; }))
    return Refuse(2);
  if (Lengths(1).empty()) return -1;
  in_[1] = n_.Cast(in_[1], DType::kI64);
  const ByDimension lengths = Lengths(1);
  for (const auto& [d, length] : lengths) {
    if (!elements && d == Rank(1) - 1) return Refuse(1);
    Fill(1, d, Scalar(n_, int64_t{1} << 41));
  }
  return -1;
}

ValueId Rules::FollowMatmul() {
  if (Rank(0) < 2 || Rank(1) < 2) return Refuse(Lengths(0).empty() ? 1 : 0);
  const int rank = std::max(Rank(0), Rank(1));
  const int inner[] = {Rank(0) - 1, Rank(1) - 2};
  if (LengthOf(0, inner[0]) != LengthOf(1, inner[1])) return Refuse(Lengths(0).empty() ? 1 : 0);
  for (int d = 0; d < rank - 2 && n_.ok(); ++d) Align(d, {Rank(0) - rank, Rank(1) - rank});
  if (const ValueId rows = LengthOf(0, Rank(0) - 2); rows >= 0) result_[rank - 2] = rows;
  if (const ValueId columns = LengthOf(1, Rank(1) - 1); columns >= 0) result_[rank - 1] = columns;
  for (size_t i = 0; i < 2 && n_.ok(); ++i) Fill(i, inner[i], n_.ScalarLike(0, in_[i]));
  return -1;
}

// ---- Following how a shape is made ----

Extent MinOf(const std::vector<Extent>& list, ValueId made) {
  Extent least{kUnknown, made};
  for (const Extent& e : list) least.value = std::min(least.value, e.value);
  return least;
}

// An element that import cannot follow has the value kUnknown.
std::vector<Extent> FollowInts(NodeImport& n, ValueId v) {
  const int64_t count = NumElements(n.Type(v));
  constexpr int64_t kMost = 64;  // more elements than a shape has
  if (count > kMost || !ir::IsInteger(n.Type(v).dtype)) return {{kUnknown, -1}};
  std::vector<Extent> result;
  if (const TensorData* known = n.ConstantData(v)) {
    for (int64_t i : ToInts(*known)) result.push_back({i, -1});
    return result;
  }
  if (const LengthTable::Origin* origin = n.lengths().Find(v)) return {{origin->bound, v}};
  const Node* node = n.lengths().Of(v).empty() ? n.ProducerOf(v) : nullptr;
  if (node == nullptr) return std::vector<Extent>(static_cast<size_t>(count), {kUnknown, -1});
  const std::vector<ValueId> inputs = node->inputs;
  const auto operand = [&](size_t i) { return FollowInts(n, inputs[i]); };
  const OpAttrs attrs(Def(node->kind).attrs, node->attrs);
  const auto count_is = [&](const std::vector<Extent>& e) {
    return static_cast<int64_t>(e.size()) == count;
  };
  switch (node->kind) {
    case OpKind::kIdentity:
    case OpKind::kReshape:
    case OpKind::kCast:
      result = operand(0);
      break;
    case OpKind::kConcat:
      for (size_t i = 0; i < inputs.size(); ++i) {
        const auto part = operand(i);
        result.insert(result.end(), part.begin(), part.end());
      }
      break;
    case OpKind::kGather: {
      const auto from = operand(0);
      const TensorData* indices = n.ConstantData(inputs[1]);
      if (indices == nullptr || n.Rank(inputs[0]) != 1) break;
      const auto size = static_cast<int64_t>(from.size());
      for (int64_t i : ToInts(*indices)) {
        if (i < 0) i += size;
        if (i >= 0 && i < size) result.push_back(from[i]);
      }
      break;
    }
    case OpKind::kSlice: {
      const auto from = operand(0);
      const Shape starts = attrs.Ints("starts"), steps = attrs.Ints("steps"),
                  sizes = attrs.Ints("sizes");
      if (starts.size() != 1 ||
          !(NumElements(n.Type(inputs[0])) == static_cast<int64_t>(from.size())))
        break;
      for (int64_t i = 0; i < sizes[0]; ++i) result.push_back(from[starts[0] + i * steps[0]]);
      break;
    }
    case OpKind::kMin:
      if (count == 1) result = {MinOf({operand(0)[0], operand(1)[0]}, v)};
      break;
    case OpKind::kReduceMin:
      if (count == 1) result = {MinOf(operand(0), v)};
      break;
    case OpKind::kClip:
      if (count == 1 && attrs.Has("max"))
        result = {MinOf({operand(0)[0], {ir::FloatToInt(attrs.Float("max"), DType::kI64), -1}}, v)};
      break;
    default:
      break;
  }
  if (!count_is(result)) result.assign(static_cast<size_t>(count), {kUnknown, -1});
  return result;
}

void Describe(NodeImport& n, ValueId length, int64_t bound) {
  if (n.lengths().Find(length) != nullptr) return;
  n.lengths().Define(length,
                     {bound, absl::StrCat(n.proto().op_type(), " (node '", n.name(), "')")});
}

}  // namespace

void CheckLengths(NodeImport& n) {
  if (TakesLengths(n.proto().op_type())) return;
  for (int i = 0; i < n.NumInputs() && n.ok(); ++i) {
    if (n.proto().input(i).empty()) continue;
    const NamedValue* v = n.Peek(i);
    if (v == nullptr) continue;
    std::vector<ValueId> items = v->items;
    items.push_back(v->tensor);
    for (const ValueId item : items) {
      if (item >= 0 && !n.lengths().Of(item).empty()) return n.Unsupported(DependsOn(n, item));
    }
  }
}

ValueId EmitWithLengths(NodeImport& n, OpKind kind, std::vector<ValueId> inputs, Attrs attrs) {
  return Rules(n, kind, std::move(inputs), std::move(attrs)).Run();
}

ValueId WithLength(NodeImport& n, ValueId v, int dimension, ValueId length) {
  if (!n.ok()) return -1;
  LengthTable::ByDimension lengths = n.lengths().Of(v);
  const auto own = lengths.find(dimension);
  if (own != lengths.end() && own->second != length) {
    length = n.Emit(OpKind::kMin, {own->second, length});
    if (!n.ok()) return -1;
  }
  const int64_t extent = n.ShapeOf(v)[dimension];
  if (const TensorData* known = n.ConstantData(length)) {
    const int64_t end = std::clamp<int64_t>(ToInts(*known)[0], 0, extent);
    return Part(n, v, dimension, 0, end);
  }
  if (extent == 0) return v;
  if (extent > kLargestBound) {
    n.Unsupported(absl::StrCat("a result of up to ", extent, " elements"));
    return -1;
  }
  Describe(n, length, extent);
  v = extent < kLeastBound ? n.EmitFixed(OpKind::kConcat, {v, v}, {{"axis", int64_t{dimension}}})
                           : n.EmitFixed(OpKind::kIdentity, {v});
  if (!n.ok()) return -1;
  lengths[dimension] = length;
  for (const auto& [d, l] : lengths) n.lengths().Set(v, d, l);
  return v;
}

ValueId Filled(NodeImport& n, ValueId v, int dimension, ValueId fill) {
  if (!n.ok()) return -1;
  const LengthTable::ByDimension lengths = n.lengths().Of(v);
  const auto own = lengths.find(dimension);
  if (own == lengths.end()) return v;
  const ValueId places = n.AlongAxis(Count(n, n.ShapeOf(v)[dimension]), dimension, n.Rank(v));
  const ValueId meant = n.EmitFixed(OpKind::kLess, {places, own->second});
  const ValueId y = n.EmitFixed(OpKind::kWhere, {meant, v, fill});
  if (!n.ok()) return -1;
  for (const auto& [d, length] : lengths) {
    if (d != dimension) n.lengths().Set(y, d, length);
  }
  return y;
}

ValueId ExtentOf(NodeImport& n, ValueId v, int dimension) {
  if (!n.ok()) return -1;
  const auto& lengths = n.lengths().Of(v);
  const auto own = lengths.find(dimension);
  return own != lengths.end() ? own->second : Scalar(n, n.ShapeOf(v)[dimension]);
}

ValueId ExtentsOf(NodeImport& n, ValueId v, int begin, int end) {
  if (!n.ok()) return -1;
  if (n.lengths().Of(v).empty()) {
    const Shape& shape = n.ShapeOf(v);
    return n.Constant(
        FromInts(begin < end ? Shape(shape.begin() + begin, shape.begin() + end) : Shape{}));
  }
  std::vector<ValueId> parts;
  for (int d = begin; d < end; ++d) parts.push_back(n.Reshape(ExtentOf(n, v, d), {1}));
  return parts.empty() ? n.Constant(FromInts({})) : Concat(n, parts, 0);
}

ValueId Window(NodeImport& n, ValueId v, int dimension, ValueId start, ValueId length,
               int64_t most) {
  if (!n.ok()) return -1;
  const TensorData* known = n.ConstantData(start);
  const bool from_start = known != nullptr && ToInts(*known)[0] == 0;
  LengthTable::ByDimension lengths = n.lengths().Of(v);
  lengths.erase(dimension);
  most = std::min(most, n.ShapeOf(v)[dimension]);
  if (most < n.ShapeOf(v)[dimension] || !from_start) {
    const ValueId places = n.Emit(OpKind::kAdd, {Count(n, most), start});
    v = n.EmitFixed(OpKind::kGather, {v, places}, {{"axis", int64_t{dimension}}});
  } else {
    v = n.EmitFixed(OpKind::kIdentity, {v});
  }
  if (!n.ok()) return -1;
  for (const auto& [d, l] : lengths) n.lengths().Set(v, d, l);
  return WithLength(n, v, dimension, length);
}

ValueId Count(NodeImport& n, int64_t count) {
  if (!n.CanMake({DType::kI64, {count}})) return -1;
  Shape numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return n.Constant(FromInts(numbers));
}

ValueId Scalar(NodeImport& n, int64_t value) { return n.Constant(Repeated(FromInts({value}), {})); }

ValueId ScalarOperand(NodeImport& n, int i) {
  const ValueId v = n.In(i);
  if (n.ok() && NumElements(n.Type(v)) != 1)
    n.Fail(absl::StrCat("input '", n.proto().input(i), "' has to be one number"));
  if (!n.ok()) return -1;
  const Extent extent = FollowInts(n, v)[0];
  return extent.length >= 0 && n.Rank(extent.length) == 0 ? n.Cast(extent.length, DType::kI64)
                                                          : n.Cast(n.Reshape(v, {}), DType::kI64);
}

std::optional<std::vector<Extent>> Extents(NodeImport& n, ValueId v) {
  std::vector<Extent> extents = FollowInts(n, v);
  for (Extent& e : extents) {
    if (e.value == kUnknown) return std::nullopt;
    if (e.length < 0) continue;
    Describe(n, e.length, e.value);
    if (n.Rank(e.length) != 0 || n.Type(e.length).dtype != DType::kI64) {
      const ValueId scalar = n.Cast(n.Reshape(e.length, {}), DType::kI64);
      if (!n.ok()) return std::nullopt;
      const LengthTable::Origin origin = *n.lengths().Find(e.length);
      n.lengths().Define(scalar, origin);
      e.length = scalar;
    }
    e.value = std::max(e.value, kLeastBound);
  }
  return extents;
}

std::vector<Extent> ShapeOperand(NodeImport& n, int i) {
  const ValueId v = n.In(i);
  if (!n.ok()) return {};
  auto extents = Extents(n, v);
  if (n.ok() && !extents)
    n.Unsupported(
        absl::StrCat("input '", n.proto().input(i), "' decides a shape and has to be a constant"));
  return n.ok() ? *extents : std::vector<Extent>{};
}

ValueId WithExtents(NodeImport& n, ValueId v, const std::vector<Extent>& extents) {
  for (size_t d = 0; d < extents.size() && n.ok(); ++d) {
    const auto dimension = static_cast<int>(d);
    const auto& lengths = n.lengths().Of(v);
    const auto own = lengths.find(dimension);
    if (extents[d].length < 0 || (own != lengths.end() && own->second == extents[d].length))
      continue;
    v = WithLength(n, v, dimension, extents[d].length);
  }
  return v;
}

}  // namespace heddle::graph
