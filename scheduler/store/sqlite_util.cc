#include "scheduler/store/sqlite_util.h"

#include <cerrno>

#include "base/status_macros.h"

namespace heddle::scheduler {

namespace {

constexpr int kBusyTimeoutMs =
    3000;  // another program that reads holds locks for moments, not longer

// Whether an I/O error means that there is no room: a quota is used up, or the index of the log could
// not grow. SQLite keeps the error of the system call for some of its errors only, so this asks errno.
// Of an fsync that failed nobody knows what it lost, so that is never taken for a full disk.
bool IsFull(int code) {
  if (code == SQLITE_IOERR_FSYNC || code == SQLITE_IOERR_DIR_FSYNC) return false;
  return errno == ENOSPC || errno == EDQUOT;
}

}  // namespace

absl::Status SqliteStatus(sqlite3* db, int code) {
  const std::string message = db == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(db);
  switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
      return absl::OkStatus();
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(message);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
      return IsFull(code) ? absl::ResourceExhaustedError(message) : absl::InternalError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(message);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(message);
    case SQLITE_CONSTRAINT:
      return absl::AlreadyExistsError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::StatusOr<Connection> Connect(const std::string& path, int flags) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &raw, flags | SQLITE_OPEN_FULLMUTEX, nullptr);
  Connection db(raw);
  if (code != SQLITE_OK) return SqliteStatus(raw, code);
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, kBusyTimeoutMs);
  return db;
}

absl::StatusOr<Connection> ConnectReader(const std::string& path) {
  HEDDLE_ASSIGN_OR_RETURN(Connection db, Connect(path, SQLITE_OPEN_READONLY));
  HEDDLE_RETURN_IF_ERROR(Execute(db.get(), "PRAGMA wal_autocheckpoint=0"));
  return db;
}

Statement::Statement(sqlite3* db, const char* sql) : db_(db) {
  Check(sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr));
}

void Statement::Check(int code) {
  if (status_.ok() && code != SQLITE_OK) status_ = SqliteStatus(db_, code);
}

bool Statement::Step() {
  if (!status_.ok()) return false;
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) status_ = SqliteStatus(db_, code);
  sqlite3_reset(statement_);
  return false;
}

absl::Status Statement::Run() {
  while (Step()) {
  }
  return status_;
}

std::string Statement::Text(int column) const {
  const void* bytes = sqlite3_column_blob(statement_, column);
  if (bytes == nullptr) return "";
  return std::string(static_cast<const char*>(bytes),
                     static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
}

absl::Status Execute(sqlite3* db, const char* sql) {
  return SqliteStatus(db, sqlite3_exec(db, sql, nullptr, nullptr, nullptr));
}

}  // namespace heddle::scheduler
