#include "compiler/onnx/check.h"

#include <algorithm>
#include <climits>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/onnx/external.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/standard/standard.h"

namespace heddle::graph {
namespace {

using onnx::AttributeProto;
using onnx::GraphProto;
using onnx::NodeProto;
using onnx::TensorProto;

// "an int", as messages name the type of an attribute.
std::string Described(AttributeProto::AttributeType type) {
  std::string name(AttributeProto::AttributeType_Name(type));
  for (char& c : name) c = c == '_' ? ' ' : static_cast<char>(std::tolower(c));
  const bool several = name.back() == 's';
  return several ? "a list of " + name : (name == "int" ? "an " : "a ") + name;
}

// The type of an attribute. The first version of the format had no field for it.
AttributeProto::AttributeType TypeOf(const AttributeProto& a) {
  if (a.type() != AttributeProto::UNDEFINED) return a.type();
  if (a.has_i()) return AttributeProto::INT;
  if (a.has_f()) return AttributeProto::FLOAT;
  if (a.has_s()) return AttributeProto::STRING;
  if (a.has_t()) return AttributeProto::TENSOR;
  if (a.has_g()) return AttributeProto::GRAPH;
  if (a.ints_size() > 0) return AttributeProto::INTS;
  if (a.floats_size() > 0) return AttributeProto::FLOATS;
  if (a.strings_size() > 0) return AttributeProto::STRINGS;
  return AttributeProto::UNDEFINED;
}

// Whether the field that belongs to the type holds a value, and no other one does.
bool HoldsItsType(const AttributeProto& a, AttributeProto::AttributeType type) {
  const std::pair<AttributeProto::AttributeType, bool> fields[] = {
      {AttributeProto::FLOAT, a.has_f()},
      {AttributeProto::INT, a.has_i()},
      {AttributeProto::STRING, a.has_s()},
      {AttributeProto::TENSOR, a.has_t()},
      {AttributeProto::GRAPH, a.has_g()},
      {AttributeProto::SPARSE_TENSOR, a.has_sparse_tensor()},
      {AttributeProto::TYPE_PROTO, a.has_tp()},
      {AttributeProto::FLOATS, a.floats_size() > 0},
      {AttributeProto::INTS, a.ints_size() > 0},
      {AttributeProto::STRINGS, a.strings_size() > 0},
      {AttributeProto::TENSORS, a.tensors_size() > 0},
      {AttributeProto::GRAPHS, a.graphs_size() > 0},
      {AttributeProto::SPARSE_TENSORS, a.sparse_tensors_size() > 0},
      {AttributeProto::TYPE_PROTOS, a.type_protos_size() > 0},
  };
  for (const auto& [of, used] : fields) {
    const bool list = Described(of).rfind("a list", 0) == 0;  // may be empty
    if (of == type ? !used && !list : used) return false;
  }
  return true;
}

int DeclaredType(const onnx::ValueInfoProto& info) {
  return info.type().has_tensor_type() ? info.type().tensor_type().elem_type() : 0;
}

// The names of a graph, with those of the graphs around it. Each name has the element type of its
// value, 0 if that is unknown.
struct Scope {
  const Scope* outer = nullptr;
  ElementTypesByName types;

  const int* Find(const std::string& name) const {
    const auto found = types.find(name);
    if (found != types.end()) return &found->second;
    return outer == nullptr ? nullptr : outer->Find(name);
  }
};

class Checker {
 public:
  Checker(const Model& model, Problems& problems) : model_(model), problems_(problems) {}

  ElementTypesByGraph Run() {
    CheckOpsets();
    const onnx::ModelProto& m = model_.proto();
    if (!m.unknown_fields().empty() || !m.graph().unknown_fields().empty()) Newer("the model");
    for (const onnx::FunctionProto& f : m.functions())
      functions_.insert(absl::StrCat(f.domain(), ".", f.name()));
    used_ = NamesRead(m.graph());
    Scope scope;
    CheckGraph(m.graph(), scope);
    if (!external_.empty()) {
      problems_.Invalid(absl::StrCat(external_.size() == 1 ? "tensor " : "tensors ",
                                     Quoted(external_), external_.size() == 1 ? " is" : " are",
                                     " stored in another file (external data), which is not "
                                     "given here"));
    }
    for (const auto& [type, names] : lacking_) {
      const std::string wayout =
          type == TensorProto::STRING
              ? "encode strings as numbers before the model, and cut off what reads them"
              : absl::StrCat("there are ", SupportedTypeNames());
      problems_.Unsupported(absl::StrCat("element type ", onnx::ElementTypeName(type), " of ",
                                         Quoted(names), " (", wayout, ")"));
    }
    types_[&m.graph()] = std::move(scope.types);
    return std::move(types_);
  }

