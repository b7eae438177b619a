// The manifest's keys:
//
//   producer, model, model_digest, target, cpu_features, threads, arena_bytes, unshared_bytes,
//   workspace_bytes: as in struct Manifest
//   inputs, outputs: [{"name", "dtype", "shape"}]; and "lengths" for an output with extents that
//             depend on data: [[axis, number of the output that holds the extent]]; and, only if there are any, the texts
//             "columns", one for each element of an index of dimension 0, and "labels", what the integers 0, 1, .. stand for;
//             "samples", a list of numbers for each element of a row; and "text": true, only if it is (struct TensorSpec)
//
//   independent_rows: true, only if it is (struct Manifest)
//
//   kernels: [{"symbol", "task", "label", "flops", "workspace_bytes", "schedule", "record_ms",
//              "winograd", "tf32", "tensor_cores", "sum_terms" (these four: numerics.h),
//              "untouched_bytes", "warm", "launches"}]; "warm": true, only if it is; "launches" for GPUs only:
//             [{"symbol", "grid", "block", "static_shared_bytes", "dynamic_shared_bytes",
//               "arguments", "registers", "local_bytes"}], each argument [buffer, workspace offset]
//
//   calls: [{"kernel", "buffers"}]; a buffer is [place, index, bytes] with place "input", "output",
//          "param" or "arena"
//
//   smaller_blocks: [{"rows", "calls"}], only if there are any
//
//   plan, machine: texts, only if there is one
//
//   packed: [{"offset", "dtype", "shape", "bits"}] (packed_params.h), only if there are any
//
//   sections: [{"name", "offset", "size", "xxh3"}]: "offset" counts from the first 64-byte boundary
//             after the manifest, "xxh3" is 16 hexadecimal digits
#include "compiler/runtime/manifest_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace heddle::runtime {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPlaces[] = {"input", "output", "param", "arena"};  // by Place

constexpr double kMostFloat = std::numeric_limits<float>::max();

// JSON has no infinities. These costs are only for people to read.
double Finite(double value) { return std::isfinite(value) ? value : 0; }

Json TensorsJson(const std::vector<TensorSpec>& tensors) {
  Json array = Json::array();
  for (const TensorSpec& t : tensors) {
    array.push_back({{"name", t.name}, {"dtype", t.dtype}, {"shape", t.shape}});
    for (const DimLength& length : t.lengths)
      array.back()["lengths"].push_back(Json::array({length.axis, length.output}));
    if (t.text) array.back()["text"] = true;
    if (!t.columns.empty()) array.back()["columns"] = t.columns;
    if (!t.labels.empty()) array.back()["labels"] = t.labels;
    if (!t.samples.empty()) array.back()["samples"] = t.samples;
  }
  return array;
}

Json LaunchesJson(const std::vector<GpuLaunch>& launches) {
  Json array = Json::array();
  for (const GpuLaunch& launch : launches) {
    Json arguments = Json::array();
    for (const GpuArgument& argument : launch.arguments) {
      arguments.push_back(Json::array({argument.buffer, argument.workspace_offset}));
    }
    array.push_back({{"symbol", launch.symbol},
                     {"grid", launch.grid},
                     {"block", launch.block},
                     {"static_shared_bytes", launch.static_shared_bytes},
                     {"dynamic_shared_bytes", launch.dynamic_shared_bytes},
                     {"arguments", std::move(arguments)},
                     {"registers", launch.registers},
                     {"local_bytes", launch.local_bytes}});
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
                     {"winograd", k.numerics.winograd},
                     {"tf32", k.numerics.tf32},
                     {"tensor_cores", k.numerics.tensor_cores},
                     {"sum_terms", k.numerics.sum_terms},
                     {"untouched_bytes", k.untouched_bytes}});
    if (k.warm) array.back()["warm"] = true;
    if (!k.launches.empty()) array.back()["launches"] = LaunchesJson(k.launches);
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

// Typed access to one JSON object. The first wrong field is kept in `error`; everything read after
// it is empty.
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
    const Json* value = Find(key, "a small integer", IsSmallInt);
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
  static bool IsSmallInt(const Json& v) { return IsInt(v) && std::in_range<int>(v.get<int64_t>()); }

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

