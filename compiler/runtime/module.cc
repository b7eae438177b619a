// The manifest's keys:
//
//   producer, model, model_digest, target, cpu_features, threads, arena_bytes, unshared_bytes,
//   workspace_bytes: as in struct Manifest
//   inputs, outputs: [{"name", "dtype", "shape"}]
//
//   kernels: [{"symbol", "task", "label", "flops", "workspace_bytes", "schedule", "record_ms",
//              "winograd", "untouched_bytes"}]
//
//   calls: [{"kernel", "buffers"}]; a buffer is [place, index, bytes] with place "input", "output",
//          "param" or "arena"
//
//   sections: [{"name", "offset", "size", "xxh3"}]: "offset" counts from the first 64-byte boundary
//             behind the manifest, "xxh3" is 16 hexadecimal digits
#include "compiler/runtime/module.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "compiler/runtime/module_check.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace heddle::runtime {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMagic = "HEDDLE02";
constexpr size_t kHeaderBytes = 24;
constexpr size_t kAlignment = 64;
constexpr std::string_view kPlaces[] = {"input", "output", "param", "arena"};  // by Place

size_t AlignUp(size_t value) { return (value + kAlignment - 1) / kAlignment * kAlignment; }

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

// ---- Writing
// ------------------------------------------------------------------------------------------------------

// JSON has no infinities; what a kernel costs is for people only.
double Finite(double value) { return std::isfinite(value) ? value : 0; }

Json TensorsJson(const std::vector<TensorSpec>& tensors) {
  Json array = Json::array();
  for (const TensorSpec& t : tensors) {
    array.push_back({{"name", t.name}, {"dtype", t.dtype}, {"shape", t.shape}});
  }
  return array;
}

Json KernelsJson(const std::vector<KernelSpec>& kernels) {
  Json array = Json::array();
  for (const KernelSpec& k : kernels) {
    array.push_back({{"symbol", k.symbol},
                     {"task", k.task},
                     {"label", k.label},
                     {"flops", Finite(k.flops)},
                     {"workspace_bytes", k.workspace_bytes},
                     {"schedule", k.schedule},
                     {"record_ms", Finite(k.record_ms)},
                     {"winograd", k.winograd},
                     {"untouched_bytes", k.untouched_bytes}});
  }
  return array;
}

Json CallsJson(const std::vector<CallSpec>& calls) {
  Json array = Json::array();
  for (const CallSpec& call : calls) {
    Json buffers = Json::array();
    for (const BufferSlot& slot : call.buffers) {
      buffers.push_back(
          Json::array({kPlaces[static_cast<int>(slot.place)], slot.index, slot.bytes}));
    }
    array.push_back({{"kernel", call.kernel}, {"buffers", std::move(buffers)}});
  }
  return array;
}

