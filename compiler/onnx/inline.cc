#include "compiler/onnx/inline.h"

#include <algorithm>
#include <climits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/standard/standard.h"

namespace heddle::graph {
namespace {

using onnx::AttributeProto;
using onnx::FunctionProto;
using onnx::GraphProto;
using onnx::NodeProto;

// Functions that call functions can double the size at each level, so a small file could ask for
// any number of nodes. The largest exported models have some ten thousand.
constexpr int64_t kMostInlinedNodes = int64_t{1} << 18;
constexpr int64_t kMostInlinedBytes = int64_t{1} << 29;
constexpr size_t kDeepest = 100;

std::string Key(const std::string& domain, const std::string& name, const std::string& overload) {
  return absl::StrCat(onnx::IsStandard(domain) ? "" : domain, "\n", name, "\n", overload);
}

// Calls `visit` with every name that a graph defines, including those of its subgraphs.
void ForEachDefinition(const GraphProto& graph, absl::FunctionRef<void(const std::string&)> visit) {
  for (const auto& input : graph.input()) visit(input.name());
  for (const auto& t : graph.initializer()) visit(t.name());
  for (const auto& s : graph.sparse_initializer()) visit(s.values().name());
}
void ForEachDefinition(const Nodes& nodes, absl::FunctionRef<void(const std::string&)> visit) {
  ForEachNode(nodes, [&](const NodeProto& node) {
    for (const std::string& output : node.output()) visit(output);
    ForEachSubgraph(node, [&](const GraphProto& g) { ForEachDefinition(g, visit); });
  });
}

// The names in the nodes, each of which gets the name of the call before it.
int64_t NamesIn(const Nodes& nodes) {
  int64_t names = 0;
  ForEachNode(nodes,
              [&](const NodeProto& node) { names += 1 + node.input_size() + node.output_size(); });
  return names;
}

class Inliner {
 public:
  Inliner(Model& model, Problems& problems) : model_(model), problems_(problems) {}

  void Run() {
    for (const FunctionProto& f : model_.proto().functions()) {
      if (!functions_.emplace(Key(f.domain(), f.name(), f.overload()), &f).second)
        Refuse(absl::StrCat("the function '", f.name(), "' is defined twice"));
      if (!f.unknown_fields().empty()) {
        problems_.Unsupported(absl::StrCat("function '", f.name(),
                                           "' has fields of a newer version of the ONNX format; "
                                           "export it with an older one"));
        failed_ = true;
      }
    }
    if (functions_.empty() || failed_) return;
    const auto use = [&](const std::string& name) { names_.emplace(name, 0); };
    ForEachDefinition(model_.graph(), use);
    ForEachDefinition(model_.graph().node(), use);
    Expand(*model_.mutable_graph().mutable_node());
    if (!failed_) model_.DropFunctions();
  }

 private:
  using Names = std::map<std::string, std::string>;

  void Refuse(const std::string& what) {
    problems_.Invalid(what);
    failed_ = true;
  }

  void Expand(Nodes& nodes) {
    Nodes result;
    for (NodeProto& node : nodes) {
      const auto found = functions_.find(Key(node.domain(), node.op_type(), node.overload()));
      if (found != functions_.end() && Inline(node, *found->second, result)) continue;
      ForEachSubgraph(node, [&](GraphProto& g) { Expand(*g.mutable_node()); });
      *result.Add() = std::move(node);
    }
    nodes.Swap(&result);
  }

  // Appends the nodes of the function to `result`. False: there is a problem, which is reported.
  bool Inline(const NodeProto& call, const FunctionProto& f, Nodes& result) {
    if (failed_) return false;
    const std::string what =
        absl::StrCat("the call of function '", f.name(), "' (node '", NodeName(call), "')");
    if (std::find(calls_.begin(), calls_.end(), &f) != calls_.end()) {
      Refuse(absl::StrCat("the function '", f.name(), "' calls itself"));
      return false;
    }
    if (call.input_size() > f.input_size() || call.output_size() > f.output_size()) {
      Refuse(absl::StrCat(what, " has ", call.input_size(), " inputs and ", call.output_size(),
                          " outputs, but the function has ", f.input_size(), " and ",
                          f.output_size()));
      return false;
    }
    std::map<std::string, const AttributeProto*> attributes;
    std::set<std::string> known(f.attribute().begin(), f.attribute().end());
    for (const AttributeProto& a : f.attribute_proto()) attributes[a.name()] = &a;
    for (const AttributeProto& a : call.attribute()) {
      if (!known.count(a.name()) && !attributes.count(a.name())) {
        Refuse(absl::StrCat(what, " has an attribute '", a.name(),
                            "', which the function does not have"));
        return false;
      }
      attributes[a.name()] = &a;
    }
    const std::string prefix = NodeName(call);
    nodes_ += f.node_size();
    bytes_ += static_cast<int64_t>(f.ByteSizeLong()) +
              NamesIn(f.node()) * static_cast<int64_t>(prefix.size());
    if (nodes_ > kMostInlinedNodes || bytes_ > kMostInlinedBytes || calls_.size() >= kDeepest) {
      problems_.Unsupported(absl::StrCat("functions that become more than ", kMostInlinedNodes,
                                         " nodes or ", kMostInlinedBytes >> 20,
                                         " MiB, or call each other ", kDeepest, " deep"));
      failed_ = true;
      return false;
    }
    Nodes body = f.node();
    Names names = NamesOf(call, f, prefix);
    for (NodeProto& node : body) {
      if (!node.name().empty()) node.set_name(absl::StrCat(prefix, "/", node.name()));
      Adopt(node, f, names, attributes);
    }
    for (int i = 0; i < call.output_size(); ++i) {
      const std::string& from = names[f.output(i)];
      if (call.output(i).empty() || from == call.output(i)) continue;
      // The function gives out an operand, or the same result twice.
      NodeProto* copy = body.Add();
      copy->set_op_type("Identity");
      copy->add_input(from);
      copy->add_output(call.output(i));
      copy->set_opset(NewestImportedOpset());
    }
    calls_.push_back(&f);
    Expand(body);
    calls_.pop_back();
    for (NodeProto& node : body) *result.Add() = std::move(node);
    return true;
  }