// Two small integers.
bool ReadPair(const Json& item, int* pair) {
  if (!item.is_array() || item.size() != 2) return false;
  for (size_t i = 0; i < 2; ++i) {
    if (!Fields::IsSmallInt(item[i])) return false;
    pair[i] = item[i].get<int>();
  }
  return true;
}

// Lists of numbers that are f32. nullopt: there is something else.
std::optional<std::vector<std::vector<float>>> ReadSamples(const Json& lists) {
  std::vector<std::vector<float>> samples;
  for (const Json& list : lists) {
    if (!list.is_array()) return std::nullopt;
    std::vector<float>& values = samples.emplace_back();
    for (const Json& number : list) {
      // A number that no f32 holds has no meaning, and its conversion none either.
      if (!number.is_number() || !(std::abs(number.get<double>()) <= kMostFloat))
        return std::nullopt;
      values.push_back(static_cast<float>(number.get<double>()));
    }
  }
  return samples;
}

std::vector<TensorSpec> ReadTensors(const Json& array, std::string* error) {
  std::vector<TensorSpec> tensors;
  for (const Json& item : array) {
    const Fields fields(item, error);
    TensorSpec& t = tensors.emplace_back();
    fields.Read("name", &t.name);
    fields.Read("dtype", &t.dtype);
    fields.Read("shape", &t.shape);
    if (item.contains("text")) fields.Read("text", &t.text);
    if (item.contains("columns")) fields.Read("columns", &t.columns);
    if (item.contains("labels")) fields.Read("labels", &t.labels);
    if (item.contains("samples")) {
      std::optional<std::vector<std::vector<float>>> samples = ReadSamples(fields.Array("samples"));
      if (!samples.has_value()) fields.Fail("samples", "a list of lists of numbers");
      t.samples = std::move(samples).value_or(std::vector<std::vector<float>>());
    }
    if (!item.contains("lengths")) continue;
    for (const Json& length : fields.Array("lengths")) {
      int pair[2] = {-1, -1};
      if (!ReadPair(length, pair)) fields.Fail("lengths", "a list of [axis, output]");
      t.lengths.push_back({pair[0], pair[1]});
    }
  }
  return tensors;
}

void ReadExtents(const Fields& fields, const char* key, std::array<int64_t, 3>* out) {
  std::vector<int64_t> extents;
  fields.Read(key, &extents);
  if (extents.size() != out->size()) return fields.Fail(key, "a list of three integers");
  std::copy(extents.begin(), extents.end(), out->begin());
}

std::vector<GpuLaunch> ReadLaunches(const Json& array, std::string* error) {
  std::vector<GpuLaunch> launches;
  for (const Json& item : array) {
    const Fields fields(item, error);
    GpuLaunch& launch = launches.emplace_back();
    fields.Read("symbol", &launch.symbol);
    ReadExtents(fields, "grid", &launch.grid);
    ReadExtents(fields, "block", &launch.block);
    fields.Read("static_shared_bytes", &launch.static_shared_bytes);
    fields.Read("dynamic_shared_bytes", &launch.dynamic_shared_bytes);
    fields.Read("registers", &launch.registers);
    fields.Read("local_bytes", &launch.local_bytes);
    for (const Json& argument : fields.Array("arguments")) {
      if (!argument.is_array() || argument.size() != 2 || !Fields::IsSmallInt(argument[0]) ||
          !Fields::IsInt(argument[1])) {
        fields.Fail("arguments", "a list of [buffer, workspace offset]");
        break;
      }
      launch.arguments.push_back({argument[0].get<int>(), argument[1].get<int64_t>()});
    }
  }
  return launches;
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
    fields.Read("winograd", &k.numerics.winograd);
    if (item.contains("tf32")) fields.Read("tf32", &k.numerics.tf32);
    if (item.contains("tensor_cores")) fields.Read("tensor_cores", &k.numerics.tensor_cores);
    if (item.contains("sum_terms")) fields.Read("sum_terms", &k.numerics.sum_terms);
    if (item.contains("untouched_bytes")) fields.Read("untouched_bytes", &k.untouched_bytes);
    if (item.contains("warm")) fields.Read("warm", &k.warm);
    if (item.contains("launches")) k.launches = ReadLaunches(fields.Array("launches"), error);
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

}  // namespace

