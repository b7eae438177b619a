#include "compiler/onnx/model.h"

#include <algorithm>
#include <climits>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/standard/standard.h"

namespace heddle::graph {
namespace {

absl::Status Refuse(const std::string& what) { return absl::InvalidArgumentError(what); }

}  // namespace

absl::StatusOr<Model> Model::Parse(std::string_view bytes) {
  if (bytes.empty()) return Refuse("the model is empty");
  if (bytes.size() > INT_MAX)
    return Refuse("the model is larger than 2 GiB, which ONNX files cannot be");
  Model model;
  if (!model.proto_.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Refuse(absl::StrCat("not an ONNX model, or a truncated one (", bytes.size(), " bytes)"));
  }
  const onnx::ModelProto& m = model.proto_;
  if (!m.has_ir_version() || !m.has_graph() || m.graph().output_size() == 0)
    return Refuse(absl::StrCat("not an ONNX model (", bytes.size(), " bytes without a graph)"));
  return model;
}

int Model::Opset(std::string_view domain) const {
  for (const auto& opset : proto_.opset_import()) {
    if (opset.domain() == domain || (onnx::IsStandard(domain) && onnx::IsStandard(opset.domain())))
      return static_cast<int>(std::clamp<int64_t>(opset.version(), 0, INT_MAX));
  }
  // The first versions of the format had no opsets.
  constexpr int64_t kFirstWithOpsets = 3;
  return onnx::IsStandard(domain) && proto_.ir_version() < kFirstWithOpsets ? 1 : 0;
}

}  // namespace heddle::graph
