#include "scheduler/store/sqlite_util.h"

#include "absl/strings/str_cat.h"

namespace heddle::scheduler {

absl::Status SqliteStatus(sqlite3* db, int code) {
  const std::string message = db == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(db);
  switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
      return absl::OkStatus();
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(message);
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