std::string ManifestText(const Module& module) {
  const Manifest& m = module.manifest;
  Json json;
  json["producer"] = m.producer;
  json["model"] = m.model;
  json["model_digest"] = m.model_digest;
  json["target"] = m.target;
  json["cpu_features"] = m.cpu_features;
  json["threads"] = m.threads;
  json["arena_bytes"] = m.arena_bytes;
  json["unshared_bytes"] = m.unshared_bytes;
  json["workspace_bytes"] = m.workspace_bytes;
  json["inputs"] = TensorsJson(m.inputs);
  json["outputs"] = TensorsJson(m.outputs);
  json["kernels"] = KernelsJson(m.kernels);
  json["calls"] = CallsJson(m.calls);
  Json sections = Json::array();
  sections.push_back({{"name", "code"},
                      {"offset", 0},
                      {"size", module.code.size()},
                      {"xxh3", ChecksumText(module.code)}});
  sections.push_back({{"name", "params"},
                      {"offset", AlignUp(module.code.size())},
                      {"size", module.params.size()},
                      {"xxh3", ChecksumText(module.params)}});
  json["sections"] = std::move(sections);
  // Names come from models and need not be UTF-8: what is not becomes U+FFFD.
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

// ---- Reading
// ------------------------------------------------------------------------------------------------------

// Typed access to one JSON object; the first wrong field is kept in `error` and everything read
// after it is empty.
class Fields {
 public:
  Fields(const Json& object, std::string* error) : object_(object), error_(error) {}

  void Read(const char* key, std::string* out) const {
    const Json* value = Find(key, "a string", [](const Json& v) { return v.is_string(); });
    if (value != nullptr) *out = value->get<std::string>();
  }
  void Read(const char* key, int64_t* out) const {
    const Json* value = Find(key, "an integer", IsInt);
    if (value != nullptr) *out = value->get<int64_t>();
  }
  void Read(const char* key, int* out) const {
    const Json* value = Find(key, "a small integer", [](const Json& v) {
      return IsInt(v) && std::abs(v.get<int64_t>()) <= std::numeric_limits<int>::max();
    });
    if (value != nullptr) *out = value->get<int>();
  }
  void Read(const char* key, double* out) const {
    const Json* value = Find(key, "a number", [](const Json& v) { return v.is_number(); });
    if (value != nullptr) *out = value->get<double>();
  }
  void Read(const char* key, bool* out) const {
    const Json* value = Find(key, "true or false", [](const Json& v) { return v.is_boolean(); });
    if (value != nullptr) *out = value->get<bool>();
  }
  void Read(const char* key, std::vector<std::string>* out) const {
    for (const Json& item : Array(key)) {
      if (!item.is_string()) return Fail(key, "a list of strings");
      out->push_back(item.get<std::string>());
    }
  }
  void Read(const char* key, std::vector<int64_t>* out) const {
    for (const Json& item : Array(key)) {
      if (!IsInt(item)) return Fail(key, "a list of integers");
      out->push_back(item.get<int64_t>());
    }
  }
  const Json& Array(const char* key) const {
    static const Json& empty = *new Json(Json::array());
    const Json* value = Find(key, "a list", [](const Json& v) { return v.is_array(); });
    return value != nullptr ? *value : empty;
  }
  void Fail(const char* key, const char* wanted) const {
    if (error_->empty()) *error_ = absl::StrCat("'", key, "' is not ", wanted);
  }

  static bool IsInt(const Json& v) {
    // Unsigned values beyond i64 would wrap.
    return v.is_number_integer() &&
           (!v.is_number_unsigned() || v.get<uint64_t>() <= uint64_t{INT64_MAX});
  }

 private:
  template <typename Predicate>
  const Json* Find(const char* key, const char* wanted, Predicate is_right) const {
    if (!error_->empty()) return nullptr;
    const auto it = object_.is_object() ? object_.find(key) : object_.end();
    if (it == object_.end() || !is_right(*it)) {
      Fail(key, wanted);
      return nullptr;
    }
    return &*it;
  }

  const Json& object_;
  std::string* error_;
};

std::vector<TensorSpec> ReadTensors(const Json& array, std::string* error) {
  std::vector<TensorSpec> tensors;
  for (const Json& item : array) {
    const Fields fields(item, error);
    TensorSpec& t = tensors.emplace_back();
    fields.Read("name", &t.name);
    fields.Read("dtype", &t.dtype);
    fields.Read("shape", &t.shape);
  }
  return tensors;
}

std::vector<KernelSpec> ReadKernels(const Json& array, std::string* error) {
  std::vector<KernelSpec> kernels;
  for (const Json& item : array) {
    const Fields fields(item, error);
    KernelSpec& k = kernels.emplace_back();
    fields.Read("symbol", &k.symbol);
    fields.Read("task", &k.task);
    fields.Read("label", &k.label);
    fields.Read("flops", &k.flops);
    fields.Read("workspace_bytes", &k.workspace_bytes);
    fields.Read("schedule", &k.schedule);
    fields.Read("record_ms", &k.record_ms);
    fields.Read("winograd", &k.winograd);
    if (item.contains("untouched_bytes")) fields.Read("untouched_bytes", &k.untouched_bytes);
  }
  return kernels;
}

bool ReadSlot(const Json& item, BufferSlot* slot) {
  if (!item.is_array() || item.size() != 3 || !item[0].is_string() || !Fields::IsInt(item[1]) ||
      !Fields::IsInt(item[2])) {
    return false;
  }
  slot->index = item[1].get<int64_t>();
  slot->bytes = item[2].get<int64_t>();
  for (int place = 0; place < 4; ++place) {
    if (item[0].get_ref<const std::string&>() == kPlaces[place]) {
      slot->place = static_cast<Place>(place);
      return true;
    }
  }
  return false;
}

std::vector<CallSpec> ReadCalls(const Json& array, std::string* error) {
  std::vector<CallSpec> calls;
  for (const Json& item : array) {
    const Fields fields(item, error);
    CallSpec& call = calls.emplace_back();
    fields.Read("kernel", &call.kernel);
    for (const Json& buffer : fields.Array("buffers")) {
      if (!ReadSlot(buffer, &call.buffers.emplace_back())) {
        fields.Fail("buffers", "a list of [place, index, bytes]");
      }
    }
  }
  return calls;
}

struct Section {
  std::string name;
  int64_t offset = 0;
  int64_t size = 0;
  std::string xxh3;
};

// Fills everything of the manifest but `sections`, which go to the second argument.
std::string ReadManifest(const Json& json, Manifest* m, std::vector<Section>* sections) {
  std::string error;
  const Fields fields(json, &error);
  fields.Read("producer", &m->producer);
  fields.Read("model", &m->model);
  fields.Read("model_digest", &m->model_digest);
  fields.Read("target", &m->target);
  fields.Read("cpu_features", &m->cpu_features);
  fields.Read("threads", &m->threads);
  fields.Read("arena_bytes", &m->arena_bytes);
  fields.Read("unshared_bytes", &m->unshared_bytes);
  fields.Read("workspace_bytes", &m->workspace_bytes);
  m->inputs = ReadTensors(fields.Array("inputs"), &error);
  m->outputs = ReadTensors(fields.Array("outputs"), &error);
  m->kernels = ReadKernels(fields.Array("kernels"), &error);
  m->calls = ReadCalls(fields.Array("calls"), &error);
  for (const Json& item : fields.Array("sections")) {
    const Fields section(item, &error);
    Section& s = sections->emplace_back();
    section.Read("name", &s.name);
    section.Read("offset", &s.offset);
    section.Read("size", &s.size);
    section.Read("xxh3", &s.xxh3);
  }
  return error;
}

absl::Status Truncated(uint64_t expected, size_t found) {
  return absl::DataLossError(
      absl::StrCat("module is truncated: ", expected, " bytes expected, ", found, " found"));
}

// The manifest's text; checks the fixed header.
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
    // A damaged length may be anything, so the sum must not wrap.
    return Truncated(length < (uint64_t{1} << 60) ? kHeaderBytes + length : length, bytes.size());
  }
  const std::string_view text = bytes.substr(kHeaderBytes, length);
  if (Checksum(text) != ReadU64(bytes.substr(16))) {
    return absl::DataLossError("module is corrupt: checksum of the manifest does not match");
  }
  return text;
}

// Cuts section `name` out of the file. `end` is raised to its end.
absl::Status ReadSection(const std::vector<Section>& sections, const std::string& name,
                         std::string_view bytes, size_t start, std::string* out, size_t* end) {
  for (const Section& section : sections) {
    if (section.name != name) continue;
    if (section.offset < 0 || section.size < 0 || section.offset % kAlignment != 0 ||
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

// False with errno set if the file cannot be read whole.
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

std::string SerializeModule(const Module& module) {
  const std::string manifest = ManifestText(module);
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
  absl::StatusOr<std::string_view> text = ManifestOf(bytes);
  if (!text.ok()) return text.status();
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("module manifest is not JSON");
  Module module;
  std::vector<Section> sections;
  if (std::string error = ReadManifest(json, &module.manifest, &sections); !error.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("module manifest is malformed: ", error));
  }
  const size_t start = AlignUp(kHeaderBytes + text->size());
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
