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
  if (!n.ok()) return;
  if (axes.empty() && n.Int("noop_with_empty_axes", 0) != 0) return n.Set(0, x);
  if (axes.empty()) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), 0);
  }
  axes = n.Axes(axes, rank);
  const int64_t keepdims = n.Int("keepdims", 1);
  for (const auto& [onnx, kind] : kReductions) {
    if (n.proto().op_type() != onnx) continue;
    // A scalar is reduced as a vector of one element.
    if (rank == 0)
      return n.Set(
          0, n.Emit(kind, {n.Reshape(x, {1})}, {{"axes", Shape{0}}, {"keepdims", int64_t{0}}}));
    return n.Set(0, n.Emit(kind, {x}, {{"axes", axes}, {"keepdims", keepdims}}));
  }
}

void ArgExtreme(NodeImport& n) {
  const ValueId x = n.In(0);
  const int64_t axis = n.Axis(n.Int("axis", 0), n.Rank(x));
  n.Set(0, n.Emit(n.proto().op_type() == "ArgMax" ? OpKind::kArgMax : OpKind::kArgMin, {x},
                  {{"axes", Shape{axis}},
                   {"keepdims", n.Int("keepdims", 1)},
                   {"select_last_index", n.Int("select_last_index", 0)}}));
}

void CumSum(NodeImport& n) {
  const ValueId x = n.In(0);
  const Shape axis = n.ConstantInts(1);
  if (axis.size() != 1) return n.Fail("needs one axis");
  n.Set(0, n.Emit(OpKind::kCumSum, {x},
                  {{"axis", n.Axis(axis[0], n.Rank(x))},
                   {"exclusive", n.Int("exclusive", 0)},
                   {"reverse", n.Int("reverse", 0)}}));
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
