// SqlSession for SQLite, and the rest of its C API that the store needs, with RAII and absl::Status.
#pragma once

#include <sqlite3.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "scheduler/store/sql_session.h"

namespace heddle::scheduler {

// Converts an error code (sql_session.h tells which codes there are). The message is SQLite's own. An
// I/O error counts as a full disk if errno says so; set it to 0 before the first call of what may fail.
absl::Status SqliteStatus(sqlite3* db, int code);

struct CloseConnection {
  void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
};
using Connection = std::unique_ptr<sqlite3, CloseConnection>;

// Opens a connection, with SQLite's flags for it. It waits some seconds for locks of other programs.
absl::StatusOr<Connection> Connect(const std::string& path, int flags);
// Opens one that only reads. Only one connection may write and checkpoint at a time, because SQLite 3.40
// can damage the log when two do: of a process only one, and of several processes only that of the
// scheduler that leads (leader.h).
absl::StatusOr<Connection> ConnectReader(const std::string& path);

absl::Status Execute(sqlite3* db, const char* sql);

// Statements of a connection that wait for their next use: to prepare one takes longer than most look-ups. Not thread-safe.
class IdleStatements {
 public:
  IdleStatements() = default;
  ~IdleStatements();
  IdleStatements(const IdleStatements&) = delete;
  IdleStatements& operator=(const IdleStatements&) = delete;

  // Null: there is none of this text.
  sqlite3_stmt* Take(const std::string& sql);
  void Put(const std::string& sql, sqlite3_stmt* statement);

 private:
  // Of some 20 KiB each. The store has about as many texts; when there are more, it begins anew.
  static constexpr size_t kMost = 128;
  void Clear();

  std::unordered_map<std::string, sqlite3_stmt*> idle_;
};

class SqliteSession final : public SqlSession {
 public:
  explicit SqliteSession(Connection owned) : owned_(std::move(owned)), db_(owned_.get()) {}
  // The connection must outlive the session.
  explicit SqliteSession(sqlite3* db) : db_(db) {}

  std::unique_ptr<DriverStatement> Prepare(absl::string_view sql, Reading reading) override;
  absl::Status Execute(const std::string& sql) override;
  bool MayQueue() const override { return false; }
  absl::Status Begin(Running running) override;
  absl::Status Settle() override { return absl::OkStatus(); }
  absl::Status Commit() override;
  void Rollback() override;
  // False also after an error that ended the transaction by itself, such as a full disk.
  bool InTransaction() const override { return sqlite3_get_autocommit(db_) == 0; }
  absl::Status Savepoint() override;
  absl::Status Release() override;
  absl::Status Undo() override;
  // A commit that failed was not taken.
  absl::StatusOr<bool> LastCommitted() override { return false; }
  // Clocks of several processes on one host: CLOCK_MONOTONIC is the same for all of them.
  absl::StatusOr<int64_t> ClockNs() override { return absl::ToUnixNanos(MonotonicNow()); }
  bool Lost() const override { return false; }
  absl::Status EndOtherWriters(absl::string_view) override { return absl::OkStatus(); }
  bool UnavailableToAll() const override { return true; }  // the file is locked

  sqlite3* db() const { return db_; }

 private:
  const Connection owned_;
  sqlite3* const db_;
  IdleStatements idle_;
};

}  // namespace heddle::scheduler
