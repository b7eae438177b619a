// Records in files: one JSON line for each record, as `heddle records export` writes them. A record
// without the workload's text is identified by the key alone. bench/records/ holds the best records
// found so far, one file for each device key.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/modules/model_file.h"
#include "client/service_client.h"
#include "compiler/graph/fusion/fuse.h"
#include "proto/jobs.pb.h"

namespace heddle::client {

inline constexpr int kRecordSchemaVersion = 1;

// The records of a file ("-": standard input), in order. NotFound: cannot be read. InvalidArgument
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
