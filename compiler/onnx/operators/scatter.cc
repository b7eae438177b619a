// Translation of the ONNX operators that write by indices, and of TopK.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/bounded.h"
#include "compiler/onnx/node.h"

namespace heddle::graph {
namespace {

using ir::DType;

// The kernels of these operators compare each element with all updates that may concern it.
bool IsAffordableScatter(NodeImport& n, double elements, double each) {
  if (elements * each > kMostComparisons)
    n.Unsupported(absl::StrCat("of ", elements, " elements, ", each, " comparisons each"));
  return n.ok();
}

double ElementsOf(NodeImport& n, ValueId v) { return static_cast<double>(NumElements(n.Type(v))); }

std::string Reduction(NodeImport& n) {
  return n.OneOf("reduction", {"none", "add", "mul", "max", "min"});
}

void ScatterElements(NodeImport& n) {
  const ValueId data = n.In(0), indices = n.In(1), updates = n.In(2);
  if (n.ok() && n.Rank(indices) != n.Rank(data)) return n.Fail("indices of another rank");
  const int64_t axis = n.Axis(n.Int("axis"), n.Rank(data));
  if (!n.ok() ||
      !IsAffordableScatter(n, ElementsOf(n, data), static_cast<double>(n.ShapeOf(indices)[axis])))
    return;
  n.Set(0, n.Emit(OpKind::kScatterElements, {data, indices, updates},
                  {{"axis", axis}, {"reduction", Reduction(n)}}));
}

void ScatterNd(NodeImport& n) {
  const ValueId data = n.In(0), indices = n.In(1), updates = n.In(2);
  if (n.ok() && n.Rank(indices) == 0) return n.Fail("needs indices");
  if (!n.ok() || !IsAffordableScatter(n, ElementsOf(n, data), ElementsOf(n, indices))) return;
  n.Set(0, n.Emit(OpKind::kScatterNd, {data, indices, updates}, {{"reduction", Reduction(n)}}));
}

void TopK(NodeImport& n) {
  n.Ignore({"sorted"});  // without it, any order will do
  const ValueId x = n.In(0);
  const int64_t axis = n.Axis(n.Int("axis"), n.Rank(x));
  if (!n.ok()) return;
  // A computed k is the length of the results; as many are sorted as it may be at most.
  ValueId length = -1;
  int64_t k = n.Int("k");
  if (n.opset() >= 10) {
    const ValueId wanted = ScalarOperand(n, 1);
    if (!n.ok()) return;
    const auto extent = Extents(n, wanted);
    k = extent ? (*extent)[0].value : n.ShapeOf(x)[axis];
    if (n.ConstantData(wanted) == nullptr) {
      k = std::min(k, n.ShapeOf(x)[axis]);
      length = wanted;
    }
  }
  if (k == 0 && n.ok()) {
    Shape none = n.ShapeOf(x);
    none[axis] = 0;
    n.Set(0, n.Constant({{n.Type(x).dtype, none}, SharedBytes::Of("")}));
    return n.Set(1, n.Constant({{DType::kI64, none}, SharedBytes::Of("")}));
  }
  if (!IsAffordableScatter(n, ElementsOf(n, x), static_cast<double>(n.ShapeOf(x)[axis]))) return;
  ValueId indices =
      n.Emit(OpKind::kTopK, {x}, {{"axis", axis}, {"k", k}, {"largest", n.Int("largest", 1)}});
  if (length >= 0) indices = WithLength(n, indices, static_cast<int>(axis), length);
  n.Set(0, n.Emit(OpKind::kGatherElements, {x, indices}, {{"axis", axis}}));
  n.Set(1, indices);
}

}  // namespace

void AddScatterTranslations(TranslationTable& table) {
  constexpr const char* kLimits = "more than 1e10 comparisons of elements with updates";
  table["Scatter"] = {ScatterElements, kLimits};
  table["ScatterElements"] = {ScatterElements, kLimits};
  table["ScatterND"] = {ScatterNd, kLimits};
  table["TopK"] = {TopK, "more than 1e10 comparisons of elements"};
}

}  // namespace heddle::graph
