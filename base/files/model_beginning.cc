#include "base/files/model_beginning.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace heddle {
namespace {

// Files of models that are not read, by their first bytes, and the way to one that is.
struct OtherFormat {
  std::string_view begin;
  const char* what;
  const char* way_out;
};
constexpr const char* kSaveXgboost =
    "save the model with save_model('model.json') of XGBoost 1.6 or later";
constexpr OtherFormat kOtherFormats[] = {
    {"\x80", "a Python pickle (pickle, joblib)",
     "save a model of XGBoost or LightGBM with its save_model, and convert one of scikit-learn "
     "with "
     "skl2onnx"},
    {"\x78\x9c", "a compressed file, as joblib writes it",
     "save a model of XGBoost or LightGBM with its save_model, and convert one of scikit-learn "
     "with "
     "skl2onnx"},
    {"\x1f\x8b", "a file compressed by gzip", "unpack it with gunzip"},
    {"CBM1", "a model of CatBoost", "save it with save_model(.., format='onnx')"},
    {"binf", "a binary model of an old XGBoost", kSaveXgboost},
    {"booster[0]", "a dump of XGBoost's trees, which lacks what else the model is made of",
     kSaveXgboost},
    {"[\n  { \"nodeid\"", "a dump of XGBoost's trees, which lacks what else the model is made of",
     kSaveXgboost},
    {"{\"name\":", "a dump of a LightGBM model as JSON",
     "save the model as text, with save_model('model.txt')"},
    {"PK\x03\x04", "a zip archive, as PyTorch and Keras write models",
     "export the model to ONNX, of PyTorch with torch.onnx.export"},
    {"\x89HDF", "an HDF5 file, as Keras writes models", "convert the model to ONNX with tf2onnx"},
    {"<?xml", "an XML file, such as PMML", "export the model to ONNX from where it was trained"},
};

// Where a file of TensorFlow Lite has its mark, after an offset.
constexpr size_t kLiteMark = 4;
constexpr OtherFormat kLite = {"TFL3", "a model of TensorFlow Lite",
                               "convert the model to ONNX with tf2onnx"};

// The format of a file that is not read; null: it is none of those.
const OtherFormat* FindOtherFormat(std::string_view bytes) {
  if (bytes.size() > kLiteMark && bytes.substr(kLiteMark).starts_with(kLite.begin)) return &kLite;
  for (const OtherFormat& format : kOtherFormats) {
    if (bytes.starts_with(format.begin)) return &format;
  }
  return nullptr;
}

}  // namespace

absl::Status CheckModelBeginning(std::string_view bytes) {
  if (BeginsLikeModule(bytes)) {
    return absl::InvalidArgumentError(
        "it is a module, which is tuned already: `heddle run` runs it; to tune again, give the "
        "ONNX file that it was made from");
  }
  if (const OtherFormat* other = FindOtherFormat(bytes); other != nullptr)
    return absl::InvalidArgumentError(absl::StrCat("it is ", other->what, "; ", other->way_out));
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
