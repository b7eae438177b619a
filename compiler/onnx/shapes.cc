#include "compiler/onnx/shapes.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/onnx/pipelines/names.h"

namespace heddle::graph {
namespace {

using Dimension = onnx::TensorShapeProto::Dimension;

bool IsFixed(const Dimension& d) { return d.has_dim_value() && d.dim_value() >= 0; }

std::string DimText(const Dimension& d) {
  if (IsFixed(d)) return absl::StrCat(d.dim_value());
  return d.has_dim_param() && !d.dim_param().empty() ? d.dim_param() : "?";
}

// A likely extent for an open dimension, to propose to the user. The name tells most; the place
// among `rank` dimensions tells the rest.
int64_t LikelyExtent(const Dimension& d, int index, int rank) {
  constexpr int64_t kImage = 224, kSequence = 128, kColours = 3;
  std::string name = d.dim_param();
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto says = [&](std::initializer_list<const char*> words) {
    return std::any_of(words.begin(), words.end(),
                       [&](const char* w) { return name.find(w) != std::string::npos; });
  };
  if (says({"batch"})) return 1;
  if (says({"seq", "len", "time", "token"})) return kSequence;
  if (says({"height", "width"}) || name == "h" || name == "w") return kImage;
  if (says({"channel"}) || name == "c") return kColours;
  if (index == 0) return 1;
  if (rank == 4) return index == 1 ? kColours : kImage;
  return kSequence;
}

Shape Proposal(const onnx::ValueInfoProto& input, const ImportOptions& options) {
  const auto& type = input.type().tensor_type();
  if (!type.has_shape() || type.shape().dim_size() == 0) return {1, 3, 224, 224};
  Shape shape;
  const int rank = type.shape().dim_size();
  for (int i = 0; i < rank; ++i) {
    const Dimension& d = type.shape().dim(i);
    const auto named = options.shapes.find(d.dim_param());
    const bool given = named != options.shapes.end() && named->second.size() == 1;
    shape.push_back(IsFixed(d) ? d.dim_value()
                    : given    ? named->second[0]
                               : LikelyExtent(d, i, rank));
  }
  return shape;
}

// The shape that the options give an input: by its name, or by the names of its dimensions.
std::optional<Shape> Given(const onnx::ValueInfoProto& input, const ImportOptions& options) {
  const auto by_name = options.shapes.find(input.name());
  if (by_name != options.shapes.end()) return by_name->second;
  const auto& type = input.type().tensor_type();
  if (!type.has_shape()) return std::nullopt;
  Shape shape;
  for (const Dimension& d : type.shape().dim()) {
    const auto named = options.shapes.find(d.dim_param());
    if (IsFixed(d))
      shape.push_back(d.dim_value());
    else if (d.dim_param().empty() || named == options.shapes.end() || named->second.size() != 1)
      return std::nullopt;
    else
      shape.push_back(named->second[0]);
  }
  return shape;
}

absl::Status CheckNames(const std::vector<const onnx::ValueInfoProto*>& inputs,
                        const ImportOptions& options) {
  std::set<std::string> names, dimensions;
  for (const auto* input : inputs) {
    names.insert(input->name());
    for (const Dimension& d : input->type().tensor_type().shape().dim()) {
      if (!IsFixed(d) && !d.dim_param().empty()) dimensions.insert(d.dim_param());
    }
  }
  for (const auto& [name, shape] : options.shapes) {
    if (names.count(name)) continue;
    if (dimensions.count(name)) {
      if (shape.size() == 1) continue;
      return BadInput(absl::StrCat("the dimension '", name, "' has one extent, and ", shape.size(),
                                   " are given; give one, as --shape ", name, "=",
                                   shape.empty() ? 1 : shape[0],
                                   " (only independent rows may be several numbers)"));
    }
    return BadInput(absl::StrCat(
        "the model has no input '", name, "'; it has ", absl::StrJoin(names, ", "),
        dimensions.empty() ? "" : " with the open dimensions ", absl::StrJoin(dimensions, ", ")));
  }
  return absl::OkStatus();
}

absl::Status Refuse(const std::vector<onnx::ValueInfoProto*>& open, const ImportOptions& options) {
  std::vector<std::string> texts, flags;
  std::vector<std::string> dimensions;
  for (const auto* input : open) {
    texts.push_back(absl::StrCat(open.size() == 1 ? "input '" : "'", input->name(),
                                 open.size() == 1 ? "' has the dynamic shape " : "' ",
                                 DeclaredShape(*input)));
    flags.push_back(
        absl::StrCat("--shape ", input->name(), "=", ShapeText(Proposal(*input, options))));
    const auto& shape = input->type().tensor_type().shape();
    for (int i = 0; i < shape.dim_size(); ++i) {
      const std::string& name = shape.dim(i).dim_param();
      if (IsFixed(shape.dim(i)) || name.empty()) continue;
      const std::string flag =
          absl::StrCat("--shape ", name, "=", LikelyExtent(shape.dim(i), i, shape.dim_size()));
      if (std::find(dimensions.begin(), dimensions.end(), flag) == dimensions.end())
        dimensions.push_back(flag);
    }
  }
  return BadInput(absl::StrCat(
      open.size() == 1 ? "" : "inputs have dynamic shapes: ", absl::StrJoin(texts, ", "),
      open.size() == 1 ? "; fix it with " : "; fix them with ", absl::StrJoin(flags, " "),
      dimensions.empty() ? "" : ", or by dimension with ", absl::StrJoin(dimensions, " ")));
}

}  // namespace

std::string OpenRows(const Model& model, const ImportOptions& options) {
  if (!IsPipeline(model)) return "";
  std::set<std::string> initialized, rows;
  for (const auto& t : model.graph().initializer()) initialized.insert(t.name());
  for (const auto& input : model.graph().input()) {
    if (initialized.count(input.name())) continue;
    const auto& dims = input.type().tensor_type().shape().dim();
    if (dims.empty() || IsFixed(dims[0]) || options.shapes.count(input.name())) return "";
    if (!std::all_of(dims.begin() + 1, dims.end(), IsFixed)) return "";
    rows.insert(dims[0].dim_param());
  }
  if (rows.size() != 1) return "";
  const auto given = options.shapes.find(*rows.begin());
  const bool fixed = given != options.shapes.end() && given->second.size() == 1;
  return fixed ? "" : *rows.begin();
}

std::map<std::string, Shape> ProposeShapes(const Model& model, const ImportOptions& options) {
  std::set<std::string> initialized;
  for (const auto& t : model.graph().initializer()) initialized.insert(t.name());
  std::map<std::string, Shape> shapes;
  for (const auto& input : model.graph().input()) {
    if (!initialized.count(input.name()) && input.type().has_tensor_type() &&
        !Given(input, options))
      shapes[input.name()] = Proposal(input, options);
  }
  return shapes;
}

std::string DeclaredShape(const onnx::ValueInfoProto& info) {
  const auto& type = info.type().tensor_type();
  if (!type.has_shape()) return "[unknown rank]";
  std::vector<std::string> dims;
  for (const Dimension& d : type.shape().dim()) dims.push_back(DimText(d));
  return absl::StrCat("[", absl::StrJoin(dims, ","), "]");
}

bool FitsDeclaration(const Shape& shape, const onnx::ValueInfoProto& info) {
  const auto& type = info.type().tensor_type();
  if (!type.has_shape()) return true;
  if (type.shape().dim_size() != static_cast<int>(shape.size())) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    const Dimension& d = type.shape().dim(static_cast<int>(i));
    if (IsFixed(d) && d.dim_value() != 0 && d.dim_value() != shape[i]) return false;
  }
  return true;
}

