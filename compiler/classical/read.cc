#include "compiler/classical/read.h"

#include "absl/strings/str_cat.h"
#include "compiler/classical/document.h"
#include "compiler/classical/lightgbm.h"
#include "compiler/classical/xgboost.h"

namespace heddle::classical {
namespace {

using std::string_view_literals::operator""sv;

// The names that an XGBoost file's object may begin with. A memory snapshot begins with one of the last
// two; the reader tells what to do about it.
constexpr std::string_view kFirstNames[] = {"learner", "version", "Config", "Model"};

bool IsXgboost(std::string_view bytes) {
  // A name of UBJSON stands behind its length: an L and eight bytes, of which only the last counts.
  constexpr std::string_view kUbjson = "{L\0\0\0\0\0\0\0"sv;
  for (std::string_view name : kFirstNames) {
    if (BeginsLikeJson(bytes)) {
      const std::string_view quoted = bytes.substr(bytes.find_first_of("\"}"));
      if (quoted.starts_with('"') && quoted.substr(1).starts_with(name) &&
          quoted.substr(1 + name.size()).starts_with('"'))
        return true;
    } else if (bytes.starts_with(kUbjson) && bytes.size() > kUbjson.size()) {
      const auto length = static_cast<unsigned char>(bytes[kUbjson.size()]);
      if (length == name.size() && bytes.substr(kUbjson.size() + 1).starts_with(name)) return true;
    }
  }
  return false;
}

bool IsLightgbm(std::string_view bytes) {
  return bytes.starts_with("tree\n") || bytes.starts_with("tree\r\n");
}

}  // namespace

bool IsForestFile(std::string_view bytes) { return IsXgboost(bytes) || IsLightgbm(bytes); }

absl::StatusOr<Forest> ReadForest(std::string_view bytes) {
  if (!IsForestFile(bytes)) {
    return absl::InvalidArgumentError(
        "neither XGBoost's JSON or UBJSON nor LightGBM's text: save the model with save_model of "
        "XGBoost 1.6 or later, as .json or .ubj, or of LightGBM 2.2 or later");
  }
  if (bytes.size() > kMostFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model has ", bytes.size(), " bytes; ", kMostFileBytes, " are the most"));
  }
  return IsXgboost(bytes) ? ReadXgboost(bytes) : ReadLightgbm(bytes);
}

}  // namespace heddle::classical
