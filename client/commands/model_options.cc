#include "client/commands/model_options.h"
#include "base/status_macros.h"

#include <fmt/format.h>

#include <algorithm>

namespace heddle::client {
namespace {

absl::Status ParseShape(const std::string& text, v1::ModelOptions::Shape* shape) {
  const absl::Status bad = absl::InvalidArgumentError(
      fmt::format("'{}' is not a shape; write --shape name=1x3x224x224", text));
  const size_t equals = text.find_last_of('=');  // names may hold '='
  if (equals == std::string::npos || equals == 0) return bad;
  shape->set_input(text.substr(0, equals));
  const char separator = text.find(',', equals) == std::string::npos ? 'x' : ',';
  for (size_t start = equals + 1; start <= text.size();) {
    const size_t end = std::min(text.find(separator, start), text.size());
    const std::string word = text.substr(start, end - start);
    if (word.empty() || word.size() > 12 ||
        word.find_first_not_of("0123456789") != std::string::npos)
      return bad;
    const int64_t extent = std::stoll(word);
    shape->add_extents(extent);
    start = end + 1;
  }
  return shape->extents().empty() ? bad : absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::ModelOptions> MakeModelOptions(const ModelFlags& flags) {
  v1::ModelOptions options;
  for (const std::string& text : flags.shapes) {
    HEDDLE_RETURN_IF_ERROR(ParseShape(text, options.add_shapes()));
  }
  for (const std::string& text : flags.input_values) {
    const size_t equals = text.find_last_of('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      return absl::InvalidArgumentError(
          fmt::format("'{}' is not an input's value; write --input-value name=16000", text));
    }
    v1::ModelOptions::InputValue* value = options.add_input_values();
    value->set_input(text.substr(0, equals));
    value->set_value(text.substr(equals + 1));
  }
  const std::vector<std::string> known = graph::PassNames();
  for (const std::string& pass : flags.disabled_passes) {
    if (std::find(known.begin(), known.end(), pass) == known.end()) {
      return absl::InvalidArgumentError(
          fmt::format("unknown pass '{}'; the passes are {}", pass, fmt::join(known, ", ")));
    }
    options.add_disabled_passes(pass);
  }
  return options;
}

heddle::ModelOptions FromProto(const v1::ModelOptions& options, const ModelFile* model) {
  heddle::ModelOptions result;
  if (model != nullptr) result.import.external = model->Loader();
  for (const v1::ModelOptions::Shape& shape : options.shapes()) {
    result.import.shapes[shape.input()] = {shape.extents().begin(), shape.extents().end()};
  }
  for (const v1::ModelOptions::InputValue& value : options.input_values())
    result.import.input_values[value.input()] = value.value();
  result.passes.disabled = {options.disabled_passes().begin(), options.disabled_passes().end()};
  return result;
}

}  // namespace heddle::client
