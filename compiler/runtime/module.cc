// Writes and reads the file around the manifest. The manifest's text is in manifest_json.cc.
#include "compiler/runtime/module.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/alignment.h"
#include "base/status_macros.h"
#include "compiler/runtime/manifest_json.h"
#include "compiler/runtime/module_check.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace heddle::runtime {
namespace {

constexpr std::string_view kMagic = "HEDDLE02";
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
  if (bytes.substr(0, 8) != kMagic) {
    const std::string_view version = bytes.substr(6, 2);
    const bool digits = std::isdigit(static_cast<unsigned char>(version[0])) &&
                        std::isdigit(static_cast<unsigned char>(version[1]));
    if (!digits) return absl::InvalidArgumentError("not a Heddle module");
    return absl::InvalidArgumentError(absl::StrCat(
        "module has format version ", std::string(version), ", this runtime reads version ",
        std::string(kMagic.substr(6)), ": compile the model again or use a newer runtime"));
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

// Copies section `name` out of the file and raises *end to its end.
absl::Status ReadSection(const std::vector<Section>& sections, const std::string& name,
                         std::string_view bytes, size_t start, std::string* out, size_t* end) {
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
    out->assign(data.data(), data.size());
    *end = std::max<size_t>(*end, last);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("module has no section '", name, "'"));
}

// Returns false and sets errno if the file cannot be read completely.
bool ReadFile(const std::string& path, std::string* out) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  char buffer[1 << 16];
  size_t count;
  while ((count = std::fread(buffer, 1, sizeof(buffer), file)) > 0) out->append(buffer, count);
  const int error = std::ferror(file) != 0 ? errno : 0;
  std::fclose(file);
  errno = error;
  return error == 0;
}

}  // namespace

bool IsModule(std::string_view bytes) {
  const std::string_view family = kMagic.substr(0, 6);
  return bytes.substr(0, family.size()) == family;
}

std::string SerializeModule(const Module& module) {
  const auto section = [](const char* name, size_t offset, const std::string& bytes) {
    return Section{name, static_cast<int64_t>(offset), static_cast<int64_t>(bytes.size()),
                   ChecksumText(bytes)};
  };
  const std::string manifest = ManifestText(
      module.manifest, {section("code", 0, module.code),
                        section("params", AlignUp(module.code.size()), module.params)});
  std::string out;
  const size_t start = AlignUp(kHeaderBytes + manifest.size());
  out.reserve(start + AlignUp(module.code.size()) + module.params.size());
  out.append(kMagic);
  AppendU64(manifest.size(), &out);
  AppendU64(Checksum(manifest), &out);
  out.append(manifest);
  out.resize(start, '\0');
  out.append(module.code);
  out.resize(start + AlignUp(module.code.size()), '\0');
  out.append(module.params);
  return out;
}

absl::StatusOr<Module> ParseModule(std::string_view bytes) {
  HEDDLE_ASSIGN_OR_RETURN(std::string_view text, ManifestOf(bytes));
  Module module;
  std::vector<Section> sections;
  HEDDLE_RETURN_IF_ERROR(ParseManifest(text, &module.manifest, &sections));
  const size_t start = AlignUp(kHeaderBytes + text.size());
  size_t end = start;
  absl::Status status = ReadSection(sections, "code", bytes, start, &module.code, &end);
  if (status.ok()) status = ReadSection(sections, "params", bytes, start, &module.params, &end);
  if (status.ok() && end != bytes.size()) {
    status = absl::InvalidArgumentError(
        absl::StrCat("module ends at byte ", end, ", but the file has ", bytes.size()));
  }
  if (status.ok()) status = CheckModule(module);
  if (!status.ok()) return status;
  return module;
}

absl::StatusOr<Module> ReadModuleFile(const std::string& path) {
  std::string bytes;
  if (!ReadFile(path, &bytes)) {
    return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", strerror(errno)));
  }
  absl::StatusOr<Module> module = ParseModule(bytes);
  if (module.ok()) return module;
  return absl::Status(module.status().code(), absl::StrCat(path, ": ", module.status().message()));
}

}  // namespace heddle::runtime
