// The tables, as a list of migrations: number N of the list takes a database from user_version N to
// N + 1. Entries are never changed once released; a new one is added at the end.
#pragma once

#include "absl/status/status.h"

struct sqlite3;

namespace heddle::scheduler {

inline constexpr int kSchemaVersion = 5;

// Runs what is missing up to that version, in one transaction. FailedPrecondition for a database of
// a newer version.
absl::Status Migrate(sqlite3* db, int version = kSchemaVersion);

}  // namespace heddle::scheduler
