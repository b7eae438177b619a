#include "scheduler/store/sqlite_session.h"

#include <cerrno>

#include "absl/strings/match.h"
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

absl::Status Execute(sqlite3* db, const char* sql) {
  return SqliteStatus(db, sqlite3_exec(db, sql, nullptr, nullptr, nullptr));
}

namespace {

class SqliteStatement final : public DriverStatement {
 public:
  SqliteStatement(sqlite3* db, absl::string_view sql, IdleStatements* idle)
      : db_(db), sql_(sql), idle_(idle), statement_(idle->Take(sql_)) {
    if (statement_ != nullptr) return;
    Check(sqlite3_prepare_v2(db, sql.data(), static_cast<int>(sql.size()), &statement_, nullptr));
  }
  ~SqliteStatement() override { idle_->Put(sql_, statement_); }
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;

  void Reset() override {
    sqlite3_reset(statement_);
    if (statement_ != nullptr)
      status_ = absl::OkStatus();  // a row that was refused before must not affect this one
  }
  void BindNull(int index) override { Check(sqlite3_bind_null(statement_, index)); }
  void BindInt(int index, int64_t value) override {
    Check(sqlite3_bind_int64(statement_, index, value));
  }
  void BindReal(int index, double value) override {
    Check(sqlite3_bind_double(statement_, index, value));
  }
  void BindText(int index, absl::string_view value) override {
    Check(sqlite3_bind_text64(statement_, index, value.empty() ? "" : value.data(), value.size(),
                              SQLITE_TRANSIENT, SQLITE_UTF8));
  }
  void BindBlob(int index, absl::string_view value) override {
    Check(sqlite3_bind_blob64(statement_, index, value.empty() ? "" : value.data(), value.size(),
                              SQLITE_TRANSIENT));
  }
  bool Step() override {
    if (!status_.ok()) return false;
    const int code = sqlite3_step(statement_);
    if (code == SQLITE_ROW) return true;
    if (code != SQLITE_DONE) status_ = SqliteStatus(db_, code);
    sqlite3_reset(statement_);
    return false;
  }
  absl::Status Run() override {
    while (Step()) {
    }
    return status_;
  }
  absl::StatusOr<bool> RunIfItChanges() override {
    HEDDLE_RETURN_IF_ERROR(Run());
    return sqlite3_changes64(db_) != 0;
  }
  const absl::Status& status() const override { return status_; }

  int64_t Int(int column) const override { return sqlite3_column_int64(statement_, column); }
  double Real(int column) const override { return sqlite3_column_double(statement_, column); }
  bool IsNull(int column) const override {
    return sqlite3_column_type(statement_, column) == SQLITE_NULL;
  }
  std::string Text(int column) const override {
    const void* bytes = sqlite3_column_blob(statement_, column);
    if (bytes == nullptr) return "";
    return std::string(static_cast<const char*>(bytes),
                       static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
  }

 private:
  void Check(int code) {
    if (status_.ok() && code != SQLITE_OK) status_ = SqliteStatus(db_, code);
  }

  sqlite3* const db_;
  const std::string sql_;
  IdleStatements* const idle_;
  sqlite3_stmt* statement_;
  absl::Status status_;
};

}  // namespace

IdleStatements::~IdleStatements() { Clear(); }

sqlite3_stmt* IdleStatements::Take(const std::string& sql) {
  const auto found = idle_.find(sql);
  if (found == idle_.end()) return nullptr;
  sqlite3_stmt* const statement = found->second;
  idle_.erase(found);
  return statement;
}

void IdleStatements::Put(const std::string& sql, sqlite3_stmt* statement) {
  if (statement == nullptr) return;
  // Some pragmas take effect when they are prepared.
  if (absl::StartsWithIgnoreCase(sql, "PRAGMA")) {
    sqlite3_finalize(statement);
    return;
  }
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);  // they may be large
  if (idle_.size() >= kMost) Clear();
  if (!idle_.emplace(sql, statement).second) sqlite3_finalize(statement);
}

void IdleStatements::Clear() {
  for (const auto& [sql, statement] : idle_) sqlite3_finalize(statement);
  idle_.clear();
}

std::unique_ptr<DriverStatement> SqliteSession::Prepare(absl::string_view sql, Reading) {
  return std::make_unique<SqliteStatement>(db_, sql, &idle_);
}

absl::Status SqliteSession::Execute(const std::string& sql) {
  return scheduler::Execute(db_, sql.c_str());
}

absl::Status SqliteSession::Begin(Running) {
  errno = 0;  // see SqliteStatus
  return Execute("BEGIN IMMEDIATE");
}

absl::Status SqliteSession::Commit() {
  absl::Status status = Execute("COMMIT");
  if (!status.ok()) Rollback();
  return status;
}

void SqliteSession::Rollback() {
  if (InTransaction()) (void)Execute("ROLLBACK");
}

absl::Status SqliteSession::Savepoint() {
  return Prepare("SAVEPOINT batch", Reading::kWhole)->Run();
}

absl::Status SqliteSession::Release() { return Prepare("RELEASE batch", Reading::kWhole)->Run(); }

absl::Status SqliteSession::Undo() { return Execute("ROLLBACK TO batch; RELEASE batch"); }

}  // namespace heddle::scheduler
