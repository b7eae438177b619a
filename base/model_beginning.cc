#include "base/model_beginning.h"

#include <algorithm>

namespace heddle {

absl::Status CheckModelBeginning(std::string_view bytes) {
  if (BeginsLikeModule(bytes)) {
    return absl::InvalidArgumentError(
        "it is a module, which is tuned already: `heddle run` runs it; to tune again, give the "
        "ONNX file that it was made from");
  }
  bytes = bytes.substr(0, kModelBeginning);
  if (bytes.starts_with('{') || bytes.starts_with("tree")) return absl::OkStatus();
  // An ONNX file begins with numbers of fields and lengths, some of which are control characters.
  const bool text = !bytes.empty() && std::all_of(bytes.begin(), bytes.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 || c == '\t' || c == '\n' || c == '\r';
  });
  if (!text) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "it is a text file; give an ONNX file, or a model of XGBoost (.json, .ubj) or LightGBM "
      "(.txt)");
}

}  // namespace heddle
