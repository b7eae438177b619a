// The interface between the importer and the translation of one ONNX node. Internal to the
// importer.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/passes/constant_budget.h"
#include "onnx/onnx_pb.h"

namespace heddle::graph {

// The element type of an ONNX enum value. Unimplemented, naming the type, if there is none.
absl::StatusOr<ir::DType> FromOnnxType(int type);
// Unimplemented: a type that we lack. InvalidArgument: the bytes do not match the shape.
absl::StatusOr<TensorData> FromOnnxTensor(const onnx::TensorProto& tensor);

// Errors are sticky: the first one is kept; after it, every call does nothing and returns the value
// -1, whose type is an f32 scalar. So a translation reads like a formula, and checks ok() only
// before it looks into a shape that it computed.
class NodeImport {
 public:
  NodeImport(const onnx::NodeProto& node, int opset, GraphBuilder& builder,
             std::map<std::string, ValueId>& values, ConstantBudget& budget);

  const onnx::NodeProto& proto() const { return node_; }
  int opset() const { return opset_; }
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  void Fail(const std::string& what);  // InvalidArgument
  void Unsupported(
      const std::string& what);  // Unimplemented: listed with the unsupported operators

  // Operands. Has(i): present and not the empty name.
  int NumInputs() const { return node_.input_size(); }
  bool Has(int i) const { return i < node_.input_size() && !node_.input(i).empty(); }
  ValueId In(int i);
  bool Wants(int output) const {
    return output < node_.output_size() && !node_.output(output).empty();
  }
  int NumOutputs() const { return node_.output_size(); }

  const TensorType& Type(ValueId v) const;
  const Shape& ShapeOf(ValueId v) const { return Type(v).shape; }
  int Rank(ValueId v) const { return static_cast<int>(ShapeOf(v).size()); }
  const TensorData* ConstantData(ValueId v) const {
    return v < 0 ? nullptr : builder_.ConstantData(v);
  }

  // The elements of an operand that has to be known at import, such as a shape or axes.
  Shape ConstantInts(int i);
  std::vector<double> ConstantDoubles(int i);

  // Attributes.
  const onnx::AttributeProto* Find(std::string_view name) const;
  int64_t Int(std::string_view name, int64_t fallback) const;
  double Float(std::string_view name, double fallback) const;
  std::string String(std::string_view name, const std::string& fallback) const;
  Shape Ints(std::string_view name) const;
  bool HasAttr(std::string_view name) const { return Find(name) != nullptr; }

  // Emits an operator. Small results of constants are computed at once, so that arithmetic on
  // shapes ends as constants.
  ValueId Emit(OpKind kind, const std::vector<ValueId>& inputs, const Attrs& attrs = {});
  ValueId Constant(TensorData data);
  // Fill makes a constant, every element of which is `value`. CanMake says whether one of that size
  // may be made at import, and takes it out of the model's budget.
  ValueId Fill(const TensorType& type, double value);
  bool CanMake(const TensorType& type);
  ValueId ScalarLike(double value, ValueId like);  // a rank-0 constant of the same type

  // Shorthands, which add no node if there is nothing to do.
  ValueId Reshape(ValueId v, const Shape& shape);
  ValueId Transpose(ValueId v, const Shape& perm);
  ValueId Cast(ValueId v, ir::DType to);
  // A vector, reshaped to broadcast along dimension `axis` of a tensor of `rank`.
  ValueId AlongAxis(ValueId vector, int axis, int rank);

  int64_t Axis(int64_t axis, int rank);
  Shape Axes(const Shape& axes, int rank);

  // Defines output i of the node.
  void Set(int i, ValueId v);

 private:
  bool MayEvaluate(OpKind kind, const Attrs& attrs, Types types, const TensorType& result);

  const onnx::NodeProto& node_;
  int opset_;
  GraphBuilder& builder_;
  std::map<std::string, ValueId>& values_;
  ConstantBudget& budget_;
  absl::Status status_;
  std::string name_;
};

// How an operator is imported. `limits` says, for the table of supported operators, which cases of
// the standard are not supported; empty if all are. `since`: the opset that brought it, of one that
// may be newer than libonnx (lower.h).
struct Translation {
  using Run = void (*)(NodeImport& node);
  Translation(Run r = nullptr, const char* l = "", int s = 0)
      : run(r), limits(l), since(s) {}  // NOLINT: reads as a table
  Run run;
  const char* limits;
  int since;
};
using TranslationTable = std::map<std::string, Translation>;
const TranslationTable& Translations();  // of every operator, by its ONNX name
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

}  // namespace heddle::graph
