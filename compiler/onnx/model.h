// A parsed ONNX file, as the importer works on it. Internal to the importer.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "compiler/onnx/format/onnx_format.pb.h"
#include "compiler/onnx/pipelines/maps.h"

namespace heddle::graph {

using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

// Calls `visit` for each node of the list, and of the subgraphs in it.
void ForEachNode(const Nodes& nodes, absl::FunctionRef<void(const onnx::NodeProto&)> visit);
// Calls `visit` for each subgraph among the attributes of a node.
void ForEachSubgraph(const onnx::NodeProto& node,
                     absl::FunctionRef<void(const onnx::GraphProto&)> visit);
void ForEachSubgraph(onnx::NodeProto& node, absl::FunctionRef<void(onnx::GraphProto&)> visit);

// The attribute of a node that has this name; null if it has none.
const onnx::AttributeProto* FindAttribute(const onnx::NodeProto& node, std::string_view name);
onnx::AttributeProto* FindAttribute(onnx::NodeProto& node, std::string_view name);
// Removes the node's attributes of this name.
void DropAttribute(onnx::NodeProto& node, std::string_view name);
// Makes the attribute a list of integers.
void MakeInts(onnx::AttributeProto& a, const std::string& name, const std::vector<int64_t>& values);

// Whether all results of a node consist of elements of its first operand (of Concat: of all operands), whatever these are. Operands
// behind it are shapes and indices.
bool MovesElements(const onnx::NodeProto& node);

// The names that the nodes of a graph and of its subgraphs read, and those of the outputs.
std::set<std::string> NamesRead(const onnx::GraphProto& graph);

// Owns everything that was in the file. A model that draws random numbers has one further input, their
// seed (random.h). What rewrites a model before translation, such as inlining
// functions, works on its graph. Dimension 0 of an input of a model of tables, if it has neither number nor name, is called
// "rows".
class Model {
 public:
  // InvalidArgument: the bytes are not an ONNX file, or a truncated one.
  static absl::StatusOr<Model> Parse(std::string_view bytes);

  const onnx::ModelProto& proto() const { return proto_; }
  const onnx::GraphProto& graph() const { return proto_.graph(); }
  onnx::GraphProto& mutable_graph() { return *proto_.mutable_graph(); }
  auto& mutable_functions() { return *proto_.mutable_functions(); }
  // The name of the input that is the seed of random numbers; empty if there is none.
  const std::string& seed_input() const { return seed_input_; }
  void DropFunctions() { proto_.clear_functions(); }
  // Whether the model computes on tables of rows, as pipelines of scikit-learn do, and is no neural network: it has operators
  // of ai.onnx.ml, or the converter of scikit-learn wrote it.
  bool of_tables() const { return of_tables_; }
  // The inputs that are maps in the file.
  const MapColumns& map_columns() const { return map_columns_; }

  // The opset of a domain; 0 if the model does not say. "ai.onnx" and "" are the same domain.
  int Opset(std::string_view domain) const;
  // The opset whose rules a node keeps: that of the function it came from, or the model's.
  int Opset(const onnx::NodeProto& node) const;

 private:
  onnx::ModelProto proto_;
  std::string seed_input_;
  bool of_tables_ = false;
  MapColumns map_columns_;
};

}  // namespace heddle::graph
