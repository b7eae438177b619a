// Writes and reads the file around the manifest. The manifest's text is in manifest_json.cc.
#include "compiler/runtime/module.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/alignment.h"
#include "base/files/mapped_file.h"
#include "base/files/model_beginning.h"
#include "base/files/trailer.h"
#include "base/status_macros.h"
#include "compiler/runtime/manifest_json.h"
#include "compiler/runtime/module_check.h"
#include "compiler/runtime/module_head.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace heddle::runtime {
namespace {

constexpr std::string_view kMagic = "HEDDLE02", kPackedMagic = "HEDDLE03",
                           kBlocksMagic = "HEDDLE04";
constexpr size_t kHeaderBytes = 24;

uint64_t Checksum(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string ChecksumText(std::string_view bytes) {
  return absl::StrCat(absl::Hex(Checksum(bytes), absl::kZeroPad16));
}

void AppendU64(uint64_t value, std::string* out) {
  for (int i = 0; i < 8; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t ReadU64(std::string_view bytes) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return value;
}

// ---- Reading ----

absl::Status Truncated(uint64_t expected, size_t found) {
  return absl::DataLossError(
      absl::StrCat("module is truncated: ", expected, " bytes expected, ", found, " found"));
}

// Checks the fixed header and returns the text of the manifest.
absl::StatusOr<std::string_view> ManifestOf(std::string_view bytes) {
  const std::string_view family = kMagic.substr(0, 6);
  if (bytes.substr(0, family.size()) != family.substr(0, bytes.size()) || bytes.empty()) {
    return absl::InvalidArgumentError("not a Heddle module");
  }
  if (bytes.size() < kHeaderBytes) return Truncated(kHeaderBytes, bytes.size());
  if (bytes.substr(0, 8) != kMagic && bytes.substr(0, 8) != kPackedMagic &&
      bytes.substr(0, 8) != kBlocksMagic) {
    const std::string_view version = bytes.substr(6, 2);
    const bool digits = std::isdigit(static_cast<unsigned char>(version[0])) &&
                        std::isdigit(static_cast<unsigned char>(version[1]));
    if (!digits) return absl::InvalidArgumentError("not a Heddle module");
    return absl::InvalidArgumentError(absl::StrCat(
        "module has format version ", std::string(version), ", this runtime reads versions ",
        std::string(kMagic.substr(6)), " to ", std::string(kBlocksMagic.substr(6)),
        ": compile the model again or use a newer runtime"));
  }
  const uint64_t length = ReadU64(bytes.substr(8));
  if (length > bytes.size() - kHeaderBytes) {
    // A damaged length may have any value, so the sum must not wrap.
    return Truncated(length < (uint64_t{1} << 60) ? kHeaderBytes + length : length, bytes.size());
  }
  const std::string_view text = bytes.substr(kHeaderBytes, length);
  if (Checksum(text) != ReadU64(bytes.substr(16))) {
    return absl::DataLossError("module is corrupt: checksum of the manifest does not match");
  }
  return text;
}

// The bytes of section `name`. Raises *end to its end.
absl::StatusOr<std::string_view> ReadSection(const std::vector<Section>& sections,
                                             const std::string& name, std::string_view bytes,
                                             size_t start, size_t* end) {
  for (const Section& section : sections) {
    if (section.name != name) continue;
    if (section.offset < 0 || section.size < 0 || section.offset % kBufferAlignment != 0 ||
        section.offset > INT64_MAX / 4 || section.size > INT64_MAX / 4) {
      return absl::InvalidArgumentError(
          absl::StrCat("module manifest is inconsistent: place of section '", name, "'"));
    }
    const uint64_t first = start + static_cast<uint64_t>(section.offset);
    const uint64_t last = first + static_cast<uint64_t>(section.size);
    if (last > bytes.size()) return Truncated(last, bytes.size());
    const std::string_view data = bytes.substr(first, section.size);
    if (ChecksumText(data) != section.xxh3) {
      return absl::DataLossError(
          absl::StrCat("module is corrupt: checksum of section '", name, "' does not match"));
    }
    *end = std::max<size_t>(*end, last);
    return data;
  }
  return absl::InvalidArgumentError(absl::StrCat("module has no section '", name, "'"));
}

// `keep` makes the module's parameters of their bytes in the file.
absl::StatusOr<Module> Parse(std::string_view file,
                             const std::function<SharedBytes(std::string_view)>& keep) {
  const std::string_view bytes = SplitTrailer(file).content;
  HEDDLE_ASSIGN_OR_RETURN(std::string_view text, ManifestOf(bytes));
  Module module;
  std::vector<Section> sections;
  HEDDLE_RETURN_IF_ERROR(ParseManifest(text, &module.manifest, &sections));
  const size_t start = AlignUp(kHeaderBytes + text.size());
  size_t end = start;
  HEDDLE_ASSIGN_OR_RETURN(module.code, ReadSection(sections, "code", bytes, start, &end));
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view params,
                          ReadSection(sections, "params", bytes, start, &end));
  std::string_view packed;
  if (!module.manifest.packed.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(packed, ReadSection(sections, "packed", bytes, start, &end));
  }
  if (end != bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("module ends at byte ", end, ", but the file has ", bytes.size()));
  }
  if (module.manifest.packed.empty()) {
    module.params = keep(params);
  } else {
    HEDDLE_ASSIGN_OR_RETURN(module.params, UnpackParams(module.manifest.packed, params, packed));
  }
  HEDDLE_RETURN_IF_ERROR(CheckModule(module));
  return module;
}

// Calls `take` with the bytes of the parameters and of the gaps between them.
absl::Status VisitParams(const std::vector<SharedBytes>& params, const ByteSink& take) {
  static constexpr char kZeros[kBufferAlignment] = {};
  int64_t at = 0;
  for (const SharedBytes& bytes : params) {
    HEDDLE_RETURN_IF_ERROR(take({kZeros, static_cast<size_t>(AlignUp(at) - at)}));
    HEDDLE_RETURN_IF_ERROR(take(*bytes));
    at = AlignUp(at) + static_cast<int64_t>(bytes->size());
  }
  return absl::OkStatus();
}

// Divides the bytes of the parameters into those that are stored as they are and those that are
// packed. It is fed with all of them in order.
class Divider {
 public:
  Divider(const std::vector<PackedParam>& params, const ByteSink& plain, const ByteSink& tensor)
      : params_(params), plain_(plain), tensor_(tensor) {}

