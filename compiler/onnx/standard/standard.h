// The operators of the ONNX standard, with all their versions: what a node of a given opset may look
// like, and the defaults of what it leaves out. The table behind it (operators.inc) is written by
// generate.py from the Python package `onnx`; nothing here depends on an installed libonnx. Two more
// tables have the same form: ml.inc has the operators of the standard's domain ai.onnx.ml (classical
// models), and microsoft.inc those of ONNX Runtime that are translated.
//
// Lines of the table; "|" separates inputs, outputs, attributes and type variables:
//
//     newest 28                        the newest opset of the table's domain
//     types S1 double float float16    a set of element types
//     domain ai.onnx.preview Adam ..   names of operators of another domain
//     Split 18 | input:T split?:int64 | outputs*1:T | axis:int=0 num_outputs:int | T=S4
//     Upsample 10 removed              no longer an operator from this opset on
//
// An operand is name, mode and type: `?` optional, `*1` any number from 1 on (`~`: of several
// types); the type is a variable, or an element type. An attribute is name and type; `!` required,
// `=` its default. A type variable stands for the same element type wherever it occurs in a node,
// out of a set or a single type.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/onnx/format/onnx_format.pb.h"

namespace heddle::onnx {

// A set of element types: the bits 1 << TensorProto::DataType. Values that are no tensors have bits
// above.
using ElementTypes = uint64_t;
inline constexpr int kSequence = 60, kOptional = 61, kMap = 62;

// "float16"; "#99" if there is no such type.
std::string ElementTypeName(int type);
std::string ElementTypeNames(ElementTypes types);  // "float, double or float16"

struct OperandRule {
  enum class Mode { kRequired, kOptional, kVariadic };
  std::string_view name;
  Mode mode = Mode::kRequired;
  int least = 1;              // of a variadic operand
  bool same_type = true;      // of a variadic operand: all have the type of the first
  std::string_view variable;  // the type variable; empty if the type is fixed
  ElementTypes types = 0;
};

struct AttributeRule {
  std::string_view name;
  AttributeProto::AttributeType type{};
  bool required = false;
  AttributeProto fallback;  // its type is UNDEFINED if there is no default
};

// One version of an operator, as it holds from opset `since` on until the next version.
struct OperatorRule {
  enum class Source { kStandard, kMl, kRuntime };  // the table that has it
  std::string_view name;                           // as OperatorKey
  Source source = Source::kStandard;
  int since = 0;
  bool removed = false;  // the operator does not exist in these opsets
  std::vector<OperandRule> inputs, outputs;
  std::vector<AttributeRule> attributes;

  // The rule of input or output i; null beyond the last one. A variadic one comes last.
  const OperandRule* Input(int i) const { return At(inputs, i); }
  const OperandRule* Output(int i) const { return At(outputs, i); }
  int FewestInputs() const { return Fewest(inputs); }
  int FewestOutputs() const { return Fewest(outputs); }
  int MostInputs() const { return Most(inputs); }  // INT_MAX: any number
  int MostOutputs() const { return Most(outputs); }
  const AttributeRule* Attribute(std::string_view attribute) const;

 private:
  static const OperandRule* At(const std::vector<OperandRule>& list, int i);
  static int Fewest(const std::vector<OperandRule>& list);
  static int Most(const std::vector<OperandRule>& list);
};

// Whether a domain names the standard's own operators.
inline bool IsStandard(std::string_view domain) { return domain.empty() || domain == "ai.onnx"; }
// The standard's domain of classical models: trees, linear models, what comes before and after them.
inline constexpr std::string_view kMlDomain = "ai.onnx.ml";

// The newest opset of a domain of the standard. INT_MAX: no table says it.
int NewestOpset(std::string_view domain = "");

// The name by which every table knows an operator: "Relu" of the standard, else with the domain:
// "com.microsoft.Gelu".
std::string OperatorKey(std::string_view domain, std::string_view op_type);
inline std::string OperatorKey(const NodeProto& node) {
  return OperatorKey(node.domain(), node.op_type());
}

// The version of an operator that holds in an opset of its domain. Null: no version is that old, or
// there is no such operator. It may be a removed one.
const OperatorRule* FindRule(std::string_view key, int opset);

// All versions of all operators of the tables, oldest first.
using Standard = std::map<std::string_view, std::vector<OperatorRule>>;
const Standard& AllRules();

// Names of operators in the standard's other domains, such as ai.onnx.preview.training.
const std::map<std::string_view, std::vector<std::string_view>>& OtherDomains();

}  // namespace heddle::onnx