absl::Status FixShapes(Model& model, const ImportOptions& options) {
  std::set<std::string> initialized;
  for (const auto& t : model.graph().initializer()) initialized.insert(t.name());
  std::vector<const onnx::ValueInfoProto*> named;
  std::vector<onnx::ValueInfoProto*> inputs, open;
  for (auto& input : *model.mutable_graph().mutable_input()) {
    const bool is_input = !initialized.count(input.name());
    if (is_input) inputs.push_back(&input);
    if (is_input || options.input_values.count(input.name())) named.push_back(&input);
  }
  if (absl::Status s = CheckNames(named, options); !s.ok()) return s;
  for (auto* input : inputs) {
    auto* type = input->mutable_type()->mutable_tensor_type();
    const std::optional<Shape> shape = Given(*input, options);
    if (!shape) {
      open.push_back(input);
      continue;
    }
    const bool possible =
        std::all_of(shape->begin(), shape->end(), [](int64_t d) { return d >= 0; });
    if (!possible || !FitsDeclaration(*shape, *input)) {
      return BadInput(absl::StrCat("shape ", ShapeText(*shape), " does not fit input '",
                                   input->name(), "', which the model declares as ",
                                   DeclaredShape(*input)));
    }
    type->mutable_shape()->clear_dim();
    for (int64_t d : *shape) type->mutable_shape()->add_dim()->set_dim_value(d);
  }
  return open.empty() ? absl::OkStatus() : Refuse(open, options);
}

}  // namespace heddle::graph
