#include "client/modules/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "compiler/ir/arithmetic.h"

namespace heddle::client {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMostHeaderBytes = size_t{1} << 16;  // NumPy itself reads less
constexpr size_t kMostRank = 64;                      // as NumPy's
constexpr int64_t kMostElements = int64_t{1} << 48;
constexpr size_t kShownBytes = 16;  // of a type that is not known

struct ElementType {
  const char* descr;
  const char* dtype;
  int64_t bytes;
};
constexpr ElementType kElementTypes[] = {
    {"<f4", "f32", 4}, {"<f8", "f64", 8}, {"<i4", "i32", 4},  {"<i8", "i64", 8},
    {"|i1", "i8", 1},  {"|u1", "u8", 1},  {"|b1", "bool", 1}, {"<f2", "f16", 2},
    {"<i2", "i16", 2}, {"<u2", "u16", 2}, {"<u4", "u32", 4},  {"<u8", "u64", 8},
};

absl::Status Invalid(const std::string& what) { return absl::InvalidArgumentError(what); }

// What follows a key and blanks in the header, which is a dictionary of Python; empty if the key is not there.
absl::string_view ValueOf(absl::string_view header, absl::string_view key) {
  const std::string quoted = absl::StrCat("'", key, "':");
  const size_t at = header.find(quoted);
  if (at == absl::string_view::npos) return {};
  return absl::StripLeadingAsciiWhitespace(header.substr(at + quoted.size()));
}

// Up to `end`, which follows; nullopt if it does not, or if the text does not begin with `begin`.
std::optional<absl::string_view> Between(absl::string_view text, char begin, char end) {
  if (text.empty() || text[0] != begin) return std::nullopt;
  const size_t size = text.substr(1).find(end);
  if (size == absl::string_view::npos) return std::nullopt;
  return text.substr(1, size);
}

// NumPy has no bf16. Its values are written as f32, which represents all of them.
NpyArray Widened(const NpyArray& array) {
  NpyArray wide{"f32", array.shape, {}};
  for (size_t i = 0; i + 1 < array.bytes.size(); i += 2) {
    uint16_t bits;
    std::memcpy(&bits, array.bytes.data() + i, sizeof bits);
    const float value = ir::HalfValue(bits, ir::DType::kBF16);
    wide.bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return wide;
}

}  // namespace

absl::StatusOr<NpyArray> ParseNpy(std::string_view bytes) {
  if (bytes.size() < 10 || bytes.substr(0, 6) != kMagic)
    return Invalid("not an .npy file (numpy.save writes one)");
  const int major = static_cast<unsigned char>(bytes[6]);
  size_t length = static_cast<unsigned char>(bytes[8]) | static_cast<unsigned char>(bytes[9]) << 8;
  size_t start = 10;
  if (major >= 2) {
    if (bytes.size() < 12) return Invalid("the .npy file is truncated");
    length |= static_cast<size_t>(static_cast<unsigned char>(bytes[10])) << 16 |
              static_cast<size_t>(static_cast<unsigned char>(bytes[11])) << 24;
    start = 12;
  }
  if (bytes.size() < start + length) return Invalid("the .npy file is truncated");
  if (length > kMostHeaderBytes)
    return Invalid(fmt::format("the .npy header has more than {} bytes", kMostHeaderBytes));
  const absl::string_view header(bytes.data() + start, length);
  const std::optional<absl::string_view> descr = Between(ValueOf(header, "descr"), '\'', '\'');
  if (!descr) return Invalid("the .npy header has no 'descr'");
  const ElementType* type = nullptr;
  for (const ElementType& t : kElementTypes) {
    if (*descr == t.descr) type = &t;
  }
  if (type == nullptr) {
    return Invalid(fmt::format(
        "element type '{}' is not supported; save the array as float32 (x.astype('float32'))",
        absl::CHexEscape(descr->substr(0, kShownBytes))));
  }
  if (!absl::StartsWith(ValueOf(header, "fortran_order"), "False")) {
    return Invalid("the array is in Fortran order; save numpy.ascontiguousarray(x)");
  }
  const std::optional<absl::string_view> extents = Between(ValueOf(header, "shape"), '(', ')');
  if (!extents) return Invalid("the .npy header has no 'shape'");
  NpyArray array;
  array.dtype = type->dtype;
  int64_t elements = 1;
  for (absl::string_view word : absl::StrSplit(*extents, ',', absl::SkipWhitespace())) {
    word = absl::StripSuffix(absl::StripAsciiWhitespace(word), "L");  // as Python 2 wrote them
    int64_t extent = 0;
    if (!absl::SimpleAtoi(word, &extent) || extent < 0 ||
        extent > kMostElements / std::max<int64_t>(elements, 1))
      return Invalid(fmt::format("the .npy header has the extent '{}'",
                                 absl::CHexEscape(word.substr(0, kShownBytes))));
    if (array.shape.size() == kMostRank)
      return Invalid(fmt::format("the array has more than {} dimensions", kMostRank));
    array.shape.push_back(extent);
    elements *= extent;
  }
  array.bytes = std::string(bytes.substr(start + length));
  if (static_cast<int64_t>(array.bytes.size()) != elements * type->bytes) {
    return Invalid(fmt::format("the .npy file holds {} bytes of data where its shape needs {}",
                               array.bytes.size(), elements * type->bytes));
  }
  return array;
}

std::string SerializeNpy(const NpyArray& array) {
  if (array.dtype == "bf16") return SerializeNpy(Widened(array));
  std::string descr = "<f4";
  for (const ElementType& t : kElementTypes) {
    if (array.dtype == t.dtype) descr = t.descr;
  }
  std::string shape;
  for (int64_t extent : array.shape) shape += fmt::format("{},", extent);
  if (array.shape.size() > 1) shape.pop_back();
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::string bytes(kMagic);
  bytes += '\x01';
  bytes += '\x00';
  bytes += static_cast<char>(header.size() & 255);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header + array.bytes;
}

std::string NpyFileName(std::string_view name, int index) {
  constexpr std::string_view kUnsafe = "%/\\:*?\"<>|";
  constexpr size_t kLongestName = 255;
  std::string safe;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    const bool leading = i == 0 && (byte == '.' || byte == '-');
    if (leading || byte < 0x20 || byte == 0x7f || kUnsafe.find(name[i]) != std::string_view::npos)
      safe += fmt::format("%{:02X}", byte);
    else
      safe += name[i];
  }
  safe += ".npy";
  return safe.size() <= kLongestName ? safe : fmt::format("%output-{}.npy", index);
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const std::string why = std::strerror(errno);
    if (errno == ENOENT) return absl::NotFoundError(fmt::format("cannot read '{}': {}", path, why));
    return Invalid(fmt::format("cannot read '{}': {}", path, why));
  }
  std::error_code ignored;  // reading a directory would throw
  if (std::filesystem::is_directory(path, ignored))
    return Invalid(fmt::format("cannot read '{}': it is a directory", path));
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (file.bad()) return Invalid(fmt::format("cannot read '{}' to its end", path));
  return bytes;
}

absl::StatusOr<NpyArray> ReadNpyFile(const std::string& path) {
  HEDDLE_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path));
  absl::StatusOr<NpyArray> array = ParseNpy(bytes);
  if (!array.ok()) return Invalid(path + ": " + std::string(array.status().message()));
  return array;
}

}  // namespace heddle::client
