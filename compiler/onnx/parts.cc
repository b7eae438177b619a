// Works on the encoded file: a parsed one would hold all elements in memory, and no message of more
// than 2 GiB can be parsed.
#include "compiler/onnx/parts.h"

#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace heddle::onnx {
namespace {

constexpr std::string_view kPrefix = "sha256:";
constexpr int kMaxDepth = 100;  // as Protobuf's own parser
constexpr int kExternal = 1;    // TensorProto.DataLocation

// The messages on the way to a tensor.
enum class Kind { kModel, kGraph, kNode, kAttribute, kFunction, kSparse, kTensor };

// The fields that lead to tensors, by their numbers in onnx_format.proto.
std::optional<Kind> FieldKind(Kind kind, uint64_t field) {
  switch (kind) {
    case Kind::kModel:
      if (field == 7) return Kind::kGraph;
      if (field == 25) return Kind::kFunction;
      break;
    case Kind::kGraph:
      if (field == 1) return Kind::kNode;
      if (field == 5) return Kind::kTensor;
      if (field == 15) return Kind::kSparse;
      break;
    case Kind::kNode:
      if (field == 5) return Kind::kAttribute;
      break;
    case Kind::kAttribute:
      if (field == 5 || field == 10) return Kind::kTensor;
      if (field == 6 || field == 11) return Kind::kGraph;
      if (field == 22 || field == 23) return Kind::kSparse;
      break;
    case Kind::kFunction:
      if (field == 7) return Kind::kNode;
      if (field == 11) return Kind::kAttribute;
      break;
    case Kind::kSparse:
      if (field == 1 || field == 2) return Kind::kTensor;
      break;
    case Kind::kTensor:
      break;
  }
  return std::nullopt;
}

// Fields of TensorProto.
constexpr uint64_t kName = 8, kRawData = 9, kExternalData = 13, kDataLocation = 14;

struct Field {
  uint64_t number = 0;
  bool is_bytes = false;
  uint64_t value = 0;        // of a varint
  std::string_view bytes;    // of a field with a length
  std::string_view encoded;  // the whole field
};

// Cuts an encoded message into its fields.
class Reader {
 public:
  explicit Reader(std::string_view message) : rest_(message) {}
  bool done() const { return rest_.empty(); }

  // False: the message is malformed.
  bool Next(Field* field) {
    const std::string_view begin = rest_;
    uint64_t key = 0;
    if (!Varint(&key)) return false;
    *field = {};
    field->number = key >> 3;
    uint64_t length = 0;
    switch (key & 7) {
      case 0:
        if (!Varint(&field->value)) return false;
        break;
      case 1:
        length = 8;
        break;
      case 2:
        field->is_bytes = true;
        if (!Varint(&length)) return false;
        break;
      case 5:
        length = 4;
        break;
      default:
        return false;
    }
    if (field->number == 0 || length > rest_.size()) return false;
    field->bytes = rest_.substr(0, length);
    rest_.remove_prefix(length);
    field->encoded = begin.substr(0, begin.size() - rest_.size());
    return true;
  }

 private:
  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      *value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  std::string_view rest_;
};

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

void AppendBytes(uint64_t field, std::string_view bytes, std::string* out) {
  AppendVarint(field << 3 | 2, out);
  AppendVarint(bytes.size(), out);
  out->append(bytes);
}

void AppendEntry(std::string_view key, std::string_view value, std::string* out) {
  std::string entry;
  AppendBytes(1, key, &entry);
  AppendBytes(2, value, &entry);
  AppendBytes(kExternalData, entry, out);
}

class Detacher {
 public:
  Detacher(std::string_view model,
           absl::FunctionRef<absl::StatusOr<PlacedTensor>(const TensorPlace&)> place)
      : model_(model), place_(place) {}

  // Appends the small form of an encoded message.
  absl::Status Message(Kind kind, std::string_view message, int depth, std::string* out) {
    if (depth > kMaxDepth) return Malformed();
    if (kind == Kind::kTensor) return Tensor(message, out);
    Field field;
    for (Reader reader(message); !reader.done();) {
      if (!reader.Next(&field)) return Malformed();
      const std::optional<Kind> inner = FieldKind(kind, field.number);
      if (!inner || !field.is_bytes) {
        out->append(field.encoded);
        continue;
      }
      std::string small;
      HEDDLE_RETURN_IF_ERROR(Message(*inner, field.bytes, depth + 1, &small));
      AppendBytes(field.number, small, out);
    }
    return absl::OkStatus();
  }

