// What a model is refused for, collected so that one message names all of it. Internal to the
// importer.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "compiler/onnx/format/onnx_format.pb.h"

namespace heddle::graph {

class Problems {
 public:
  // Invalid: the model breaks the rules of the standard. Unsupported: it keeps them, but means
  // something that Heddle cannot do. A node's problem may have no text: the operator itself is
  // the problem. Nodes with the same problem are named together.
  void Invalid(const std::string& what) { Add(true, {}, {}, what); }
  void Invalid(const onnx::NodeProto& node, int opset, const std::string& what);
  void Unsupported(const std::string& what) { Add(false, {}, {}, what); }
  void Unsupported(const onnx::NodeProto& node, int opset, const std::string& what = "");

  bool empty() const { return problems_.empty(); }
  bool HasInvalid() const;
  // One line, of some kilobytes at most. OK if there are no problems, InvalidArgument if one is of the kind Invalid, else
  // Unimplemented.
  absl::Status Status() const;

 private:
  struct Problem {
    bool invalid;
    std::string op;  // "Relu"; empty: not a node's
    std::string opset;
    std::string what;
    std::vector<std::string> nodes;
  };
  void Add(bool invalid, const std::string& op, const std::string& opset, const std::string& what,
           const std::string& node = "");
  void AddNode(bool invalid, const onnx::NodeProto& node, int opset, const std::string& what);
  static std::string Text(const Problem& p);
  std::string List(bool invalid) const;

  std::vector<Problem> problems_;
  // Where a problem stands, by all of it but the nodes: a model may have very many.
  std::map<std::tuple<bool, std::string, std::string, std::string>, size_t> places_;
};

// "'a', 'b', 'c' and 12 more"
std::string Quoted(const std::vector<std::string>& names);

// The name of a node, or of its first output if it has none.
std::string NodeName(const onnx::NodeProto& node);

}  // namespace heddle::graph
