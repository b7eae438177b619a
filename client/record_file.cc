#include "client/record_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "client/commands/model_options.h"
#include "client/views/json.h"
#include "client/views/terminal.h"
#include "compiler/driver/compile.h"
#include "compiler/ir/text.h"
#include "compiler/schedule/trace.h"

namespace heddle::client {
namespace {

// Longest line in bytes. The text of a workload takes about ten kilobytes.
constexpr size_t kMaxLineBytes = 4 << 20;
// Most records of a file that is held in memory.
constexpr size_t kMaxRecords = 1'000'000;
// A new service's workers register within a second or two.
constexpr int kDeviceAttempts = 30;
constexpr absl::Duration kDevicePause = absl::Milliseconds(100);

// The schema version of a line; 0 if it has none.
int64_t SchemaOf(const std::string& line) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("schema_version")) return 0;
  const nlohmann::json& version = object["schema_version"];
  return version.is_number_integer() ? version.get<int64_t>() : -1;
}

std::string Plural(int64_t count, const std::string& rest) {
  return fmt::format("{} record{} {}", count, count == 1 ? " is" : "s are", rest);
}

// The device keys of all device slots. Waits a moment for a service that has just started. Empty if
// none is known yet.
std::vector<std::string> DeviceKeysFor(const ServiceClient& client, const v1::JobSpec& spec) {
  if (!spec.device_key().empty()) return {spec.device_key()};
  std::set<std::string> keys;
  for (int attempt = 0; attempt < kDeviceAttempts && keys.empty(); ++attempt) {
    if (attempt > 0) absl::SleepFor(kDevicePause);
    const absl::StatusOr<v1::ListWorkersResponse> devices = client.ListDevices();
    if (!devices.ok()) break;
    for (const v1::WorkerStatus& worker : devices->workers()) {
      for (const v1::SlotStatus& slot : worker.slots()) {
        if (slot.slot().kind() == v1::SLOT_DEVICE) keys.insert(slot.slot().device_key());
      }
    }
  }
  return {keys.begin(), keys.end()};
}