 private:
  void CheckOpsets() {
    std::map<std::string, int64_t> seen;
    for (const auto& opset : model_.proto().opset_import()) {
      const std::string domain = onnx::IsStandard(opset.domain()) ? "" : opset.domain();
      const auto [before, inserted] = seen.emplace(domain, opset.version());
      if (!inserted && before->second != opset.version()) {
        problems_.Invalid(absl::StrCat("domain '", domain, "' is imported as opset ",
                                       before->second, " and as opset ", opset.version()));
      }
      if (domain.empty() && opset.version() < 1)
        problems_.Invalid(absl::StrCat("there is no opset ", opset.version()));
      if (domain.empty() && opset.version() > NewestImportedOpset()) {
        problems_.Unsupported(absl::StrCat("opset ", opset.version(), " (the newest is ",
                                           NewestImportedOpset(),
                                           "; export the model with that one or an older one)"));
      }
    }
  }

  void Newer(const std::string& what) {
    problems_.Unsupported(
        absl::StrCat(what,
                     " has fields of a newer version of the ONNX format; export it with an "
                     "older one"));
  }

  void Define(Scope& scope, const std::string& name, int type, const std::string& what) {
    if (!scope.types.emplace(name, type).second)
      problems_.Invalid(absl::StrCat("'", name, "' is defined twice, the second time as ", what));
  }

  void CheckTensor(const TensorProto& t, const std::string& name) {
    if (IsExternal(t)) external_.push_back(name);
    if (!t.unknown_fields().empty()) Newer(absl::StrCat("tensor '", name, "'"));
    if (t.has_segment())
      problems_.Unsupported(absl::StrCat("tensor '", name, "', which is a segment of another"));
  }

  void CheckGraph(const GraphProto& graph, Scope& scope) {
    // Old files repeat initializers as inputs.
    ElementTypesByName initializers;
    for (const TensorProto& t : graph.initializer()) {
      CheckTensor(t, t.name());
      if (t.name().empty()) problems_.Invalid("an initializer has no name");
      Define(scope, t.name(), t.data_type(), "an initializer");
      initializers[t.name()] = t.data_type();
      if (scope.outer == nullptr && used_.count(t.name())) CheckHeld(t.name(), t.data_type());
    }
    for (const onnx::SparseTensorProto& s : graph.sparse_initializer()) {
      const std::string& name = s.values().name();
      CheckTensor(s.values(), name);
      CheckTensor(s.indices(), name);
      Define(scope, name, s.values().data_type(), "an initializer");
      problems_.Unsupported("sparse initializers");
    }
    std::set<std::string> inputs;
    for (const onnx::ValueInfoProto& input : graph.input()) {
      const int type = DeclaredType(input);
      if (input.name().empty()) problems_.Invalid("an input has no name");
      if (!inputs.insert(input.name()).second)
        problems_.Invalid(absl::StrCat("input '", input.name(), "' is declared twice"));
      if (const auto known = initializers.find(input.name()); known != initializers.end()) {
        if (type != 0 && known->second != type) {
          problems_.Invalid(absl::StrCat("input '", input.name(), "' is declared as ",
                                         onnx::ElementTypeName(type), ", but its initializer is ",
                                         onnx::ElementTypeName(known->second)));
        }
        continue;
      }
      scope.types.emplace(input.name(), type);
      if (scope.outer != nullptr) continue;
      if (!input.type().has_tensor_type()) {
        problems_.Unsupported(absl::StrCat(
            "input '", input.name(),
            "', which is not a tensor (sequences, optionals and maps are "
            "not supported, but for maps to numbers in which DictVectorizer, or CastMap with "
            "map_form=SPARSE, looks up one list of keys)"));
      } else if (type == 0) {
        problems_.Invalid(absl::StrCat("input '", input.name(), "' has no element type"));
      } else {
        CheckHeld(input.name(), type);
      }
    }
    for (const onnx::ValueInfoProto& info : graph.value_info()) declared_[info.name()] = &info;
    for (const onnx::ValueInfoProto& info : graph.output()) declared_[info.name()] = &info;
    std::set<std::string> later;  // what a node of this graph makes
    for (const NodeProto& node : graph.node())
      later.insert(node.output().begin(), node.output().end());
    for (const NodeProto& node : graph.node()) CheckNode(node, scope, later);
    for (const onnx::ValueInfoProto& output : graph.output()) {
      if (scope.Find(output.name()) == nullptr)
        problems_.Invalid(absl::StrCat("output '", output.name(), "' is not computed by any node"));
    }
  }

