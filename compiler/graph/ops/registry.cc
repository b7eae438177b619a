#include "compiler/graph/core/operator.h"

#include <map>

#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

const std::map<std::string_view, OpDef>& Registry() {
  static const auto* registry = [] {
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
    AppendSamplingOps(ops);
    auto* map = new std::map<std::string_view, OpDef>;
    for (OpDef& op : ops) map->emplace(op.name, std::move(op));
    return map;
  }();
  return *registry;
}

}  // namespace

const OpDef* FindOp(std::string_view name) {
  auto it = Registry().find(name);
  return it == Registry().end() ? nullptr : &it->second;
}

std::vector<std::string_view> AllOps() {
  std::vector<std::string_view> names;
  for (const auto& [name, op] : Registry()) names.push_back(name);
  return names;
}

}  // namespace heddle::graph
