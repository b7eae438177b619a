// A parsed ONNX file, as the importer works on it. Internal to the importer.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/onnx/format/onnx_format.pb.h"

namespace heddle::graph {

// Owns everything that was in the file. What rewrites a model before translation, such as inlining
// functions, works on its graph.
class Model {
 public:
  // InvalidArgument: the bytes are not an ONNX file, or a truncated one.
  static absl::StatusOr<Model> Parse(std::string_view bytes);

  const onnx::ModelProto& proto() const { return proto_; }
  const onnx::GraphProto& graph() const { return proto_.graph(); }
  onnx::GraphProto& mutable_graph() { return *proto_.mutable_graph(); }
  auto& mutable_functions() { return *proto_.mutable_functions(); }

  // The opset of a domain; 0 if the model does not say. "ai.onnx" and "" are the same domain.
  int Opset(std::string_view domain) const;

 private:
  onnx::ModelProto proto_;
};

}  // namespace heddle::graph