  // The new name of every name in the function.
  Names NamesOf(const NodeProto& call, const FunctionProto& f, const std::string& prefix) {
    Names names;
    for (int i = 0; i < f.input_size(); ++i)
      names.emplace(f.input(i), i < call.input_size() ? call.input(i) : "");
    std::set<std::string> made;
    for (const NodeProto& node : f.node()) made.insert(node.output().begin(), node.output().end());
    for (int i = 0; i < call.output_size(); ++i) {
      if (!call.output(i).empty() && made.count(f.output(i)))
        names.emplace(f.output(i), call.output(i));
    }
    ForEachDefinition(f.node(), [&](const std::string& name) {
      if (!name.empty() && !names.count(name))
        names.emplace(name, Fresh(absl::StrCat(prefix, "/", name)));
    });
    names[""] = "";
    return names;
  }

  std::string Fresh(const std::string& name) {
    std::string fresh = name;
    while (!names_.emplace(fresh, 0).second) fresh = absl::StrCat(name, "_", ++names_[name]);
    return fresh;
  }

  // Makes a node of the function one of the caller.
  void Adopt(NodeProto& node, const FunctionProto& f, const Names& names,
             const std::map<std::string, const AttributeProto*>& attributes) {
    node.set_opset(OpsetOf(f, node.domain()));
    const auto rename = [&](std::string* name) {
      const auto found = names.find(*name);
      if (found != names.end()) {
        *name = found->second;
      } else {
        Refuse(absl::StrCat("the function '", f.name(), "' uses '", *name,
                            "', which it does not define"));
      }
    };
    for (std::string& name : *node.mutable_input()) rename(&name);
    for (std::string& name : *node.mutable_output()) rename(&name);
    google::protobuf::RepeatedPtrField<AttributeProto> kept;
    for (AttributeProto& a : *node.mutable_attribute()) {
      if (a.ref_attr_name().empty()) {
        *kept.Add() = std::move(a);
        continue;
      }
      const auto given = attributes.find(a.ref_attr_name());
      if (given == attributes.end()) continue;
      AttributeProto* copy = kept.Add();
      *copy = *given->second;
      copy->set_name(a.name());
    }
    node.mutable_attribute()->Swap(&kept);
    ForEachSubgraph(node, [&](GraphProto& g) {
      for (auto& input : *g.mutable_input()) rename(input.mutable_name());
      for (auto& t : *g.mutable_initializer()) rename(t.mutable_name());
      for (auto& s : *g.mutable_sparse_initializer()) rename(s.mutable_values()->mutable_name());
      for (NodeProto& inner : *g.mutable_node()) Adopt(inner, f, names, attributes);
      for (auto& output : *g.mutable_output()) rename(output.mutable_name());
      // Declarations of inner values may be wrong after the renaming, and are only hints.
      g.clear_value_info();
    });
  }

  static int64_t OpsetOf(const FunctionProto& f, const std::string& domain) {
    for (const auto& opset : f.opset_import()) {
      if (opset.domain() == domain ||
          (onnx::IsStandard(opset.domain()) && onnx::IsStandard(domain)))
        return std::clamp<int64_t>(opset.version(), 0, INT_MAX);
    }
    return 0;  // the check refuses the node
  }

  Model& model_;
  Problems& problems_;
  std::map<std::string, const FunctionProto*> functions_;
  std::map<std::string, int> names_;         // in use, each with the last number that was appended
  std::vector<const FunctionProto*> calls_;  // under way, from the outermost one on
  int64_t nodes_ = 0, bytes_ = 0;
  bool failed_ = false;
};

}  // namespace

void InlineFunctions(Model& model, Problems& problems) { Inliner(model, problems).Run(); }

}  // namespace heddle::graph
