// Records in files: one JSON line for each record, as `heddle records export` writes them. A record
// without the workload's text is identified by the key alone. bench/records/ holds the best records
// found so far, one file for each device key.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/modules/model_file.h"
#include "client/service_client.h"
#include "compiler/graph/fusion/fuse.h"
#include "proto/jobs.pb.h"

namespace heddle::client {

inline constexpr int kRecordSchemaVersion = 1;

// Reads the records of a file one by one, so that a file of any length takes no more memory. Errors are those of
// ReadRecordFile.
class RecordFileReader {
 public:
  // "-" is standard input. What cannot be read twice, such as a pipe, is copied to a temporary file first.
  static absl::StatusOr<std::unique_ptr<RecordFileReader>> Open(const std::string& path);
  ~RecordFileReader();
  RecordFileReader(const RecordFileReader&) = delete;
  RecordFileReader& operator=(const RecordFileReader&) = delete;

  // False: the file has ended. Lines of another schema are an error, or, with `other_schema`, are skipped
  // and counted there.
  absl::StatusOr<bool> Next(v1::Record* record, int64_t* other_schema = nullptr);
  // Begins again with the first record.
  absl::Status Rewind();

 private:
  RecordFileReader(std::string path, FILE* file) : path_(std::move(path)), file_(file) {}

  const std::string path_;
  FILE* const file_;
  char* line_ = nullptr;  // of getline(3)
  size_t room_ = 0;       // bytes of line_
  int64_t number_ = 0;    // of the line
};

// The records of a file ("-": standard input), in order, at most a million. NotFound: cannot be read. InvalidArgument
// "FILE:LINE: .." for a line that is not a record. A line of another schema is an error too, or,
// with `warnings`, is skipped and counted there.
absl::StatusOr<std::vector<v1::Record>> ReadRecordFile(
    const std::string& path, std::vector<std::string>* warnings = nullptr);

// The valid records of exactly this target and one of these device keys (none: any). `warnings`
// gets one line for each reason to skip records, with their number.
std::vector<v1::Record> MatchingRecords(const std::vector<v1::Record>& records,
                                        const std::string& target,
                                        const std::vector<std::string>& device_keys,
                                        std::vector<std::string>* warnings);

// The records of `tasks` whose trace still replays on the task's program, with label, flops and
// text of the task filled in. Records of these tasks that do not replay are named in `warnings`.
std::vector<v1::Record> ReplayingRecords(const std::vector<v1::Record>& records,
                                         const std::vector<graph::Task>& tasks,
                                         std::vector<std::string>* warnings);

// Imports the records of `path` that a job may start from into the service, before the job is
// submitted. Prints to stderr what was imported and why the rest was not. A file without matching
// records is no error; a file that is not one of records is.
absl::Status OfferRecords(const ServiceClient& client, const v1::JobSpec& spec,
                          const ModelFile& model, const std::string& path);

}  // namespace heddle::client
