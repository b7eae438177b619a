#include "compiler/onnx/external.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace heddle::graph {
namespace {

class Loader {
 public:
  explicit Loader(const ExternalLoader& load) : load_(load) {}

  absl::Status TakeGraph(onnx::GraphProto& graph, ElementsByName* elements) {
    for (onnx::TensorProto& t : *graph.mutable_initializer()) {
      if (elements == nullptr || !IsExternal(t)) {
        HEDDLE_RETURN_IF_ERROR(Copy(t));
      } else {
        HEDDLE_ASSIGN_OR_RETURN((*elements)[t.name()], Take(t));
      }
    }
    for (onnx::SparseTensorProto& s : *graph.mutable_sparse_initializer())
      HEDDLE_RETURN_IF_ERROR(Copy(s));
    for (onnx::NodeProto& node : *graph.mutable_node()) HEDDLE_RETURN_IF_ERROR(Copy(node));
    return absl::OkStatus();
  }

  absl::Status Copy(onnx::NodeProto& node) {
    for (onnx::AttributeProto& a : *node.mutable_attribute()) HEDDLE_RETURN_IF_ERROR(Copy(a));
    return absl::OkStatus();
  }

  absl::Status Copy(onnx::AttributeProto& a) {
    if (a.has_t()) HEDDLE_RETURN_IF_ERROR(Copy(*a.mutable_t()));
    for (onnx::TensorProto& t : *a.mutable_tensors()) HEDDLE_RETURN_IF_ERROR(Copy(t));
    if (a.has_sparse_tensor()) HEDDLE_RETURN_IF_ERROR(Copy(*a.mutable_sparse_tensor()));
    for (onnx::SparseTensorProto& s : *a.mutable_sparse_tensors()) HEDDLE_RETURN_IF_ERROR(Copy(s));
    if (a.has_g()) HEDDLE_RETURN_IF_ERROR(TakeGraph(*a.mutable_g(), nullptr));
    for (onnx::GraphProto& g : *a.mutable_graphs()) HEDDLE_RETURN_IF_ERROR(TakeGraph(g, nullptr));
    return absl::OkStatus();
  }

 private:
  absl::Status Copy(onnx::SparseTensorProto& s) {
    if (s.has_values()) HEDDLE_RETURN_IF_ERROR(Copy(*s.mutable_values()));
    if (s.has_indices()) HEDDLE_RETURN_IF_ERROR(Copy(*s.mutable_indices()));
    return absl::OkStatus();
  }

  absl::Status Copy(onnx::TensorProto& t) {
    if (!IsExternal(t)) return absl::OkStatus();
    HEDDLE_ASSIGN_OR_RETURN(const SharedBytes bytes, Take(t));
    t.set_raw_data(bytes->data(), bytes->size());
    return absl::OkStatus();
  }

  absl::StatusOr<SharedBytes> Take(onnx::TensorProto& t) {
    onnx::TensorPlace place{.tensor = t.name()};
    for (const onnx::StringStringEntryProto& entry : t.external_data())
      HEDDLE_RETURN_IF_ERROR(onnx::SetPlace(entry.key(), entry.value(), &place));
    if (place.location.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", t.name(), "' has external data without a location"));
    }
    t.clear_external_data();
    t.clear_data_location();
    return load_(place);
  }

  const ExternalLoader& load_;
};

}  // namespace

bool IsExternal(const onnx::TensorProto& t) {
  return t.data_location() == onnx::TensorProto::EXTERNAL || t.external_data_size() != 0;
}

absl::StatusOr<ElementsByName> TakeExternal(Model& model, const ExternalLoader& load) {
  ElementsByName elements;
  Loader loader(load);
  HEDDLE_RETURN_IF_ERROR(loader.TakeGraph(model.mutable_graph(), &elements));
  for (onnx::FunctionProto& f : model.mutable_functions()) {
    for (onnx::NodeProto& node : *f.mutable_node()) HEDDLE_RETURN_IF_ERROR(loader.Copy(node));
    for (onnx::AttributeProto& a : *f.mutable_attribute_proto())
      HEDDLE_RETURN_IF_ERROR(loader.Copy(a));
  }
  return elements;
}

}  // namespace heddle::graph
