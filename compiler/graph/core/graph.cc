#include "compiler/graph/core/graph.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/vocabulary/row_blocks.h"
#include "compiler/graph/core/operator.h"

namespace heddle::graph {
namespace {

std::string TypeName(ir::DType dtype) { return std::string(ir::Name(dtype)); }

absl::Status Broken(const std::string& what) { return absl::InternalError("graph: " + what); }

// Checks the invariants of a graph. It walks the nodes in order and tracks which values are
// defined.
class Checker {
 public:
  explicit Checker(const Graph& graph) : graph_(graph), defined_(graph.values.size(), false) {}

  absl::Status Run() {
    std::set<std::string> names, input_names;
    for (ValueId v : graph_.inputs) {
      if (!input_names.insert(graph_.values[v].name).second)
        return Broken(absl::StrCat("two inputs are named '", graph_.values[v].name, "'"));
    }
    const std::set<ValueId> interface(graph_.outputs.begin(), graph_.outputs.end());
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const Value& v = graph_.values[i];
      const bool shared = interface.count(static_cast<ValueId>(i)) && input_names.count(v.name);
      if (!shared && !names.insert(v.name).second)
        return Broken(absl::StrCat("two values are named '", v.name, "'"));
      if (auto s = CheckSize(v.type); !s.ok()) return Broken(std::string(s.message()));
    }
    for (ValueId v : graph_.inputs) {
      if (auto s = Define(v, "an input"); !s.ok()) return s;
    }
    for (const auto& [v, data] : graph_.constants) {
      if (auto s = Define(v, "a constant"); !s.ok()) return s;
      if (data.type != graph_.values[v].type || data.bytes == nullptr ||
          static_cast<int64_t>(data.bytes->size()) !=
              NumElements(data.type) * ir::SizeOf(data.type.dtype)) {
        return Broken(absl::StrCat("constant '", graph_.values[v].name,
                                   "' does not have the bytes of its type"));
      }
    }
    names.clear();
    for (const Node& node : graph_.nodes) {
      if (!names.insert(node.name).second)
        return Broken(absl::StrCat("two nodes are named '", node.name, "'"));
      if (auto s = CheckNode(node); !s.ok()) return s;
    }
    const int results = graph_.NumResults();
    for (const OutputLength& l : graph_.lengths) {
      const auto outputs = static_cast<int>(graph_.outputs.size());
      const bool exists = l.output >= 0 && l.output < results && l.length >= results &&
                          l.length < outputs && l.axis >= 0;
      if (!exists || !Known(graph_.outputs[l.output]) || !Known(graph_.outputs[l.length]))
        return Broken("a length belongs to no output");
      const Value& value = graph_.values[graph_.outputs[l.output]];
      if (l.axis >= static_cast<int>(value.type.shape.size()) ||
          graph_.values[graph_.outputs[l.length]].type != TensorType{ir::DType::kI64, {}})
        return Broken(absl::StrCat("'", value.name, "' has an impossible length"));
    }
    std::set<ValueId> seen;
    for (ValueId v : graph_.outputs) {
      if (!Known(v) || !defined_[v]) return Broken("an output is not defined");
      if (!seen.insert(v).second)
        return Broken(absl::StrCat("'", graph_.values[v].name, "' is an output twice"));
    }
    if (auto s = CheckTables(graph_); !s.ok()) return Broken(std::string(s.message()));
    return absl::OkStatus();
  }

 private:
  bool Known(ValueId v) const { return v >= 0 && v < static_cast<ValueId>(graph_.values.size()); }

  absl::Status Define(ValueId v, const std::string& as) {
    if (!Known(v)) return Broken(absl::StrCat("value ", v, ", ", as, ", does not exist"));
    if (defined_[v])
      return Broken(absl::StrCat("'", graph_.values[v].name, "' is defined twice, again as ", as));
    defined_[v] = true;
    return absl::OkStatus();
  }

