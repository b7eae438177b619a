// What can be done with a database while a scheduler uses it. Each function has a connection of its
// own, which only reads, and takes its time: the scheduler's reads and writes do not wait for it. A database
// is given by its address (open_store.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// Copies the SQLite database, as it is at one moment, to the new file `copy`, and returns the blobs that
// the jobs of the copy refer to. FailedPrecondition: it is not SQLite's, and has tools of its own. `go_on` is told pages, those that are done and all; if it returns
// false, the result is Cancelled. ResourceExhausted: the disk is full. Nobody syncs the copy. After
// an error, remove what is there of it.
absl::StatusOr<std::vector<JobBlobs>> BackUpDatabase(
    const std::string& address, const std::string& copy,
    const std::function<bool(int64_t done, int64_t pages)>& go_on);

// The blobs that the jobs of the database refer to.
absl::StatusOr<std::vector<JobBlobs>> BlobsOfDatabase(const std::string& address);

// Its size, with its log; 0: it cannot be told.
int64_t BytesOfDatabase(const std::string& address);

// What is wrong in the database, one line each, at most `limit`; empty: nothing. Checked are SQLite's
// structures, and references between rows; PostgreSQL sees to its structures itself. `go_on` is asked now and then; if it returns false, the
// result is Cancelled.
absl::StatusOr<std::vector<std::string>> CheckDatabase(const std::string& address, int limit,
                                                       const std::function<bool()>& go_on);

}  // namespace heddle::scheduler
