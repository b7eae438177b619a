// The tables, as a list of migrations: migration N takes a database from user_version N to N + 1.
// Migrations are never changed once released; new ones are added at the end.
#pragma once

#include "absl/status/status.h"

struct sqlite3;

namespace heddle::scheduler {

inline constexpr int kSchemaVersion = 15;

// Runs the missing migrations up to that version, in one transaction that also ends the epoch of whoever led
// (leader.h). FailedPrecondition if the database has a newer version, or a negative one: a copy into it did not end
// (copy_store.h); or if it needs a migration and `in_use`, since only who leads may write. Unavailable if it needs a
// migration and the lease of a leader has not ended.
absl::Status Migrate(sqlite3* db, int version = kSchemaVersion, bool in_use = false);

}  // namespace heddle::scheduler
