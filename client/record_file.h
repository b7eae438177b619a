// Records kept in files: JSON lines, one a record, as `heddle records export` writes them. What the
// database has no text of (`workload` left out) is known by its key alone. bench/records/ holds the
// best ones found so far, a file for each device key.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/service_client.h"
#include "compiler/graph/fusion/fuse.h"
#include "proto/jobs.pb.h"

namespace heddle::client {

inline constexpr int kRecordSchemaVersion = 1;

// The records of a file ("-": standard input), in order. NotFound: cannot be read. InvalidArgument
// "FILE:LINE: .." for what is no record. Lines of another schema are an error too, or, where
// `warnings` is given, left out and counted there.
absl::StatusOr<std::vector<v1::Record>> ReadRecordFile(
    const std::string& path, std::vector<std::string>* warnings = nullptr);

// The valid ones that hold for exactly this target and one of these devices (none: any). What is
// left out is counted in `warnings` with the reason, one line each.
std::vector<v1::Record> MatchingRecords(const std::vector<v1::Record>& records,
                                        const std::string& target,
                                        const std::vector<std::string>& device_keys,
                                        std::vector<std::string>* warnings);

// Of `records`, those of `tasks` whose schedule still replays on the task's program, with label,
// flops and text of the task filled in; the others of these tasks are named in `warnings`.
std::vector<v1::Record> ReplayingRecords(const std::vector<v1::Record>& records,
                                         const std::vector<graph::Task>& tasks,
                                         std::vector<std::string>* warnings);

// Gives the service the records of `path` that a job may start with, before the job is submitted.
// Says on stderr what was taken and why the rest was not; nothing that fits is no error, only the
// file being none of records is.
absl::Status OfferRecords(const ServiceClient& client, const v1::JobSpec& spec,
                          const std::string& model, const std::string& path);

}  // namespace heddle::client