  // Collects values of element types that Heddle does not have.
  void CheckHeld(const std::string& name, int type) {
    if (FromOnnxType(type).ok()) return;
    if (held_.emplace(type, name).second) lacking_[type].push_back(name);
  }

  void CheckNode(const NodeProto& node, Scope& scope, const std::set<std::string>& later) {
    std::vector<int> types;  // of the inputs; 0 if unknown or missing
    const int opset = model_.Opset(node);
    const auto invalid = [&](const std::string& what) { problems_.Invalid(node, opset, what); };
    for (const std::string& input : node.input()) {
      const int* type = input.empty() ? nullptr : scope.Find(input);
      types.push_back(type == nullptr ? 0 : *type);
      if (input.empty() || type != nullptr) continue;
      invalid(absl::StrCat("uses '", input, "'",
                           later.count(input) ? " before it is computed; sort the nodes"
                                              : ", which nothing defines"));
    }
    const onnx::OperatorRule* rule = FindRuleOf(node, opset, scope.outer != nullptr);
    if (rule != nullptr) CheckByRule(node, *rule, types, scope);
    for (int i = 0; i < node.output_size(); ++i) {
      const std::string& output = node.output(i);
      if (output.empty()) continue;
      int type = rule == nullptr ? 0 : OutputType(node, *rule, i, types);
      const auto declared = declared_.find(output);
      const int wanted = declared == declared_.end() ? 0 : DeclaredType(*declared->second);
      if (type != 0 && wanted != 0 && type != wanted) {
        problems_.Invalid(
            node, opset,
            absl::StrCat("'", output, "' is declared as ", onnx::ElementTypeName(wanted),
                         ", but is ", onnx::ElementTypeName(type)));
      }
      if (type == 0) type = wanted;
      Define(scope, output, type, absl::StrCat("a result of ", node.op_type()));
      if (type != 0 && rule != nullptr && scope.outer == nullptr && FindTranslation(node))
        CheckHeld(output, type);
    }
  }

  // The version of the operator that the node means; null if there is none, which is reported. What
  // is only unsupported is not, in a subgraph.
  const onnx::OperatorRule* FindRuleOf(const NodeProto& node, int opset, bool in_subgraph) {
    const auto unsupported = [&](const std::string& what) {
      if (!in_subgraph) problems_.Unsupported(node, opset, what);
      return nullptr;
    };
    const auto invalid = [&](const std::string& what) {
      problems_.Invalid(node, opset, what);
      return nullptr;
    };
    if (!node.unknown_fields().empty()) Newer(absl::StrCat("node '", NodeName(node), "'"));
    if (functions_.count(absl::StrCat(node.domain(), ".", node.op_type())))
      return nullptr;  // InlineFunctions has reported why it stays
    if (opset == 0) return invalid("the model does not import the domain of this operator");
    const bool standard = onnx::IsStandard(node.domain());
    const std::string key = onnx::OperatorKey(node);
    const auto versions = onnx::AllRules().find(key);
    if (versions == onnx::AllRules().end())
      return unsupported(standard ? "is no operator of the standard" : "");
    if (FindTranslation(node) == nullptr) unsupported("");
    if (const int newest = NewestImportedOpset(node.domain()); opset > newest) {
      if (standard && !node.has_opset()) return nullptr;  // the model's own is reported once
      return unsupported(absl::StrCat(
          node.has_opset() ? "is in a function of an opset beyond " : "is of an opset beyond ",
          newest));
    }
    const onnx::OperatorRule* rule = onnx::FindRule(key, opset);
    if (rule == nullptr)
      return invalid(absl::StrCat("exists from opset ", versions->second[0].since, " on"));
    if (rule->removed) return invalid(absl::StrCat("was removed in opset ", rule->since));
    return rule;
  }