std::string ManifestText(const Manifest& m, const std::vector<Section>& sections) {
  Json json;
  json["producer"] = m.producer;
  json["model"] = m.model;
  json["model_digest"] = m.model_digest;
  json["target"] = m.target;
  if (!m.plan.empty()) json["plan"] = m.plan;
  if (!m.machine.empty()) json["machine"] = m.machine;
  json["cpu_features"] = m.cpu_features;
  json["threads"] = m.threads;
  json["arena_bytes"] = m.arena_bytes;
  json["unshared_bytes"] = m.unshared_bytes;
  json["workspace_bytes"] = m.workspace_bytes;
  json["inputs"] = TensorsJson(m.inputs);
  json["outputs"] = TensorsJson(m.outputs);
  if (m.independent_rows) json["independent_rows"] = true;
  json["kernels"] = KernelsJson(m.kernels);
  json["calls"] = CallsJson(m.calls);
  for (const RowBlock& block : m.smaller_blocks)
    json["smaller_blocks"].push_back({{"rows", block.rows}, {"calls", CallsJson(block.calls)}});
  for (const PackedParam& p : m.packed) {
    json["packed"].push_back(
        {{"offset", p.offset}, {"dtype", p.dtype}, {"shape", p.shape}, {"bits", p.bits}});
  }
  Json array = Json::array();
  for (const Section& section : sections) {
    array.push_back({{"name", section.name},
                     {"offset", section.offset},
                     {"size", section.size},
                     {"xxh3", section.xxh3}});
  }
  json["sections"] = std::move(array);
  // Names come from models and may not be valid UTF-8. Invalid bytes become U+FFFD.
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

absl::Status ParseManifest(std::string_view text, Manifest* m, std::vector<Section>* sections) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("module manifest is not JSON");
  std::string error;
  const Fields fields(json, &error);
  fields.Read("producer", &m->producer);
  fields.Read("model", &m->model);
  fields.Read("model_digest", &m->model_digest);
  fields.Read("target", &m->target);
  if (json.is_object() && json.contains("plan")) fields.Read("plan", &m->plan);
  if (json.is_object() && json.contains("machine")) fields.Read("machine", &m->machine);
  fields.Read("cpu_features", &m->cpu_features);
  fields.Read("threads", &m->threads);
  fields.Read("arena_bytes", &m->arena_bytes);
  fields.Read("unshared_bytes", &m->unshared_bytes);
  fields.Read("workspace_bytes", &m->workspace_bytes);
  m->inputs = ReadTensors(fields.Array("inputs"), &error);
  m->outputs = ReadTensors(fields.Array("outputs"), &error);
  if (json.is_object() && json.contains("independent_rows"))
    fields.Read("independent_rows", &m->independent_rows);
  m->kernels = ReadKernels(fields.Array("kernels"), &error);
  m->calls = ReadCalls(fields.Array("calls"), &error);
  if (json.is_object() && json.contains("smaller_blocks")) {
    for (const Json& item : fields.Array("smaller_blocks")) {
      const Fields block(item, &error);
      RowBlock& b = m->smaller_blocks.emplace_back();
      block.Read("rows", &b.rows);
      b.calls = ReadCalls(block.Array("calls"), &error);
    }
  }
  if (json.is_object() && json.contains("packed")) {
    for (const Json& item : fields.Array("packed")) {
      const Fields packed(item, &error);
      PackedParam& p = m->packed.emplace_back();
      packed.Read("offset", &p.offset);
      packed.Read("dtype", &p.dtype);
      ReadExtents(packed, "shape", &p.shape);
      packed.Read("bits", &p.bits);
    }
  }
  for (const Json& item : fields.Array("sections")) {
    const Fields section(item, &error);
    Section& s = sections->emplace_back();
    section.Read("name", &s.name);
    section.Read("offset", &s.offset);
    section.Read("size", &s.size);
    section.Read("xxh3", &s.xxh3);
  }
  if (error.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("module manifest is malformed: ", error));
}

}  // namespace heddle::runtime
