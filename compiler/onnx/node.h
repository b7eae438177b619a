// The interface between the importer and the translation of one ONNX node. Internal to the
// importer.
#pragma once

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/passes/constant_budget.h"
#include "compiler/onnx/format/onnx_format.pb.h"
#include "compiler/onnx/standard/standard.h"

namespace heddle::graph {

// The most comparisons of elements that the kernels of one node may make: some seconds.
inline constexpr double kMostComparisons = 1e10;

// The element type in which we hold that of an ONNX enum value (narrow.h: not always the same type).
// If we lack the type, Unimplemented with its name.
absl::StatusOr<ir::DType> FromOnnxType(int type);
// "float, double, .." for messages.
std::string SupportedTypeNames();
// Unimplemented: we lack the element type. InvalidArgument: the bytes do not match the shape. The
// second form moves the bytes out of the message, so that large weights are held once.
absl::StatusOr<TensorData> FromOnnxTensor(const onnx::TensorProto& tensor);
absl::StatusOr<TensorData> FromOnnxTensor(onnx::TensorProto&& tensor);
// A tensor whose elements are not in its message. They are not copied, unless they are misaligned or
// booleans, which may have other values than 0 and 1.
absl::StatusOr<TensorData> FromOnnxTensor(const onnx::TensorProto& tensor, SharedBytes elements);

// What a name of a model stands for: a tensor, or what only exists during import: a sequence of
// tensors whose length is known, or the missing content of an optional. An optional with content
// stands for the content.
struct NamedValue {
  enum class Kind { kTensor, kSequence, kNothing };
  NamedValue(ValueId v = -1) : tensor(v) {}  // NOLINT: a value is mostly a tensor
  static NamedValue Sequence(std::vector<ValueId> items);
  static NamedValue Nothing();

  Kind kind = Kind::kTensor;
  ValueId tensor = -1;
  std::vector<ValueId> items = {};
};
using NamedValues = std::map<std::string, NamedValue>;

// The lengths of dimensions whose extent depends on data (bounded.h): scalars of type i64.
class LengthTable {
 public:
  using ByDimension = std::map<int, ValueId>;
  // The dimensions of a value that have a length.
  const ByDimension& Of(ValueId v) const;
  void Set(ValueId v, int dimension, ValueId length) { lengths_[v][dimension] = length; }
  // What a scalar may be at most, and what it depends on, for messages.
  struct Origin {
    int64_t bound = 0;
    std::string text;
  };
  void Define(ValueId length, Origin origin) { origins_[length] = std::move(origin); }
  const Origin* Find(ValueId length) const;  // null if the value is no length
  // Places and length that were chosen by flags (selection.cc), so that equal flags have one length.
  using Choice = std::pair<ValueId, ValueId>;
  void KeepChoice(ValueId flags, Choice choice) { choices_[flags] = choice; }
  const Choice* FindChoice(ValueId flags) const;

 private:
  std::map<ValueId, Choice> choices_;
  std::map<ValueId, ByDimension> lengths_;
  std::map<ValueId, Origin> origins_;
};

// What the random numbers of a model depend on (random.h).
struct RandomNumbers {
  ValueId seed = -1;     // an i64 scalar; -1: the model draws none
  uint64_t streams = 0;  // that are in use
};

class SampleTable;  // samples.h

// Translates a subgraph with these values for its inputs and returns those of its outputs. It may be
// translated any number of times. Aborted: problems of its nodes, which are reported unless this is an attempt.
using RunSubgraph = absl::FunctionRef<absl::StatusOr<std::vector<NamedValue>>(
    const onnx::GraphProto& graph, const std::vector<NamedValue>& inputs, bool attempt)>;

// One ONNX node during its translation. Errors are sticky: the first one is kept, and every later
// call does nothing and returns the value -1, whose type is an f32 scalar. So a translation reads
// like a formula. It checks ok() only before it looks into a shape that it computed.
//
// The node keeps the rules of its opset (check.h). What a translation never asks for, an operand or
// an attribute with another value than its default, it cannot have respected: CheckAllRead refuses
// it.
class NodeImport {
 public:
  // `rule` is the version of the operator that holds in the opset; `types` are the ONNX element types
  // of the operands, 0 for unknown ones.
  NodeImport(const onnx::NodeProto& node, const onnx::OperatorRule& rule, int opset,
             std::vector<int> types, GraphBuilder& builder, NamedValues& values,
             ConstantBudget& budget, LengthTable& lengths, RandomNumbers& random,
             SampleTable& samples, RunSubgraph run_subgraph);

