#include "scheduler/store/open_store.h"

#include "absl/strings/match.h"
#include "scheduler/store/postgres/postgres_record_store.h"
#include "scheduler/store/postgres/postgres_session.h"
#include "scheduler/store/sqlite_record_store.h"

namespace heddle::scheduler {

bool IsPostgres(const std::string& address) {
  return absl::StartsWith(address, "postgresql://") || absl::StartsWith(address, "postgres://");
}

std::string ShownAddress(const std::string& address) {
  return IsPostgres(address) ? ShownPostgresUrl(address) : address;
}

absl::StatusOr<std::unique_ptr<RecordStore>> OpenRecordStore(const std::string& address,
                                                             bool in_use) {
  return IsPostgres(address) ? OpenPostgresRecordStore(address)
                             : OpenSqliteRecordStore(address, in_use);
}

}  // namespace heddle::scheduler
