// The tables of the store in PostgreSQL, as a list of migrations. Versions are those of SQLite's schema
// (sqlite_schema.h), so that both stores of a version hold the same; the first one here is 13.
// A database of that version may also have a table heddle_owner, which nothing reads.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/store/postgres/postgres_session.h"
#include "scheduler/store/sqlite_schema.h"

namespace heddle::scheduler {

// Whether the database has the tables of the version, or is what `copying` goes on with. FailedPrecondition: it has a newer
// version, or a copy into it did not end (copy_store.h).
absl::StatusOr<bool> PostgresFits(PostgresSession* session, bool copying,
                                  int version = kSchemaVersion);
// Makes the tables, or runs the missing migrations, in one transaction. Errors as above. Nobody else may use the
// database meanwhile (postgres_use.h). A leader that does nevertheless, since its connection keeps no locks, is found
// out: this waits for its transaction, or ends one that stands still, and its next one is refused since its epoch is
// over (leader.h). Also FailedPrecondition: the version is older than the first one here.
absl::Status MigratePostgres(PostgresSession* session, bool copying, int version = kSchemaVersion);

// The version of the database; 0: it has no tables; negative: a copy into it did not end.
absl::StatusOr<int64_t> PostgresVersion(PostgresSession* session);
// Ends the epoch of whoever leads, too.
absl::Status SetPostgresVersion(int64_t version, PostgresSession* session);

}  // namespace heddle::scheduler