  const onnx::NodeProto& proto() const { return node_; }
  int opset() const { return opset_; }
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  void Fail(const std::string& what);  // InvalidArgument
  // Calls `translate`, whose error, and the problems of a body that it translates, are not the node's: they come back. What it has
  // emitted stays, and nothing uses it.
  absl::Status Attempt(absl::FunctionRef<absl::Status()> translate);
  // If a node of a body was refused, this one is reported, too: Unimplemented.
  void ExplainBody(const std::string& what);
  void Unsupported(
      const std::string& what);  // Unimplemented; listed with the unsupported operators

  // Operands. Has(i): operand i is present and its name is not empty.
  int NumInputs() const { return node_.input_size(); }
  bool Has(int i) const;
  ValueId In(int i);
  const NamedValue& Value(int i);       // also one that is no tensor
  const NamedValue* Peek(int i) const;  // null if it is not defined; does not count as asked for
  std::vector<ValueId> Items(int i);    // of a sequence
  // The ONNX element type of operand i; 0 if it is missing or unknown.
  int OnnxType(int i) const { return Has(i) ? types_[i] : 0; }
  bool Wants(int output) const {
    return output < node_.output_size() && !node_.output(output).empty();
  }
  int NumOutputs() const { return node_.output_size(); }

  const TensorType& Type(ValueId v) const;
  const Shape& ShapeOf(ValueId v) const { return Type(v).shape; }
  int Rank(ValueId v) const { return static_cast<int>(ShapeOf(v).size()); }
  // Null for a value with lengths, too: not all of its elements are meant.
  const TensorData* ConstantData(ValueId v) const {
    return v < 0 || !lengths_.Of(v).empty() ? nullptr : builder_.ConstantData(v);
  }
  LengthTable& lengths() { return lengths_; }
  RandomNumbers& random() { return random_; }
  SampleTable& samples() { return samples_; }
  // The graph node that makes v, or null; valid until the next Emit.
  const Node* ProducerOf(ValueId v) const { return builder_.ProducerOf(v); }
  const std::string& ValueName(ValueId v) const { return builder_.Name(v); }
  const std::string& name() const { return name_; }

  // The elements of an operand that must be constant at import, such as a shape or axes.
  Shape ConstantInts(int i);
  std::vector<double> ConstantDoubles(int i);

  // Attributes. What a node leaves out has the default of its opset. `fallback` is the value if the
  // opset has no default, or does not know the attribute.
  const onnx::AttributeProto* Find(std::string_view name) const;  // null: neither value nor default
  int64_t Int(std::string_view name, int64_t fallback = 0) const;
  double Float(std::string_view name, double fallback = 0) const;
  std::string String(std::string_view name, const std::string& fallback = "") const;
  // A string attribute that names one of several ways. The first of `known` is the value if the
  // opset has no default. Any other value than these is Unsupported, because a newer standard may
  // have defined it.
  std::string OneOf(std::string_view name, std::initializer_list<std::string_view> known);
  Shape Ints(std::string_view name) const;
  std::vector<double> Floats(std::string_view name) const;
  std::vector<std::string> Strings(std::string_view name) const;
  // Whether the node itself has the attribute.
  bool HasAttr(std::string_view name) const;
  // Attributes and operands that do not change the result here.
  void Ignore(std::initializer_list<std::string_view> attributes) const;
  void IgnoreOperand(int i) const;
  // Unsupported, if the translation did not ask for something that the node has.
  void CheckAllRead();

  // Emits an operator. Small results of constant operands are computed at once, so arithmetic on
  // shapes becomes constants. So do results without elements, and those of operands without any. The
  // result has the lengths that follow from those of the operands (bounded.h).
  ValueId Emit(OpKind kind, const std::vector<ValueId>& inputs, const Attrs& attrs = {});
  // The same, but takes all operands as if they had no lengths.
  ValueId EmitFixed(OpKind kind, const std::vector<ValueId>& inputs, const Attrs& attrs = {});
  // Emits what a function of another room makes of an operand, whose shape must not depend on data.
  // The function's error is the node's.
  ValueId EmitBy(ValueId operand,
                 absl::FunctionRef<absl::StatusOr<ValueId>(GraphBuilder&, ValueId)> function);
  ValueId Constant(TensorData data);
  // Fill makes a constant whose elements are all `value`. CanMake tells whether import may make a
  // constant of this type, and subtracts it from the model's budget.
  ValueId Fill(const TensorType& type, double value);
  bool CanMake(const TensorType& type);
  ValueId ScalarLike(double value, ValueId like);  // a rank-0 constant of the same type

