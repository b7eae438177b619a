// A record store in a PostgreSQL database. What Apply acknowledged is on the server's disk. While the server
// is away or a connection is lost, Apply gives Unavailable; the same call again goes on where it was
// (RecordStore::Apply). Reads wait, and are repeated.
#pragma once

#include <memory>
#include <string>

#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// `url` as libpq reads it, "postgresql://USER@HOST/DATABASE". Errors are one line that names the database
// and a remedy: Unavailable (it cannot be reached), FailedPrecondition (made by a newer version; a copy of it, or a
// scheduler of another version, uses it, which is named; not fit), Internal. Several schedulers may have it open: see leader.h.
absl::StatusOr<std::unique_ptr<RecordStore>> OpenPostgresRecordStore(const std::string& url);

}  // namespace heddle::scheduler