  void CheckByRule(const NodeProto& node, const onnx::OperatorRule& rule,
                   const std::vector<int>& types, const Scope& scope) {
    const auto invalid = [&](const std::string& what) { Invalid(node, what); };
    std::set<std::string> given;
    for (const AttributeProto& a : node.attribute()) {
      if (!given.insert(a.name()).second) {
        invalid(absl::StrCat("has the attribute '", a.name(), "' twice"));
        continue;
      }
      CheckAttribute(node, rule, a, scope);
    }
    for (const onnx::AttributeRule& a : rule.attributes) {
      if (a.required && !given.count(std::string(a.name)))
        invalid(absl::StrCat("lacks the attribute '", std::string(a.name), "'"));
    }
    CheckCount(node, "input", node.input_size(), rule.FewestInputs(), rule.MostInputs());
    CheckCount(node, "output", node.output_size(), rule.FewestOutputs(), rule.MostOutputs());
    for (int i = 0; i < node.input_size(); ++i) {
      const onnx::OperandRule* operand = rule.Input(i);
      if (operand != nullptr && node.input(i).empty() &&
          operand->mode == onnx::OperandRule::Mode::kRequired)
        invalid(absl::StrCat("lacks the operand '", std::string(operand->name), "'"));
    }
    CheckTypes(node, rule, types);
  }

  void CheckCount(const NodeProto& node, const std::string& what, int count, int fewest, int most) {
    if (count >= fewest && count <= most) return;
    const int limit = count < fewest ? fewest : most;
    Invalid(node, absl::StrCat("has ", count, " ", what, count == 1 ? "" : "s", ", but takes ",
                               fewest == most   ? ""
                               : count < fewest ? "at least "
                                                : "at most ",
                               limit));
  }

  void CheckAttribute(const NodeProto& node, const onnx::OperatorRule& rule,
                      const AttributeProto& a, const Scope& scope) {
    const auto invalid = [&](const std::string& what) { Invalid(node, what); };
    const onnx::AttributeRule* known = rule.Attribute(a.name());
    if (known == nullptr) return invalid(UnknownAttribute(rule, a.name()));
    if (!a.unknown_fields().empty())
      return Newer(absl::StrCat("attribute '", a.name(), "' of node '", NodeName(node), "'"));
    if (!a.ref_attr_name().empty())
      return invalid(absl::StrCat("takes the attribute '", a.name(),
                                  "' of a function, but is in "
                                  "none"));
    const AttributeProto::AttributeType type = TypeOf(a);
    if (type != known->type) {
      return invalid(absl::StrCat("takes ", Described(known->type), " as attribute '", a.name(),
                                  "', not ",
                                  type == AttributeProto::UNDEFINED ? "nothing" : Described(type)));
    }
    if (!HoldsItsType(a, type))
      return invalid(
          absl::StrCat("the attribute '", a.name(), "' does not hold ", Described(type)));
    if (a.has_t()) CheckTensor(a.t(), a.name());
    for (const TensorProto& t : a.tensors()) CheckTensor(t, a.name());
    if (a.has_sparse_tensor()) {
      CheckTensor(a.sparse_tensor().values(), a.name());
      CheckTensor(a.sparse_tensor().indices(), a.name());
    }
    if (a.has_g()) CheckSubgraph(a.g(), scope);
    for (const GraphProto& g : a.graphs()) CheckSubgraph(g, scope);
  }

  void CheckSubgraph(const GraphProto& graph, const Scope& outer) {
    // The values of a subgraph have declarations of their own.
    auto declared = std::exchange(declared_, {});
    Scope scope{&outer, {}};
    CheckGraph(graph, scope);
    types_[&graph] = std::move(scope.types);
    declared_ = std::move(declared);
  }

  // Says whether other versions of the operator know the attribute.
  static std::string UnknownAttribute(const onnx::OperatorRule& rule, const std::string& name) {
    std::string text = absl::StrCat("has no attribute '", name, "'");
    for (const onnx::OperatorRule& other : onnx::AllRules().at(rule.name)) {
      if (other.Attribute(name) == nullptr) continue;
      if (other.since > rule.since) return absl::StrCat(text, " before opset ", other.since);
      text =
          absl::StrCat("has no attribute '", name, "' any more, as it had in opset ", other.since);
    }
    return text;
  }

