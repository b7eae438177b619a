// Who uses a database. Schedulers share it: one leads (scheduler/store/leader.h), the others stand by. Whoever makes
// or migrates tables, or copies them, has to be alone. Each has an advisory lock of its connection, which ends with it.
#pragma once

#include "absl/status/status.h"
#include "scheduler/store/postgres/postgres_session.h"

namespace heddle::scheduler {

enum class PostgresUse {
  kShare,     // a scheduler
  kCopyFrom,  // alone
  kCopyTo,    // alone; also a database into which a copy did not end
};

// For PostgresSession::Options::connected. Afterwards the database has the tables of this version; they are made or
// migrated by whoever is alone. FailedPrecondition: somebody else uses the database and one of the two has to be alone (the
// message names the other), or MigratePostgres refuses it.
absl::Status UsePostgres(PostgresUse use, PostgresSession* session);

}  // namespace heddle::scheduler