  absl::Status CheckNode(const Node& node) {
    std::vector<TensorType> inputs;
    for (ValueId v : node.inputs) {
      if (!Known(v) || !defined_[v])
        return Broken(absl::StrCat("node '", node.name, "' reads an undefined value"));
      inputs.push_back(graph_.values[v].type);
    }
    for (const TensorType& type : inputs) {
      if (NumElements(type) == 0)
        return Broken(absl::StrCat("node '", node.name, "' reads a tensor without elements"));
    }
    const std::string& name = NameOf(node.kind);
    const absl::StatusOr<TensorType> type = InferType(node.kind, inputs, node.attrs);
    if (!type.ok())
      return Broken(absl::StrCat(name, " node '", node.name, "': ", type.status().message()));
    if (node.outputs.size() != 1)
      return Broken(absl::StrCat("node '", node.name, "' has ", node.outputs.size(), " outputs"));
    if (auto s = Define(node.outputs[0], "an output of " + node.name); !s.ok()) return s;
    const Value& v = graph_.values[node.outputs[0]];
    if (NumElements(v.type) == 0)
      return Broken(absl::StrCat("value '", v.name, "' has shape ", ToText(v.type)));
    if (v.type != *type) {
      return Broken(absl::StrCat("'", v.name, "' is ", ToText(v.type), " but ", name, " gives ",
                                 ToText(*type)));
    }
    return absl::OkStatus();
  }

  const Graph& graph_;
  std::vector<bool> defined_;
};

template <typename... What>
absl::Status NoTable(const Value& value, const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat("'", value.name, "' ", what...));
}

absl::Status CheckNames(const Value& value, const TensorNames& names) {
  const Shape& shape = value.type.shape;
  if (names.text && (value.type.dtype != ir::DType::kU8 || shape.empty()))
    return NoTable(value, "has texts and is ", ToText(value.type), ", not u8[.., bytes]");
  const size_t rank = shape.size() - (names.text ? 1 : 0);
  if (!names.columns.empty()) {
    if (rank == 0) return NoTable(value, "has names for columns and no dimension");
    const int64_t columns =
        NumElements({value.type.dtype,
                     Shape(shape.begin() + 1, shape.begin() + static_cast<std::ptrdiff_t>(rank))});
    if (static_cast<int64_t>(names.columns.size()) != columns)
      return NoTable(value, "has ", names.columns.size(), " names for ", columns, " columns");
  }
  if (!names.labels.empty() && !ir::IsInteger(value.type.dtype))
    return NoTable(value, "has labels and is ", ToText(value.type), ", not of integers");
  for (const auto* list : {&names.columns, &names.labels}) {
    if (list->size() > kMostNames)
      return NoTable(value, "has ", list->size(), " names; ", kMostNames, " is the most");
    for (const std::string& name : *list) {
      if (name.size() > kMostNameBytes) {
        return NoTable(value, "has a name of ", name.size(), " bytes, '", name.substr(0, 40),
                       "..'; ", kMostNameBytes, " is the most: shorten it");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBlocks(const std::vector<int64_t>& blocks) {
  if (blocks.size() > kMostRowBlocks) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", blocks.size(), " blocks of rows; ",
                                                   kMostRowBlocks, " is the most"));
  }
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (blocks[b] >= 1 && (b == 0 || blocks[b] < blocks[b - 1])) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a block of ", blocks[b], " rows is not the next smaller one"));
  }
  return absl::OkStatus();
}

