#include "compiler/onnx/pipelines/row_counts.h"

#include <algorithm>
#include <string_view>

#include "compiler/onnx/model.h"
#include "compiler/onnx/standard/standard.h"

namespace heddle::graph {
namespace {

using onnx::NodeProto;

using OpNames = std::set<std::string_view>;

// Operators whose results tell, or may depend on, how many elements there are.
const OpNames& Counting() {
  static const auto* ops = new OpNames{"Shape", "Size", "If", "Loop", "Scan", "NonZero"};
  return *ops;
}

// Operators that give out elements of their first operand, of Concat: of all, each as it is.
bool MovesCounts(std::string_view op) {
  static const auto* ops = new OpNames{"Cast",    "Concat", "Gather",  "Identity",
                                       "Reshape", "Slice",  "Squeeze", "Unsqueeze"};
  return ops->contains(op);
}

// Operators that need no operand at import. What they make of rows that are alike shows in the graph (independent_rows.h).
bool ComputesRows(std::string_view op) {
  static const auto* ops = new OpNames{"Abs",
                                       "Add",
                                       "And",
                                       "Cast",
                                       "Concat",
                                       "Div",
                                       "Equal",
                                       "Exp",
                                       "Gemm",
                                       "Greater",
                                       "GreaterOrEqual",
                                       "Identity",
                                       "Less",
                                       "LessOrEqual",
                                       "Log",
                                       "MatMul",
                                       "Max",
                                       "Min",
                                       "Mul",
                                       "Neg",
                                       "Not",
                                       "Or",
                                       "Pow",
                                       "Reciprocal",
                                       "Sqrt",
                                       "Sub",
                                       "Sum",
                                       "Transpose",
                                       "Where",
                                       "Xor"};
  return ops->contains(op);
}

class Counter {
 public:
  RowCounts Run(const onnx::GraphProto& graph) {
    std::set<std::string> initialized;
    for (const auto& t : graph.initializer()) initialized.insert(t.name());
    for (const auto& input : graph.input()) {
      if (!initialized.contains(input.name())) depends_.insert(input.name());
    }
    for (const NodeProto& node : graph.node()) found_.are_shapes = found_.are_shapes && Visit(node);
    for (const auto& output : graph.output())
      found_.are_shapes = found_.are_shapes && !counts_.contains(output.name());
    if (!found_.are_shapes) found_.filled.clear();
    return std::move(found_);
  }

 private:
  static void AddOutputs(const NodeProto& node, std::set<std::string>* to) {
    for (const std::string& output : node.output()) {
      if (!output.empty()) to->insert(output);
    }
  }

  // Whether the node is one that RowCounts allows.
  bool Visit(const NodeProto& node) {
    const auto reads = [&](const std::set<std::string>& names) {
      return std::any_of(node.input().begin(), node.input().end(),
                         [&](const std::string& name) { return names.contains(name); });
    };
    const std::string_view op =
        onnx::IsStandard(node.domain()) ? std::string_view(node.op_type()) : std::string_view();
    if (op == "Shape" || op == "Size") {
      if (reads(counts_)) return false;  // a number that no number of rows changes, but of no use
      if (reads(depends_)) AddOutputs(node, &counts_);
      return true;
    }
    if (op == "Scan") {
      if (!GoesOverConstants(node)) return false;
    } else if (Counting().contains(op) || !CountsNothing(node)) {
      return false;
    }
    if (reads(alike_)) {
      // Along which axis, is known at import.
      const bool along = op == "CumSum" && !alike_.contains(node.input(node.input_size() - 1));
      if (!along && !ComputesRows(op)) return false;
      if (!ReadsRows(node)) AddOutputs(node, &alike_);
    }
    if (reads(depends_)) AddOutputs(node, &depends_);
    if (!reads(counts_)) return true;
    return TakesShape(node, op) || MovesShape(node, op);
  }

  // Whether an operand depends on the rows themselves.
  bool ReadsRows(const NodeProto& node) const {
    return std::any_of(node.input().begin(), node.input().end(), [&](const std::string& name) {
      return depends_.contains(name) && !alike_.contains(name);
    });
  }

  // Whether counts are the shape that the node reads, and nothing else of it.
  bool TakesShape(const NodeProto& node, std::string_view op) {
    const int place = op == "ConstantOfShape" ? 0 : op == "Reshape" || op == "Expand" ? 1 : -1;
    for (int i = 0; i < node.input_size(); ++i) {
      if (counts_.contains(node.input(i)) && i != place) return false;
    }
    // A constant of so many rows would be made once, for the rows of the import.
    if (op != "ConstantOfShape" && !depends_.contains(node.input(0))) return false;
    AddOutputs(node, &depends_);  // its shape does
    if (op == "ConstantOfShape") {
      AddOutputs(node, &alike_);
      AddOutputs(node, &found_.filled);
    }
    return true;
  }

  bool MovesShape(const NodeProto& node, std::string_view op) {
    if (!MovesCounts(op)) return false;
    for (int i = 1; i < node.input_size() && op != "Concat"; ++i) {
      if (counts_.contains(node.input(i))) return false;
    }
    AddOutputs(node, &counts_);
    return true;
  }

  // Whether the subgraphs of a node neither count nor read counts. What they read of rows is as good as an operand.
  bool CountsNothing(const NodeProto& node) {
    bool nothing = true, depend = false;
    ForEachSubgraph(node, [&](const onnx::GraphProto& body) {
      ForEachNode(body.node(), [&](const NodeProto& inner) {
        nothing &= !(onnx::IsStandard(inner.domain()) && Counting().contains(inner.op_type()));
      });
      for (const std::string& name : NamesRead(body)) {
        nothing &= !counts_.contains(name) && !alike_.contains(name);
        depend |= depends_.contains(name);
      }
    });
    if (depend) AddOutputs(node, &depends_);
    return nothing;
  }

  // Whether a Scan has as many iterations for any number of rows.
  bool GoesOverConstants(const NodeProto& node) {
    const onnx::AttributeProto* scanned = FindAttribute(node, "num_scan_inputs");
    if (scanned == nullptr || scanned->i() < 1 || scanned->i() > node.input_size()) return false;
    for (int i = node.input_size() - static_cast<int>(scanned->i()); i < node.input_size(); ++i) {
      if (depends_.contains(node.input(i)) || counts_.contains(node.input(i))) return false;
    }
    return CountsNothing(node);
  }

  RowCounts found_;
  std::set<std::string> depends_;  // values that depend on an input, if only in their shapes
  std::set<std::string> counts_;   // values made of the lengths of those
  std::set<std::string> alike_;    // values that depend on nothing but the number of rows
};

}  // namespace

RowCounts CountRows(const onnx::GraphProto& graph) { return Counter().Run(graph); }

}  // namespace heddle::graph
