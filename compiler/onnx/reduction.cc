// Translation of the ONNX reductions.
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

// The axes are an attribute in old opsets and an operand in new ones. Without axes, all dimensions
// are reduced.
void Reduce(NodeImport& n) {
  const ValueId x = n.In(0);
  const int rank = n.Rank(x);
  Shape axes = n.HasAttr("axes") ? n.Ints("axes") : n.Has(1) ? n.ConstantInts(1) : Shape{};
  const int64_t keepdims = n.Int("keepdims");
  const bool none = axes.empty() && n.Int("noop_with_empty_axes") != 0;
  if (!n.ok()) return;
  if (axes.empty() && !none) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), 0);
  }
  axes = n.Axes(axes, rank);
  for (const auto& [onnx, kind] : kReductions) {
    if (n.proto().op_type() != onnx) continue;
    // Over no axes, each element is reduced alone: logarithms and squares are still computed. A
    // scalar is reduced the same way.
    const bool alone_is_itself = kind == OpKind::kReduceSum || kind == OpKind::kReduceMean ||
                                 kind == OpKind::kReduceMax || kind == OpKind::kReduceMin ||
                                 kind == OpKind::kReduceProd;
    if (none && alone_is_itself) return n.Set(0, x);
    if (rank == 0 || none) {
      Shape shape = n.ShapeOf(x);
      shape.push_back(1);
      return n.Set(0, n.Emit(kind, {n.Reshape(x, shape)},
                             {{"axes", Shape{int64_t{rank}}}, {"keepdims", int64_t{0}}}));
    }
    return n.Set(0, n.Emit(kind, {x}, {{"axes", axes}, {"keepdims", keepdims}}));
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

void CumSum(NodeImport& n) {
  const ValueId x = n.In(0);
  const Shape axis = n.ConstantInts(1);
  if (axis.size() != 1) return n.Fail("needs one axis");
  n.Set(0, n.Emit(OpKind::kCumSum, {x},
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
  table["CumSum"] = {CumSum, "an axis that is not a constant"};
}

}  // namespace heddle::graph