// Checks that dimension 0 of `values`, all inputs or all outputs, counts the rows. The first input says how many there are, so the
// inputs are to be checked before the outputs.
absl::Status CheckRows(const Graph& graph, const std::vector<ValueId>& values) {
  const std::vector<int64_t>& blocks = graph.tables.blocks;
  const size_t count = values.size() / std::max<size_t>(blocks.size(), 1);  // in a block
  if (!blocks.empty() && values.size() != count * blocks.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(blocks.size(), " blocks of rows cannot have ", values.size(), " tensors"));
  }
  const ValueId first = !graph.inputs.empty() ? graph.inputs[0] : values.empty() ? 0 : values[0];
  for (size_t i = 0; i < values.size(); ++i) {
    const Value& value = graph.values[values[i]];
    const Shape& shape = value.type.shape;
    if (shape.empty()) return NoTable(value, "has no dimension for rows");
    const int64_t rows = blocks.empty() ? graph.values[first].type.shape[0] : blocks[i / count];
    if (shape[0] != rows)
      return NoTable(value, "has ", shape[0], " rows where another tensor has ", rows);
    TensorType same = graph.values[values[i % count]].type;
    same.shape[0] = rows;
    if (value.type != same)
      return NoTable(value, "is ", ToText(value.type), " and not ", ToText(same));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t NumElements(const TensorType& type) {
  int64_t n = 1;
  for (int64_t d : type.shape) {
    if (d == 0) return 0;
    if (__builtin_mul_overflow(n, d, &n)) n = INT64_MAX;
  }
  return n;
}

absl::Status CheckSize(const TensorType& type) {
  for (int64_t d : type.shape) {
    if (d < 0)
      return absl::InvalidArgumentError(absl::StrCat("a tensor ", ToText(type), " cannot be"));
  }
  if (NumElements(type) <= int64_t{1} << 40) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a tensor ", ToText(type), " is too large"));
}

std::string ToText(const TensorType& type) {
  return absl::StrCat(TypeName(type.dtype), "[", absl::StrJoin(type.shape, ","), "]");
}

int Graph::NumResults() const {
  auto first = static_cast<int>(outputs.size());
  for (const OutputLength& l : lengths) first = std::min(first, l.length);
  return first;
}

absl::Status CheckGraph(const Graph& graph) { return Checker(graph).Run(); }

absl::Status CheckTables(const Graph& graph) {
  const struct {
    const std::vector<ValueId>& values;
    const std::vector<TensorNames>& names;
  } sides[] = {{graph.inputs, graph.tables.inputs}, {graph.outputs, graph.tables.outputs}};
  for (const auto& [values, names] : sides) {
    if (!names.empty() && names.size() != values.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there are names for ", names.size(), " tensors of ", values.size()));
    }
    for (size_t i = 0; i < names.size(); ++i) {
      if (auto s = CheckNames(graph.values[values[i]], names[i]); !s.ok()) return s;
    }
  }
  if (!graph.tables.independent_rows) {
    if (graph.tables.blocks.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("there are blocks of rows, but rows are not independent");
  }
  if (!graph.lengths.empty())
    return absl::InvalidArgumentError(
        "rows are independent, but an output's length depends on data");
  HEDDLE_RETURN_IF_ERROR(CheckBlocks(graph.tables.blocks));
  for (const auto& [values, names] : sides) {
    HEDDLE_RETURN_IF_ERROR(CheckRows(graph, values));
  }
  return absl::OkStatus();
}

std::string Print(const Graph& graph) {
  std::string out;
  const auto value = [&](ValueId v) {
    return absl::StrCat("%", v, ":", ToText(graph.values[v].type));
  };
  for (ValueId v : graph.inputs)
    absl::StrAppend(&out, value(v), " = input '", graph.values[v].name, "'\n");
  for (const auto& [v, data] : graph.constants) {
    absl::StrAppend(&out, value(v), " = constant '", graph.values[v].name, "'\n");
  }
  for (const Node& node : graph.nodes) {
    absl::StrAppend(
        &out,
        absl::StrJoin(node.outputs, ", ", [&](std::string* s, ValueId v) { s->append(value(v)); }),
        " = ", NameOf(node.kind), "(",
        absl::StrJoin(node.inputs, ", ",
                      [](std::string* s, ValueId v) { absl::StrAppend(s, "%", v); }),
        ")");
    if (!node.attrs.empty()) {
      absl::StrAppend(&out, " {",
                      absl::StrJoin(node.attrs, ", ",
                                    [](std::string* s, const auto& a) {
                                      absl::StrAppend(s, a.first, "=", ToText(a.second));
                                    }),
                      "}");
    }
    absl::StrAppend(&out, "  # ", node.name, "\n");
  }
  for (ValueId v : graph.outputs)
    absl::StrAppend(&out, "output %", v, " '", graph.values[v].name, "'\n");
  for (const OutputLength& l : graph.lengths)
    absl::StrAppend(&out, "length of output ", l.output, " in dimension ", l.axis, ": output ",
                    l.length, "\n");
  return out;
}

}  // namespace heddle::graph
