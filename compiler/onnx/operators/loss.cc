// Translation of loss operators, which occur in exported training graphs and evaluation scripts.
#include <numeric>

#include "compiler/onnx/node.h"

namespace heddle::graph {
namespace {

// -weight[target] * logs[target], reduced as the node says. `logs` is [N, C, d..] and the target is
// [N, d..]. Inputs 1 and 2 of the node are the target and the weights.
ValueId NegativeLogLikelihood(NodeImport& n, ValueId logs) {
  ValueId target = n.In(1);
  if (!n.ok()) return -1;
  const Shape shape = n.ShapeOf(target);
  if (n.Rank(logs) != n.Rank(target) + 1) {
    n.Fail("the target does not fit the input");
    return -1;
  }
  Shape with_class = shape;
  with_class.insert(with_class.begin() + 1, 1);
  ValueId picked = n.Reshape(n.Emit(OpKind::kGatherElements, {logs, n.Reshape(target, with_class)},
                                    {{"axis", int64_t{1}}}),
                             shape);
  const bool weighted = n.Has(2) || n.HasAttr("ignore_index");
  ValueId weight = n.Has(2) ? n.Emit(OpKind::kGather, {n.In(2), target}, {{"axis", int64_t{0}}})
                            : n.Fill({n.Type(logs).dtype, shape}, 1);
  if (n.HasAttr("ignore_index")) {
    const ValueId ignored = n.Emit(
        OpKind::kEqual, {target, n.ScalarLike(static_cast<double>(n.Int("ignore_index")), target)});
    const ValueId zero = n.ScalarLike(0, weight);
    weight = n.Emit(OpKind::kWhere, {ignored, zero, weight});
    // What is ignored adds nothing, not even if it is infinite.
    picked = n.Emit(OpKind::kWhere, {ignored, zero, picked});
  }
  const ValueId loss = n.Emit(OpKind::kNeg, {n.Emit(OpKind::kMul, {picked, weight})});
  const std::string reduction = n.OneOf("reduction", {"mean", "sum", "none"});
  if (reduction == "none") return loss;
  Shape axes(shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  const Attrs over{{"axes", axes}, {"keepdims", int64_t{0}}};
  if (reduction == "mean" && !weighted) return n.Emit(OpKind::kReduceMean, {loss}, over);
  const ValueId sum = n.Emit(OpKind::kReduceSum, {loss}, over);
  return reduction == "sum"
             ? sum
             : n.Emit(OpKind::kDiv, {sum, n.Emit(OpKind::kReduceSum, {weight}, over)});
}

void NegativeLogLikelihoodLoss(NodeImport& n) { n.Set(0, NegativeLogLikelihood(n, n.In(0))); }

void SoftmaxCrossEntropyLoss(NodeImport& n) {
  const ValueId logs = n.Emit(OpKind::kLogSoftmax, {n.In(0)}, {{"axes", Shape{1}}});
  n.Set(0, NegativeLogLikelihood(n, logs));
  n.Set(1, logs);
}

}  // namespace

void AddLossTranslations(TranslationTable& table) {
  table["NegativeLogLikelihoodLoss"] = NegativeLogLikelihoodLoss;
  table["SoftmaxCrossEntropyLoss"] = SoftmaxCrossEntropyLoss;
}

}  // namespace heddle::graph