absl::Status CheckReplays(const graph::Task& task, const std::string& trace) {
  HEDDLE_ASSIGN_OR_RETURN(const ir::Program naive, ir::Parse(task.workload));
  HEDDLE_ASSIGN_OR_RETURN(const schedule::Trace steps, schedule::ParseTrace(trace));
  return schedule::Replay(naive, steps).status();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordFileReader>> RecordFileReader::Open(const std::string& path) {
  FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "re");
  if (file == nullptr)
    return absl::NotFoundError(fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  struct stat found = {};
  if (fstat(fileno(file), &found) == 0 && S_ISREG(found.st_mode))
    return std::unique_ptr<RecordFileReader>(new RecordFileReader(path, file));
  FILE* const copy = std::tmpfile();
  bool copied = copy != nullptr;
  std::vector<char> block(size_t{1} << 16);
  while (copied) {
    const size_t got = std::fread(block.data(), 1, block.size(), file);
    if (got == 0) break;
    copied = std::fwrite(block.data(), 1, got, copy) == got;
  }
  copied = copied && std::ferror(file) == 0 && std::fseek(copy, 0, SEEK_SET) == 0;
  if (file != stdin) std::fclose(file);
  if (copied) return std::unique_ptr<RecordFileReader>(new RecordFileReader(path, copy));
  if (copy != nullptr) std::fclose(copy);
  return absl::ResourceExhaustedError(fmt::format(
      "'{}' cannot be copied to a temporary file; write it to a file and import that", path));
}

RecordFileReader::~RecordFileReader() {
  std::free(line_);
  if (file_ != stdin) std::fclose(file_);
}

absl::Status RecordFileReader::Rewind() {
  number_ = 0;
  if (std::fseek(file_, 0, SEEK_SET) == 0) return absl::OkStatus();
  return absl::InternalError(fmt::format("'{}' cannot be read again", path_));
}

absl::StatusOr<bool> RecordFileReader::Next(v1::Record* record, int64_t* other_schema) {
  while (true) {
    const ssize_t got = getline(&line_, &room_, file_);
    if (got < 0) {
      if (std::ferror(file_) == 0) return false;
      return absl::NotFoundError(fmt::format("cannot read '{}' to its end", path_));
    }
    ++number_;
    std::string line(line_, static_cast<size_t>(got));
    if (line.ends_with('\n')) line.pop_back();
    if (line.empty()) continue;
    const auto bad = [&](const std::string& why) {
      return absl::InvalidArgumentError(fmt::format("{}:{}: {}", path_, number_, why));
    };
    if (line.size() > kMaxLineBytes) return bad("the line is too long for a record");
    const int64_t schema = SchemaOf(line);
    if (schema != 0 && schema != kRecordSchemaVersion) {
      if (other_schema == nullptr) {
        return bad(fmt::format("schema_version is {}, this program knows {}; remove the line",
                               schema, kRecordSchemaVersion));
      }
      ++*other_schema;
      continue;
    }
    record->Clear();
    if (const absl::Status s = FromJsonLine(line, record); !s.ok())
      return bad(std::string(s.message()));
    return true;
  }
}

absl::StatusOr<std::vector<v1::Record>> ReadRecordFile(const std::string& path,
                                                       std::vector<std::string>* warnings) {
  HEDDLE_ASSIGN_OR_RETURN(const auto file, RecordFileReader::Open(path));
  std::vector<v1::Record> records;
  int64_t other_schema = 0;
  for (v1::Record record;; records.push_back(std::move(record))) {
    HEDDLE_ASSIGN_OR_RETURN(const bool more,
                            file->Next(&record, warnings == nullptr ? nullptr : &other_schema));
    if (!more) break;
    if (records.size() == kMaxRecords) {
      return absl::InvalidArgumentError(
          fmt::format("{}: more than {} records; split the file", path, kMaxRecords));
    }
  }
  if (other_schema > 0) {
    warnings->push_back(Plural(
        other_schema, fmt::format("of another schema than {}, skipped", kRecordSchemaVersion)));
  }
  return records;
}

std::vector<v1::Record> MatchingRecords(const std::vector<v1::Record>& records,
                                        const std::string& target,
                                        const std::vector<std::string>& device_keys,
                                        std::vector<std::string>* warnings) {
  std::vector<v1::Record> matching;
  std::map<std::string, int64_t> other_targets, other_devices;
  for (const v1::Record& record : records) {
    const std::string& key = record.device_key();
    if (record.measurement().outcome() != v1::OUTCOME_OK) continue;
    if (record.target() != target) {
      ++other_targets[record.target()];
    } else if (!device_keys.empty() &&
               std::find(device_keys.begin(), device_keys.end(), key) == device_keys.end()) {
      ++other_devices[key];
    } else {
      matching.push_back(record);
    }
  }
  for (const auto& [text, count] : other_targets) {
    warnings->push_back(Plural(count, fmt::format("for '{}', not '{}'", text, target)));
  }
  for (const auto& [key, count] : other_devices) {
    warnings->push_back(Plural(
        count, fmt::format("of device key '{}', not {}", key, fmt::join(device_keys, ", "))));
  }
  return matching;
}

std::vector<v1::Record> ReplayingRecords(const std::vector<v1::Record>& records,
                                         const std::vector<graph::Task>& tasks,
                                         std::vector<std::string>* warnings) {
  std::map<std::string, const graph::Task*> by_key;
  for (const graph::Task& task : tasks) by_key[task.key] = &task;
  std::vector<v1::Record> replaying;
  for (const v1::Record& record : records) {
    const auto found = by_key.find(record.workload_key());
    if (found == by_key.end()) continue;
    const graph::Task& task = *found->second;
    if (const absl::Status s = CheckReplays(task, record.trace()); !s.ok()) {
      warnings->push_back(fmt::format("the record of task {} ({}) does not replay: {}", task.key,
                                      task.label, std::string(s.message())));
      continue;
    }
    v1::Record& taken = replaying.emplace_back(record);
    taken.set_workload(task.workload);
    taken.set_label(task.label);
    taken.set_flops(task.flops);
  }
  return replaying;
}

absl::Status OfferRecords(const ServiceClient& client, const v1::JobSpec& spec,
                          const ModelFile& model, const std::string& path) {
  std::vector<std::string> warnings;
  HEDDLE_ASSIGN_OR_RETURN(std::vector<v1::Record> records, ReadRecordFile(path, &warnings));
  HEDDLE_ASSIGN_OR_RETURN(const Target target, ParseTarget(spec.target()));
  HEDDLE_ASSIGN_OR_RETURN(const graph::FusedGraph fused,
                          PrepareModel(model.onnx, FromProto(spec.options(), &model), target));
  const std::vector<graph::Task> tasks = graph::ExtractTasks(fused);
  records = MatchingRecords(records, spec.target(), DeviceKeysFor(client, spec), &warnings);
  records = ReplayingRecords(records, tasks, &warnings);
  std::set<std::string> known;
  for (const v1::Record& record : records) known.insert(record.workload_key());
  size_t next = 0;
  HEDDLE_ASSIGN_OR_RETURN(const v1::ImportRecordsResponse response,
                          client.ImportRecords([&](v1::Record* record) -> absl::StatusOr<bool> {
                            if (Interrupted()) return absl::CancelledError("interrupted");
                            if (next == records.size()) return false;
                            *record = records[next++];
                            return true;
                          }));
  for (const std::string& warning : warnings) fmt::print(stderr, "{}: {}\n", path, warning);
  fmt::print(stderr, "{}: {} of {} tasks start with a known schedule\n", path, known.size(),
             tasks.size());
  if (response.rejected() > 0) {
    fmt::print(stderr, "{}: {} records were refused; the first: {}\n", path, response.rejected(),
               response.first_error());
  }
  return absl::OkStatus();
}

}  // namespace heddle::client
