// The table of operators.
#include <array>

#include "absl/strings/str_cat.h"
#include "base/fatal.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

using Registry = std::array<OpDef, kNumOpKinds>;

Registry MakeRegistry() {
  std::vector<OpDef> ops;
  AppendElementwiseOps(ops);
  AppendReductionOps(ops);
  AppendConvolutionOps(ops);
  AppendBlockedConvolutionOps(ops);
  AppendTransposedConvolutionOps(ops);
  AppendPoolingOps(ops);
  AppendMatmulOps(ops);
  AppendNormalizationOps(ops);
  AppendMovementOps(ops);
  AppendIndexingOps(ops);
  AppendScatterOps(ops);
  AppendSuppressionOps(ops);
  AppendSamplingOps(ops);
  AppendForestOps(ops);
  AppendRandomOps(ops);
  Registry registry;
  for (OpDef& op : ops) registry[static_cast<size_t>(op.kind)] = std::move(op);
  for (const OpDef& op : registry) {
    const auto kind = static_cast<OpKind>(&op - registry.data());
    if (!op.infer || !op.express)
      Fatal(absl::StrCat("operator '", NameOf(kind), "' has no definition in compiler/graph/ops"));
  }
  return registry;
}

}  // namespace

const OpDef& Def(OpKind kind) {
  static const auto* registry = new Registry(MakeRegistry());
  return (*registry)[static_cast<size_t>(kind)];
}

}  // namespace heddle::graph