  // Element types against the sets of the standard; those of one type variable have to be equal.
  void CheckTypes(const NodeProto& node, const onnx::OperatorRule& rule,
                  const std::vector<int>& types) {
    const auto invalid = [&](const std::string& what) { Invalid(node, what); };
    std::map<std::string_view, int> first;  // input that decides a type variable
    for (int i = 0; i < static_cast<int>(types.size()); ++i) {
      const onnx::OperandRule* operand = rule.Input(i);
      if (operand == nullptr || types[i] == 0) continue;
      const std::string named =
          absl::StrCat("'", node.input(i), "' (", std::string(operand->name), ")");
      if (types[i] >= onnx::kSequence || (operand->types >> types[i] & 1) == 0) {
        invalid(absl::StrCat("takes ", onnx::ElementTypeNames(operand->types), " as ", named,
                             ", not ", onnx::ElementTypeName(types[i])));
        continue;
      }
      if (operand->variable.empty() || !operand->same_type) continue;
      const auto [known, inserted] = first.emplace(operand->variable, i);
      if (inserted || types[known->second] == types[i]) continue;
      invalid(absl::StrCat("takes operands of one type, but '", node.input(known->second), "' is ",
                           onnx::ElementTypeName(types[known->second]), " and ", named, " is ",
                           onnx::ElementTypeName(types[i])));
    }
  }

  void Invalid(const NodeProto& node, const std::string& what) {
    problems_.Invalid(node, model_.Opset(node), what);
  }

  // The element type of output i, as far as types of inputs and attributes decide it; else 0.
  int OutputType(const NodeProto& node, const onnx::OperatorRule& rule, int i,
                 const std::vector<int>& types) const {
    const onnx::OperandRule* output = rule.Output(i);
    if (output == nullptr || !output->same_type) return 0;
    if (output->types != 0 && (output->types & (output->types - 1)) == 0) {
      const int only = __builtin_ctzll(output->types);
      return only >= onnx::kSequence ? 0 : only;
    }
    for (const char* name : {"to", "dtype", "output_dtype", "output_datatype"}) {
      const AttributeProto* a = FindAttribute(node, name);
      if (i == 0 && a != nullptr && a->i() > 0 && a->i() <= INT_MAX)
        return static_cast<int>(a->i());
    }
    for (int k = 0; k < static_cast<int>(types.size()); ++k) {
      const onnx::OperandRule* input = rule.Input(k);
      const bool decides = input != nullptr && input->same_type && !output->variable.empty() &&
                           input->variable == output->variable;
      if (decides && types[k] != 0) return types[k];
      if (decides && !node.input(k).empty()) return 0;
    }
    return WithoutOperand(node, types);
  }

  // The same for operators whose result has a type of its own.
  int WithoutOperand(const NodeProto& node, const std::vector<int>& types) const {
    const std::string& op = node.op_type();
    if (op == "Constant" || op == "ConstantOfShape") {
      for (const AttributeProto& a : node.attribute()) {
        if (a.name() == "value") return a.t().data_type();
        if (a.name() == "sparse_value") return a.sparse_tensor().values().data_type();
        if (a.name() == "value_float" || a.name() == "value_floats") return TensorProto::FLOAT;
        if (a.name() == "value_int" || a.name() == "value_ints") return TensorProto::INT64;
        if (a.name() == "value_string" || a.name() == "value_strings") return TensorProto::STRING;
      }
      return op == "Constant" ? 0 : TensorProto::FLOAT;
    }
    if (op == "QuantizeLinear") return TensorProto::UINT8;
    if (op == "QGemm") {  // with a scale of the result, it is quantised
      const int zero = types.size() > 8 ? types[8] : 0;
      return types.size() <= 7 ? TensorProto::FLOAT : zero;
    }
    if (op == "DequantizeLinear") return types.size() > 1 ? types[1] : 0;
    if (op == "EyeLike" || op == "Bernoulli" || op == "RandomNormalLike" ||
        op == "RandomUniformLike")
      return types.empty() ? 0 : types[0];
    if (op == "HannWindow" || op == "HammingWindow" || op == "BlackmanWindow" ||
        op == "RandomNormal" || op == "RandomUniform")
      return TensorProto::FLOAT;
    if (op == "Multinomial") return TensorProto::INT32;
    return 0;
  }

  const Model& model_;
  Problems& problems_;
  std::set<std::string> functions_;  // "domain.name" of the model's own
  std::set<std::string> used_;       // NamesRead of the model's graph
  ElementTypesByGraph types_;
  std::map<std::string, const onnx::ValueInfoProto*> declared_;
  std::vector<std::string> external_;
  std::map<int, std::vector<std::string>> lacking_;  // values of types that Heddle does not have
  std::set<std::pair<int, std::string>> held_;       // the same
};

}  // namespace

ElementTypesByGraph CheckModel(const Model& model, Problems& problems) {
  return Checker(model, problems).Run();
}

}  // namespace heddle::graph
