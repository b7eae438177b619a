// Translation of the ONNX reductions.
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/node.h"

namespace heddle::graph {
namespace {

constexpr std::pair<const char*, OpKind> kReductions[] = {
    {"ReduceSum", OpKind::kReduceSum},       {"ReduceMean", OpKind::kReduceMean},
    {"ReduceMax", OpKind::kReduceMax},       {"ReduceMin", OpKind::kReduceMin},
    {"ReduceProd", OpKind::kReduceProd},     {"ReduceL1", OpKind::kReduceL1},
    {"ReduceL2", OpKind::kReduceL2},         {"ReduceSumSquare", OpKind::kReduceSumSquare},
    {"ReduceLogSum", OpKind::kReduceLogSum}, {"ReduceLogSumExp", OpKind::kReduceLogSumExp},
};

// A reduction of a constant without elements: the sum of nothing is zero, and so on.
ValueId OfNothing(NodeImport& n, OpKind kind, ValueId x, const Shape& axes, int64_t keepdims) {
  const ir::DType dtype = n.Type(x).dtype;
  double value = 0;
  if (kind == OpKind::kReduceProd) value = 1;
  if (kind == OpKind::kReduceLogSum || kind == OpKind::kReduceLogSumExp) value = -HUGE_VAL;
  if (kind == OpKind::kReduceMean) value = NAN;
  const bool extreme = kind == OpKind::kReduceMax || kind == OpKind::kReduceMin;
  if (extreme) value = kind == OpKind::kReduceMax ? -HUGE_VAL : HUGE_VAL;
  const TensorType type{dtype, ReducedShape(n.ShapeOf(x), axes, keepdims != 0)};
  if (!ir::IsFloat(dtype) && extreme) {
    const uint64_t ones = ~uint64_t{0} >> (64 - 8 * ir::SizeOf(dtype));  // the largest, if unsigned
    const uint64_t most = ir::IsUnsigned(dtype) ? ones : ones / 2;
    // The lowest signed number has the bits of the one above the highest.
    const uint64_t least = ir::IsUnsigned(dtype) ? 0 : most + 1;
    const uint64_t bits = kind == OpKind::kReduceMin ? most : least;
    if (!n.CanMake(type)) return -1;
    return n.Constant(Repeated(FromInts({static_cast<int64_t>(bits)}, dtype), type.shape));
  }
  if (!ir::IsFloat(dtype) && !std::isfinite(value)) {
    n.Unsupported("integers without elements");
    return -1;
  }
  return n.Fill(type, value);
}

// The axes are an attribute in old opsets and an operand in new ones. Without axes, all dimensions
// are reduced.
void Reduce(NodeImport& n) {
  ValueId x = n.In(0);
  bool was_bool = false;
  const int rank = n.Rank(x);
  Shape axes = n.HasAttr("axes") ? n.Ints("axes") : n.Has(1) ? n.ConstantInts(1) : Shape{};
  const int64_t keepdims = n.Int("keepdims");
  const bool may_do_nothing = n.Int("noop_with_empty_axes") != 0;
  const bool none = axes.empty() && may_do_nothing;
  if (!n.ok()) return;
  if (axes.empty() && !none) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), 0);
  }
  axes = n.Axes(axes, rank);
  // The order of bools is that of the numbers 0 and 1.
  if (n.Type(x).dtype == ir::DType::kBool) {
    x = n.Cast(x, ir::DType::kU8);
    was_bool = true;
  }
  const auto set = [&](ValueId y) { n.Set(0, was_bool ? n.Cast(y, ir::DType::kBool) : y); };
  for (const auto& [onnx, kind] : kReductions) {
    if (n.proto().op_type() != onnx) continue;
    if (n.ok() && NumElements(n.Type(x)) == 0) return set(OfNothing(n, kind, x, axes, keepdims));
    // Over no axes, each element is reduced alone: logarithms and squares are still computed. A
    // scalar is reduced the same way.
    const bool alone_is_itself = kind == OpKind::kReduceSum || kind == OpKind::kReduceMean ||
                                 kind == OpKind::kReduceMax || kind == OpKind::kReduceMin ||
                                 kind == OpKind::kReduceProd;
    if (none && alone_is_itself) return set(x);
    if (rank == 0 || none) {
      Shape shape = n.ShapeOf(x);
      shape.push_back(1);
      return set(n.Emit(kind, {n.Reshape(x, shape)},
                        {{"axes", Shape{int64_t{rank}}}, {"keepdims", int64_t{0}}}));
    }
    return set(n.Emit(kind, {x}, {{"axes", axes}, {"keepdims", keepdims}}));
  }
}

void ArgExtreme(NodeImport& n) {
  const ValueId x = n.In(0);
  const int64_t axis = n.Axis(n.Int("axis"), n.Rank(x));
  n.Set(0, n.Emit(n.proto().op_type() == "ArgMax" ? OpKind::kArgMax : OpKind::kArgMin, {x},
                  {{"axes", Shape{axis}},
                   {"keepdims", n.Int("keepdims")},
                   {"select_last_index", n.Int("select_last_index")}}));
}

void Running(NodeImport& n) {
  const ValueId x = n.In(0);
  const Shape axis = n.ConstantInts(1);
  if (axis.size() != 1) return n.Fail("needs one axis");
  const OpKind kind = n.proto().op_type() == "CumSum" ? OpKind::kCumSum : OpKind::kCumProd;
  n.Set(0, n.Emit(kind, {x},
                  {{"axis", n.Axis(axis[0], n.Rank(x))},
                   {"exclusive", n.Int("exclusive")},
                   {"reverse", n.Int("reverse")}}));
}

}  // namespace

void AddReductionTranslations(TranslationTable& table) {
  for (const auto& [onnx, kind] : kReductions)
    table[onnx] = {Reduce, "axes that are not constants"};
  table["ArgMax"] = ArgExtreme;
  table["ArgMin"] = ArgExtreme;
  for (const char* name : {"CumSum", "CumProd"})
    table[name] = {Running, "an axis that is not a constant"};
}

}  // namespace heddle::graph
