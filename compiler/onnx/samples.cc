#include "compiler/onnx/samples.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "compiler/graph/core/operator.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/onnx/node.h"

namespace heddle::graph {
namespace {

using Lists = std::vector<std::vector<double>>;

constexpr size_t kMostOfElement = 32;  // as many as SampleValues has of a feature
constexpr int kMostSteps = 100;        // back through the graph

// A constant as one number for each column; nothing if it is none, or does not broadcast along the rows.
std::optional<std::vector<double>> PerColumn(const NodeImport& n, ValueId v, size_t columns) {
  const TensorData* data = n.ConstantData(v);
  if (data == nullptr) return std::nullopt;
  const int64_t count = NumElements(data->type);
  if (count == 1) return std::vector<double>(columns, ToDoubles(*data)[0]);
  const Shape& shape = data->type.shape;
  if (count != static_cast<int64_t>(columns) || shape.back() != count) return std::nullopt;
  return ToDoubles(*data);
}

// The operand of a sum, difference, product or quotient with a constant, and in `values` what it has to be for the result to be what they
// were. -1: it is otherwise.
ValueId Operand(const NodeImport& n, const Node& node, Lists* values) {
  const bool commutes = node.kind == OpKind::kAdd || node.kind == OpKind::kMul;
  size_t at = 0;
  std::optional<std::vector<double>> constant = PerColumn(n, node.inputs[1], values->size());
  if (!constant && commutes) {
    at = 1;
    constant = PerColumn(n, node.inputs[0], values->size());
  }
  if (!constant) return -1;
  for (size_t k = 0; k < values->size(); ++k) {
    const double c = (*constant)[k];
    for (double& v : (*values)[k]) {
      switch (node.kind) {
        case OpKind::kAdd:
          v -= c;
          break;
        case OpKind::kSub:
          v += c;
          break;
        case OpKind::kMul:
          v /= c;  // not finite if c is 0: then it is left out in the end
          break;
        default:
          v *= c;
      }
    }
  }
  return node.inputs[at];
}

bool IsAlongColumns(const NodeImport& n, const Node& node) {
  const auto rank = static_cast<int64_t>(n.Rank(node.inputs[0]));
  const int64_t axis = AttrsOf(node).Int("axis");
  return rank == 2 && (axis == 1 || axis == -1);
}

void Follow(const NodeImport& n, ValueId v, Lists values, int steps, SampleTable* table);

void FollowGather(const NodeImport& n, const Node& node, const Lists& values, int steps,
                  SampleTable* table) {
  const TensorData* places = n.ConstantData(node.inputs[1]);
  if (places == nullptr || places->type.shape.size() != 1 || !IsAlongColumns(n, node)) return;
  Lists of_operand(static_cast<size_t>(n.ShapeOf(node.inputs[0])[1]));
  const std::vector<int64_t> numbers = ToInts(*places);
  for (size_t k = 0; k < numbers.size() && k < values.size(); ++k) {
    if (numbers[k] < 0 || numbers[k] >= std::ssize(of_operand)) continue;
    std::vector<double>& to = of_operand[static_cast<size_t>(numbers[k])];
    to.insert(to.end(), values[k].begin(), values[k].end());
  }
  Follow(n, node.inputs[0], std::move(of_operand), steps, table);
}

void FollowConcat(const NodeImport& n, const Node& node, const Lists& values, int steps,
                  SampleTable* table) {
  if (!IsAlongColumns(n, node)) return;
  auto begin = values.begin();
  for (const ValueId part : node.inputs) {
    const auto end = begin + n.ShapeOf(part)[1];
    Follow(n, part, Lists(begin, end), steps, table);
    begin = end;
  }
}

void Follow(const NodeImport& n, ValueId v, Lists values, int steps, SampleTable* table) {
  // Without values there is nothing to add. This bounds the work, too: each value goes one way.
  if (std::all_of(values.begin(), values.end(), [](const auto& list) { return list.empty(); }))
    return;
  if (steps == 0 || !ir::IsFloat(n.Type(v).dtype) || n.ConstantData(v) != nullptr) return;
  const Node* node = n.ProducerOf(v);
  if (node == nullptr) return table->Add(n.ValueName(v), values);
  ValueId operand = -1;
  switch (node->kind) {
    case OpKind::kCast:
      operand = node->inputs[0];
      break;
    case OpKind::kReshape: {  // a vector becomes one row, or one column
      const Shape& from = n.ShapeOf(node->inputs[0]);
      const bool same = from == n.ShapeOf(v);
      const bool vector = from.size() == 1 && (n.ShapeOf(v)[0] == 1 || values.size() == 1);
      if (same || vector) return Follow(n, node->inputs[0], std::move(values), steps - 1, table);
      return;
    }
    case OpKind::kGather:
      return FollowGather(n, *node, values, steps - 1, table);
    case OpKind::kConcat:
      return FollowConcat(n, *node, values, steps - 1, table);
    case OpKind::kAdd:
    case OpKind::kSub:
    case OpKind::kMul:
    case OpKind::kDiv:
      operand = Operand(n, *node, &values);
      break;
    case OpKind::kWhere:  // an imputer
      if (PerColumn(n, node->inputs[1], values.size())) operand = node->inputs[2];
      break;
    default:
      return;
  }
  if (operand < 0 || n.ShapeOf(operand) != n.ShapeOf(v)) return;
  Follow(n, operand, std::move(values), steps - 1, table);
}

}  // namespace

void SampleTable::Add(const std::string& input, const Lists& values) {
  const auto [found, is_new] = values_.try_emplace(input, values);
  if (is_new || found->second.size() != values.size()) return;
  for (size_t k = 0; k < values.size(); ++k)
    found->second[k].insert(found->second[k].end(), values[k].begin(), values[k].end());
}

std::vector<std::vector<float>> SampleTable::Of(const std::string& input,
                                                const TensorType& type) const {
  const auto found = values_.find(input);
  if (found == values_.end() || type.dtype != ir::DType::kF32 || type.shape.empty() ||
      NumElements(type) == 0)
    return {};
  const Lists& lists = found->second;
  const auto columns = static_cast<size_t>(NumElements(type) / type.shape[0]);
  const size_t most = std::min(kMostOfElement, kMostSamples / columns);
  if (lists.size() != columns || most < 2) return {};
  std::vector<std::vector<float>> samples(columns);
  bool any = false;
  for (size_t k = 0; k < columns; ++k) {
    std::vector<float> values;
    for (const double value : lists[k]) {
      if (std::abs(value) <= std::numeric_limits<float>::max())
        values.push_back(static_cast<float>(value));
    }
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    const size_t count = std::min(values.size(), most);
    for (size_t i = 0; i < count; ++i)
      samples[k].push_back(values[count < 2 ? 0 : i * (values.size() - 1) / (count - 1)]);
    any |= count > 0;
  }
  return any ? samples : std::vector<std::vector<float>>();
}

void AddSamples(const NodeImport& n, ValueId x, Lists values, SampleTable* table) {
  if (n.ok()) Follow(n, x, std::move(values), kMostSteps, table);
}

}  // namespace heddle::graph
