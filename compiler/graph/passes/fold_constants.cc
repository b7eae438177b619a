#include "compiler/graph/passes/fold_constants.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/passes/constant_budget.h"
#include "compiler/graph/passes/evaluate.h"

namespace heddle::graph {
namespace {

constexpr double kMostFoldedSteps = 5e7;  // expression nodes of one result; about two seconds
constexpr double kMovesPerStep = 8;  // elements that are moved while one expression node is visited
constexpr int64_t kAlwaysSmall = int64_t{1}
                                 << 16;  // elements a result may have whatever its operands

std::string KeyOf(const Node& node, const std::vector<TensorData>& operands) {
  std::string key = absl::StrCat(NameOf(node.kind), ExactText(node.attrs));
  for (const TensorData& operand : operands) {
    const auto address = reinterpret_cast<uintptr_t>(operand.bytes->data());
    absl::StrAppend(&key, " ", ToText(operand.type), "@", address);
  }
  return key;
}

}  // namespace

std::optional<TensorData> FoldMemo::Find(const Node& node,
                                         const std::vector<TensorData>& operands) const {
  const std::string key = KeyOf(node, operands);
  absl::MutexLock lock(&mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  return found->second.result;
}

TensorData FoldMemo::Keep(const Node& node, const std::vector<TensorData>& operands,
                          TensorData result) {
  std::string key = KeyOf(node, operands);
  absl::MutexLock lock(&mutex_);
  return entries_.try_emplace(std::move(key), Entry{operands, std::move(result)})
      .first->second.result;
}

absl::StatusOr<Graph> FoldConstants(const Graph& graph, FoldMemo* memo) {
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
        return std::all_of(node.inputs.begin(), node.inputs.end(),
                           [&](ValueId v) { return graph.constants.contains(v); });
      }))
    return RemoveDead(graph);
  int64_t given_bytes = 0;
  for (const auto& [value, data] : graph.constants)
    given_bytes += static_cast<int64_t>(data.bytes->size());
  // A model of large constants may have them rearranged.
  ConstantBudget budget(std::max(ConstantBudget::kBytes, 2 * given_bytes));
  return RewriteGraph(graph, [&](GraphBuilder& out, const Node& node, const Node&) -> Replacement {
    std::vector<TensorData> operands;
    std::vector<TensorType> types;
    int64_t elements = 0;
    for (ValueId v : node.inputs) {
      const TensorData* data = out.ConstantData(v);
      if (data == nullptr) return std::nullopt;
      operands.push_back(*data);
      types.push_back(data->type);
      elements += NumElements(data->type);
    }
    HEDDLE_ASSIGN_OR_RETURN(const TensorType result, InferType(node.kind, types, node.attrs));
    if (NumElements(result) > std::max(2 * elements, kAlwaysSmall)) return std::nullopt;
    // What has an evaluation of its own moves elements, and is not interpreted.
    const bool moves = Def(node.kind).evaluate != nullptr;
    const double cost = EvaluationCost(node.kind, node.attrs, types) / (moves ? kMovesPerStep : 1);
    const int64_t bytes = NumElements(result) * ir::SizeOf(result.dtype);
    if (cost > kMostFoldedSteps || !budget.Take(bytes, cost)) return std::nullopt;
    if (memo != nullptr) {
      std::optional<TensorData> known = memo->Find(node, operands);
      if (known.has_value()) return out.Constant(node.name, *std::move(known));
    }
    auto data = EvaluateOp(node.kind, node.attrs, operands);
    if (!data.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(node.kind), " node '", node.name, "', whose operands are constants: ",
                       data.status().message(), " (--disable-pass fold-constants leaves it)"));
    }
    if (memo != nullptr) data = memo->Keep(node, operands, *std::move(data));
    return out.Constant(node.name, *std::move(data));
  });
}

}  // namespace heddle::graph