  // Shorthands. They add no node if there is nothing to do, such as for a reshape that undoes another one.
  ValueId Reshape(ValueId v, const Shape& shape);
  ValueId Transpose(ValueId v, const Shape& perm);
  ValueId Cast(ValueId v, ir::DType to);
  // Reshapes a vector so that it broadcasts along dimension `axis` of a tensor of `rank`.
  ValueId AlongAxis(ValueId vector, int axis, int rank);

  int64_t Axis(int64_t axis, int rank);
  Shape Axes(const Shape& axes, int rank);

  // Translates the subgraph that is this attribute.
  std::vector<NamedValue> Body(std::string_view attribute, const std::vector<NamedValue>& inputs);

  // Defines output i of the node.
  void Set(int i, ValueId v);
  void SetValue(int i, const NamedValue& v);

 private:
  ValueId EmitWithoutElements(OpKind kind, const std::vector<ValueId>& inputs, const Attrs& attrs,
                              const TensorType& result);
  bool MayEvaluate(OpKind kind, const Attrs& attrs, Types types, const TensorType& result);
  const onnx::AttributeProto* Given(std::string_view name) const;

  const onnx::NodeProto& node_;
  const onnx::OperatorRule& rule_;
  int opset_;
  std::vector<int> types_;
  GraphBuilder& builder_;
  NamedValues& values_;
  ConstantBudget& budget_;
  LengthTable& lengths_;
  RandomNumbers& random_;
  SampleTable& samples_;
  RunSubgraph run_subgraph_;
  absl::Status status_;
  std::string name_;
  mutable std::set<std::string, std::less<>> read_attributes_;
  mutable std::set<int> read_operands_;
  bool attempt_ = false;
};

// How an operator is imported. `limits` is a text for the table of supported operators: the cases
// of the standard that are not supported. It is empty if all are.
struct Translation {
  using Run = void (*)(NodeImport& node);
  Translation(Run r = nullptr, const char* l = "")
      : run(r), limits(l) {}  // NOLINT: reads as a table
  Run run;
  const char* limits;
};
using TranslationTable = std::map<std::string, Translation>;
const TranslationTable& Translations();  // of all operators, by their onnx::OperatorKey
// The translation of a node's operator; null if there is none.
const Translation* FindTranslation(const onnx::NodeProto& node);

// The newest opset of a domain whose changes the translations know; models of newer ones are refused.
// To raise it after operators.inc or ml.inc was written anew: read what changed in operators that have
// a translation.
int NewestImportedOpset(std::string_view domain = "");

void AddConstantTranslations(TranslationTable& table);
void AddElementwiseTranslations(TranslationTable& table);
void AddNetworkTranslations(TranslationTable& table);
void AddReductionTranslations(TranslationTable& table);
void AddMovementTranslations(TranslationTable& table);
void AddResizeTranslations(TranslationTable& table);
void AddQuantizedTranslations(TranslationTable& table);
void AddRecurrentTranslations(TranslationTable& table);
void AddLossTranslations(TranslationTable& table);
void AddScatterTranslations(TranslationTable& table);
void AddAttentionTranslations(TranslationTable& table);
void AddBitTranslations(TranslationTable& table);
void AddRegionTranslations(TranslationTable& table);
void AddSignalTranslations(TranslationTable& table);
void AddControlTranslations(TranslationTable& table);
void AddSequenceTranslations(TranslationTable& table);
void AddSelectionTranslations(TranslationTable& table);
void AddRandomTranslations(TranslationTable& table);
void AddMicrosoftTranslations(TranslationTable& table);
void AddMicrosoftAttentionTranslations(TranslationTable& table);
void AddFeatureTranslations(TranslationTable& table);
void AddLinearTranslations(TranslationTable& table);
void AddTreeTranslations(TranslationTable& table);

}  // namespace heddle::graph
