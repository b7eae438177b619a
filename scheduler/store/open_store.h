// Which store an address names.
#pragma once

#include <memory>
#include <string>

#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// Whether the address names a PostgreSQL database, as "postgresql://USER@HOST/DATABASE" does. Any other
// is the path of an SQLite file.
bool IsPostgres(const std::string& address);

// The address for messages and logs, without user name and password.
std::string ShownAddress(const std::string& address);

// Opens the store; see sqlite_record_store.h and postgres/postgres_record_store.h for the errors.
// `in_use`: another scheduler may be using the store. Then its tables are not migrated to a newer version.
absl::StatusOr<std::unique_ptr<RecordStore>> OpenRecordStore(const std::string& address,
                                                             bool in_use = false);

}  // namespace heddle::scheduler
