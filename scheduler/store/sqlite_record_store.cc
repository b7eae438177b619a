#include "scheduler/store/sqlite_record_store.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/store/sql_record_store.h"
#include "scheduler/store/sqlite_schema.h"
#include "scheduler/store/sqlite_session.h"

namespace heddle::scheduler {
namespace {

// A larger database is not checked when it is opened, so that a start does not take the longer the
// more there is. CheckDatabase (maintenance.h) checks it while it is in use.
constexpr int64_t kMostCheckedBytes = int64_t{32} << 20;

absl::StatusOr<int64_t> SizeOf(SqlSession* session) {
  Statement size(session, "SELECT page_count*page_size FROM pragma_page_count, pragma_page_size");
  const int64_t bytes = size.Step() ? size.Int(0) : 0;
  HEDDLE_RETURN_IF_ERROR(size.status());
  return bytes;
}

absl::StatusOr<std::unique_ptr<RecordStore>> OpenConnections(const std::string& path, bool in_use) {
  errno = 0;  // see SqliteStatus
  HEDDLE_ASSIGN_OR_RETURN(Connection write,
                          Connect(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  sqlite3* db = write.get();
  SqliteSession session(db);
  {
    // It answers with the mode that it leaves behind, which need not be the one that was asked for.
    Statement mode(&session, "PRAGMA journal_mode=WAL");
    const std::string now = mode.Step() ? mode.Text(0) : "";
    HEDDLE_RETURN_IF_ERROR(mode.status());
    if (now != "wal")
      return absl::InternalError(absl::StrCat("its journal mode stays ", now, ", it must be WAL"));
  }
  // A transaction of 512 records changes some 1,600 pages of a large database, most of them in indexes. With SQLite's
  // own limit of 2 MB it would write them to the log several times.
  for (const char* sql :
       {"PRAGMA synchronous=FULL", "PRAGMA foreign_keys=ON", "PRAGMA cache_size=-65536"})
    HEDDLE_RETURN_IF_ERROR(Execute(db, sql));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t bytes, SizeOf(&session));
  if (bytes <= kMostCheckedBytes) {
    Statement check(&session, "PRAGMA quick_check(1)");
    const std::string verdict = check.Step() ? check.Text(0) : "";
    HEDDLE_RETURN_IF_ERROR(check.status());
    if (verdict != "ok") return absl::DataLossError(verdict);
  }
  HEDDLE_RETURN_IF_ERROR(Migrate(db, kSchemaVersion, in_use));
  // Pages that a batch changes are copied until it is taken. A few of these copies went to a file, for the rest of the
  // transaction. A migration sorts whole indexes, so it comes before.
  HEDDLE_RETURN_IF_ERROR(Execute(db, "PRAGMA temp_store=MEMORY"));
  HEDDLE_ASSIGN_OR_RETURN(Connection read, ConnectReader(path));
  HEDDLE_ASSIGN_OR_RETURN(Connection users, ConnectReader(path));
  HEDDLE_ASSIGN_OR_RETURN(Connection later, ConnectReader(path));
  return MakeSqlRecordStore({.write = std::make_unique<SqliteSession>(std::move(write)),
                             .read = std::make_unique<SqliteSession>(std::move(read)),
                             .users = std::make_unique<SqliteSession>(std::move(users)),
                             .later = std::make_unique<SqliteSession>(std::move(later))});
}

std::string WayOut(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
      return "; close the program that holds it, then start again";
    case absl::StatusCode::kDataLoss:
      return "; move the file away to begin anew, or bring a copy back (sqlite3's .recover saves "
             "what is readable)";
    case absl::StatusCode::kResourceExhausted:
      return "; free disk space, then start again";
    default:
      return "";
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordStore>> OpenSqliteRecordStore(const std::string& path,
                                                                   bool in_use) {
  absl::StatusOr<std::unique_ptr<RecordStore>> store = OpenConnections(path, in_use);
  if (store.ok()) return store;
  const absl::Status& status = store.status();
  return absl::Status(status.code(), absl::StrCat("database ", path, ": ", status.message(),
                                                  WayOut(status.code())));
}

}  // namespace heddle::scheduler
