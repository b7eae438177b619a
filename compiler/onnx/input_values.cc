#include "compiler/onnx/input_values.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/onnx/node.h"

namespace heddle::graph {
namespace {

absl::Status WrongInput(const std::string& text) { return absl::InvalidArgumentError(text); }

// The shape of an input to which `count` elements are given. One element fills the whole tensor.
absl::StatusOr<Shape> ShapeFor(const onnx::ValueInfoProto& input, const ImportOptions& options,
                               int64_t count) {
  const auto given = options.shapes.find(input.name());
  if (given != options.shapes.end()) return given->second;
  const auto& type = input.type().tensor_type();
  if (!type.has_shape()) return Shape(count == 1 ? 0 : 1, count);
  Shape shape;
  for (const auto& d : type.shape().dim()) {
    const auto named = options.shapes.find(d.dim_param());
    if (d.has_dim_value())
      shape.push_back(d.dim_value());
    else if (!d.dim_param().empty() && named != options.shapes.end() && named->second.size() == 1)
      shape.push_back(named->second[0]);
    else if (type.shape().dim_size() == 1)
      shape.push_back(count);
    else
      return WrongInput(absl::StrCat("input '", input.name(),
                                     "' has an open shape; give it one with --shape as well"));
  }
  return shape;
}

// The bytes of one element.
std::optional<std::string> ParseElement(absl::string_view word, ir::DType dtype) {
  double real = 0;
  int64_t whole = 0;
  uint64_t natural = 0;
  bool truth = false;
  TensorData element;
  if (ir::IsFloat(dtype)) {
    if (!absl::SimpleAtod(word, &real)) return std::nullopt;
    element = FromDoubles({real}, {}, dtype);
  } else if (dtype == ir::DType::kBool) {
    if (!absl::SimpleAtob(word, &truth)) return std::nullopt;
    element = FromDoubles({truth ? 1.0 : 0.0}, {}, dtype);
  } else if (dtype == ir::DType::kU64) {
    if (!absl::SimpleAtoi(word, &natural)) return std::nullopt;
    element = FromInts({static_cast<int64_t>(natural)}, dtype);
  } else {
    if (!absl::SimpleAtoi(word, &whole)) return std::nullopt;
    element = FromInts({whole}, dtype);
    if (ToInts(element)[0] != whole) return std::nullopt;  // out of range
  }
  return std::string(*element.bytes);
}

absl::StatusOr<onnx::TensorProto> MakeTensor(const onnx::ValueInfoProto& input,
                                             const ImportOptions& options,
                                             const std::string& text) {
  const std::string name = absl::StrCat("input '", input.name(), "'");
  const int onnx_type = input.type().tensor_type().elem_type();
  const absl::StatusOr<ir::DType> dtype = FromOnnxType(onnx_type);
  if (!dtype.ok() || *dtype == ir::DType::kF16 || *dtype == ir::DType::kBF16)
    return WrongInput(absl::StrCat(name, " is of a type that takes no --input-value"));
  const std::vector<std::string> words = absl::StrSplit(text, ',');
  HEDDLE_ASSIGN_OR_RETURN(const Shape shape,
                          ShapeFor(input, options, static_cast<int64_t>(words.size())));
  const int64_t elements = NumElements({*dtype, shape});
  if (words.size() != 1 && static_cast<int64_t>(words.size()) != elements) {
    return WrongInput(
        absl::StrCat(name, " has ", elements, " elements, but --input-value gives ", words.size()));
  }
  if (elements * ir::SizeOf(*dtype) > options.constant_bytes)
    return WrongInput(absl::StrCat(name, " is too large for --input-value"));
  onnx::TensorProto tensor;
  tensor.set_name(input.name());
  tensor.set_data_type(onnx_type);
  for (int64_t d : shape) tensor.add_dims(d);
  std::string& bytes = *tensor.mutable_raw_data();
  for (const std::string& word : words) {
    const std::optional<std::string> element = ParseElement(word, *dtype);
    if (!element) {
      return WrongInput(absl::StrCat("'", word, "' is no ", std::string(ir::Name(*dtype)), " for ",
                                     name, "; write --input-value ", input.name(), "=1 or =1,2,3"));
    }
    bytes += *element;
  }
  if (words.size() == 1) {
    const std::string one = bytes;
    bytes.clear();
    for (int64_t i = 0; i < elements; ++i) bytes += one;
  }
  return tensor;
}

}  // namespace

absl::Status FixInputValues(Model& model, const ImportOptions& options) {
  for (const auto& [name, text] : options.input_values) {
    const auto& inputs = model.graph().input();
    const auto input =
        std::find_if(inputs.begin(), inputs.end(), [&](const auto& i) { return i.name() == name; });
    if (input == inputs.end()) {
      std::vector<std::string> names;
      for (const auto& i : inputs) names.push_back(i.name());
      return WrongInput(absl::StrCat("the model has no input '", name,
                                     "' for --input-value; it has ", absl::StrJoin(names, ", ")));
    }
    HEDDLE_ASSIGN_OR_RETURN(onnx::TensorProto tensor, MakeTensor(*input, options, text));
    // An input with an initializer is a constant. A default value of the file is no default any more.
    auto& initializers = *model.mutable_graph().mutable_initializer();
    initializers.erase(std::remove_if(initializers.begin(), initializers.end(),
                                      [&](const auto& t) { return t.name() == name; }),
                       initializers.end());
    *initializers.Add() = std::move(tensor);
  }
  return absl::OkStatus();
}

}  // namespace heddle::graph