  absl::Status Malformed() const {
    return absl::InvalidArgumentError(
        absl::StrCat("not an ONNX model, or a truncated one (", model_.size(),
                     " bytes); ONNX, JSON and UBJSON of XGBoost, and text of LightGBM are read"));
  }

 private:
  absl::Status Tensor(std::string_view tensor, std::string* out) {
    TensorPlace place;
    std::optional<std::string_view> raw;
    std::vector<std::pair<std::string, std::string>> entries;
    bool external = false;
    Field field;
    for (Reader reader(tensor); !reader.done();) {
      if (!reader.Next(&field)) return Malformed();
      if (field.number == kName) place.tensor = field.bytes;
      if (field.number == kRawData) raw = field.bytes;
      if (field.number == kDataLocation) external = field.value == kExternal;
      if (field.number == kExternalData) {
        HEDDLE_RETURN_IF_ERROR(Entry(field.bytes, &entries.emplace_back()));
      }
    }
    if (external || !entries.empty()) {
      for (const auto& [key, value] : entries) HEDDLE_RETURN_IF_ERROR(SetPlace(key, value, &place));
      if (place.location.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor '", place.tensor, "' has external data without a location"));
      }
    } else if (raw && static_cast<int64_t>(raw->size()) >= kPartBytes) {
      place.offset = raw->data() - model_.data();
      place.length = static_cast<int64_t>(raw->size());
    } else {
      out->append(tensor);
      return absl::OkStatus();
    }
    HEDDLE_ASSIGN_OR_RETURN(const PlacedTensor placed, place_(place));
    for (Reader reader(tensor); !reader.done();) {
      (void)reader.Next(&field);
      if (field.number != kRawData && field.number != kDataLocation &&
          field.number != kExternalData)
        out->append(field.encoded);
    }
    if (placed.digest.empty()) {
      AppendBytes(kRawData, placed.elements, out);
      return absl::OkStatus();
    }
    AppendEntry("location", absl::StrCat(std::string(kPrefix), placed.digest), out);
    AppendEntry("length", absl::StrCat(placed.bytes), out);
    AppendVarint(kDataLocation << 3, out);
    AppendVarint(kExternal, out);
    return absl::OkStatus();
  }

  absl::Status Entry(std::string_view message, std::pair<std::string, std::string>* entry) const {
    Field field;
    for (Reader reader(message); !reader.done();) {
      if (!reader.Next(&field)) return Malformed();
      if (field.number == 1) entry->first = field.bytes;
      if (field.number == 2) entry->second = field.bytes;
    }
    return absl::OkStatus();
  }

  const std::string_view model_;
  const absl::FunctionRef<absl::StatusOr<PlacedTensor>(const TensorPlace&)> place_;
};

}  // namespace

absl::StatusOr<std::string> DetachParts(
    std::string_view model,
    absl::FunctionRef<absl::StatusOr<PlacedTensor>(const TensorPlace&)> place) {
  Detacher detacher(model, place);
  std::string small;
  HEDDLE_RETURN_IF_ERROR(detacher.Message(Kind::kModel, model, 0, &small));
  return small;
}

std::string PartDigest(std::string_view location) {
  if (location.substr(0, kPrefix.size()) != kPrefix) return "";
  return std::string(location.substr(kPrefix.size()));
}

absl::Status SetPlace(std::string_view key, std::string_view value, TensorPlace* place) {
  if (key == "location") place->location = value;
  if (key != "offset" && key != "length") return absl::OkStatus();
  int64_t number = 0;
  if (!absl::SimpleAtoi(absl::string_view(value.data(), value.size()), &number) || number < 0) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", place->tensor, "' has the ",
                                                   std::string(key), " '", std::string(value),
                                                   "', which is no number from 0 on"));
  }
  (key == "offset" ? place->offset : place->length) = number;
  return absl::OkStatus();
}

}  // namespace heddle::onnx