  absl::Status Take(std::string_view bytes) {
    while (!bytes.empty()) {
      const bool more = next_ < params_.size();
      const bool inside = more && at_ >= params_[next_].offset;
      const int64_t until = !more    ? INT64_MAX
                            : inside ? params_[next_].offset + params_[next_].Bytes()
                                     : params_[next_].offset;
      const std::string_view piece = bytes.substr(0, static_cast<size_t>(until - at_));
      bytes.remove_prefix(piece.size());
      at_ += static_cast<int64_t>(piece.size());
      if (!inside) {
        HEDDLE_RETURN_IF_ERROR(plain_(piece));
        continue;
      }
      // A tensor that comes in one piece is not copied.
      const bool whole = buffer_.empty() && at_ == until;
      if (!whole) buffer_ += piece;
      if (at_ < until) continue;
      HEDDLE_RETURN_IF_ERROR(tensor_(whole ? piece : buffer_));
      buffer_.clear();
      ++next_;
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<PackedParam>& params_;
  const ByteSink &plain_, &tensor_;
  size_t next_ = 0;
  int64_t at_ = 0;
  std::string buffer_;
};

// Adds up the size and the checksum of a section.
class SectionSum {
 public:
  explicit SectionSum(const char* name) : name_(name) { XXH3_64bits_reset(&state_); }
  void Add(std::string_view bytes) {
    XXH3_64bits_update(&state_, bytes.data(), bytes.size());
    size_ += static_cast<int64_t>(bytes.size());
  }
  int64_t size() const { return size_; }
  Section At(int64_t offset) const {
    return {name_, offset, size_,
            absl::StrCat(absl::Hex(XXH3_64bits_digest(&state_), absl::kZeroPad16))};
  }

 private:
  const char* name_;
  int64_t size_ = 0;
  XXH3_state_t state_;
};

}  // namespace

absl::Status WriteModule(const Manifest& manifest, std::string_view code,
                         const std::vector<SharedBytes>& params, const ByteSink& sink) {
  const auto visit = [&](const ByteSink& plain, const ByteSink& tensor) {
    Divider divider(manifest.packed, plain, tensor);
    return VisitParams(params, [&](std::string_view bytes) { return divider.Take(bytes); });
  };
  const ByteSink ignore = [](std::string_view) { return absl::OkStatus(); };
  SectionSum plain_sum("params"), packed_sum("packed");
  std::vector<SharedBytes> packed;
  (void)visit(
      [&](std::string_view bytes) {
        plain_sum.Add(bytes);
        return absl::OkStatus();
      },
      [&](std::string_view tensor) {
        packed.push_back(SharedBytes::Of(Pack(manifest.packed[packed.size()], tensor)));
        packed_sum.Add(*packed.back());
        return absl::OkStatus();
      });
  const auto code_bytes = static_cast<int64_t>(code.size());
  const int64_t params_at = AlignUp(code_bytes), packed_at = AlignUp(params_at + plain_sum.size());
  std::vector<Section> sections = {{"code", 0, code_bytes, ChecksumText(code)},
                                   plain_sum.At(params_at)};
  if (!packed.empty()) sections.push_back(packed_sum.At(packed_at));
  const std::string text = ManifestText(manifest, sections);
  std::string head(manifest.NumBlocks() > 1 ? kBlocksMagic
                   : packed.empty()         ? kMagic
                                            : kPackedMagic);
  AppendU64(text.size(), &head);
  AppendU64(Checksum(text), &head);
  head += text;
  head.resize(AlignUp(head.size()), '\0');
  HEDDLE_RETURN_IF_ERROR(sink(head));
  HEDDLE_RETURN_IF_ERROR(sink(code));
  HEDDLE_RETURN_IF_ERROR(sink(std::string(params_at - code_bytes, '\0')));
  HEDDLE_RETURN_IF_ERROR(visit(sink, ignore));
  if (packed.empty()) return absl::OkStatus();
  HEDDLE_RETURN_IF_ERROR(sink(std::string(packed_at - params_at - plain_sum.size(), '\0')));
  for (const SharedBytes& bytes : packed) HEDDLE_RETURN_IF_ERROR(sink(*bytes));
  return absl::OkStatus();
}

bool IsModule(std::string_view bytes) { return BeginsLikeModule(bytes); }

std::string SerializeModule(const Module& module) {
  std::string out;
  (void)WriteModule(module.manifest, module.code, {module.params}, [&](std::string_view bytes) {
    out.append(bytes);
    return absl::OkStatus();
  });
  return out;
}

absl::StatusOr<Module> ParseModule(std::string_view bytes) {
  return Parse(bytes, SharedBytes::Copy);
}

absl::StatusOr<Module> ParseModuleHead(std::string_view bytes) {
  const absl::Status more = absl::OutOfRangeError("the code of the module goes on");
  if (bytes.size() < kHeaderBytes) return more;
  if (IsModule(bytes) && ReadU64(bytes.substr(8)) > bytes.size() - kHeaderBytes) return more;
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view text, ManifestOf(bytes));
  Module module;
  std::vector<Section> sections;
  HEDDLE_RETURN_IF_ERROR(ParseManifest(text, &module.manifest, &sections));
  const size_t start = AlignUp(kHeaderBytes + text.size());
  for (const Section& section : sections) {
    const bool possible = section.offset >= 0 && section.offset <= INT64_MAX / 4 &&
                          section.size >= 0 && section.size <= INT64_MAX / 4;
    if (section.name == "code" && possible &&
        start + static_cast<uint64_t>(section.offset + section.size) > bytes.size())
      return more;
  }
  size_t end = start;
  HEDDLE_ASSIGN_OR_RETURN(module.code, ReadSection(sections, "code", bytes, start, &end));
  return module;
}

absl::StatusOr<Module> ReadModuleFile(const std::string& path) {
  const absl::StatusOr<SharedBytes> file = MapFile(path);
  if (!file.ok()) {
    return absl::NotFoundError(std::string(file.status().message()));
  }
  absl::StatusOr<Module> module = Parse(**file, [&](std::string_view params) {
    return SharedBytes(std::make_shared<const SharedBytes>(*file), params);
  });
  if (module.ok()) return module;
  return absl::Status(module.status().code(), absl::StrCat(path, ": ", module.status().message()));
}

}  // namespace heddle::runtime
