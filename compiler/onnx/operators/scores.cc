#include "compiler/onnx/operators/scores.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/classical/emit_forest.h"
#include "compiler/onnx/slices.h"

namespace heddle::graph {

using classical::Transform;

ValueId RowsOf(NodeImport& n) { return n.Cast(ExactRowsOf(n), ir::DType::kF32); }

ValueId ExactRowsOf(NodeImport& n) {
  const ValueId x = n.In(0);
  if (!n.ok()) return -1;
  const Shape shape = n.ShapeOf(x);
  if (shape.size() != 1 && shape.size() != 2) {
    n.Fail(absl::StrCat("needs [rows, features], not ", ShapeText(shape)));
    return -1;
  }
  if (shape.back() == 0) n.Unsupported("rows without features");
  const ValueId rows = n.Reshape(x, {shape.size() == 1 ? 1 : shape[0], shape.back()});
  return n.Type(x).dtype == ir::DType::kF64 ? rows : n.Cast(rows, ir::DType::kF32);
}

Transform TransformOf(NodeImport& n) {
  const std::string name =
      n.OneOf("post_transform", {"NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"});
  return name == "LOGISTIC"       ? Transform::kLogistic
         : name == "SOFTMAX"      ? Transform::kSoftmax
         : name == "SOFTMAX_ZERO" ? Transform::kSoftmaxZero
         : name == "PROBIT"       ? Transform::kProbit
                                  : Transform::kNone;
}

ValueId Transformed(NodeImport& n, ValueId scores, Transform transform) {
  if (transform == Transform::kNone) return scores;
  return n.EmitBy(scores, [&](GraphBuilder& out, ValueId v) {
    return classical::EmitTransform(out, v, transform);
  });
}

std::vector<int64_t> ClassLabels(NodeImport& n, std::string_view integers,
                                 std::string_view strings) {
  std::vector<int64_t> labels = n.Ints(integers);
  const size_t named = n.Strings(strings).size();
  if (labels.empty() == (named == 0))
    n.Fail(absl::StrCat("needs labels in one of '", std::string(integers), "' and '",
                        std::string(strings), "'"));
  if (named != 0) {
    labels.resize(named);
    std::iota(labels.begin(), labels.end(), int64_t{0});
  }
  return labels;
}

void SetLabels(NodeImport& n, ValueId classes, const std::vector<int64_t>& labels) {
  bool places = true;  // the labels are the numbers of the classes
  for (size_t i = 0; i < labels.size(); ++i) places &= labels[i] == static_cast<int64_t>(i);
  if (places) return n.Set(0, classes);
  n.Set(0,
        n.Emit(OpKind::kGather, {n.Constant(FromInts(labels)), classes}, {{"axis", int64_t{0}}}));
}

ValueId Best(NodeImport& n, ValueId scores) {
  return n.Emit(OpKind::kArgMax, {scores}, {{"axes", Shape{1}}, {"keepdims", int64_t{0}}});
}

void SetTwoClasses(NodeImport& n, ValueId score, bool complement, Transform transform,
                   const std::vector<int64_t>& labels) {
  const ValueId first = n.Emit(OpKind::kSub, {n.ScalarLike(complement ? 1 : 0, score), score});
  const ValueId second = n.Emit(OpKind::kLess, {n.ScalarLike(complement ? 0.5 : 0, score), score});
  if (!n.ok()) return;
  SetLabels(n, n.Cast(n.Reshape(second, {n.ShapeOf(score)[0]}), ir::DType::kI64), labels);
  n.Set(1, Transformed(n, Concat(n, {first, score}, 1), transform));
}

}  // namespace heddle::graph
