// SqlSession for PostgreSQL, through libpq.
//
// A connection that is lost is made anew by the next call outside a transaction. Within one, all calls fail with
// Unavailable until Rollback. Each connection prepares a statement once, whoever asks for it.
// Statements without rows are pipelined where the transaction allows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "scheduler/store/sql_session.h"

struct pg_conn;

namespace heddle::scheduler {

class PostgresSession final : public SqlSession {
 public:
  struct Options {
    std::string url;          // "postgresql://..", as libpq reads it
    std::string application;  // how the server's lists name the connection; at most 63 bytes
    // How long a call waits for a server that is away, once there was a connection.
    absl::Duration patience = absl::ZeroDuration();
    // Runs on each new connection before anything else; if it fails, so does the call that needed the
    // connection. The server's process of the connection before has ended by then. May be null.
    std::function<absl::Status(PostgresSession*)> connected;
  };

  // Connects. Unavailable: the server cannot be reached or takes no connection; FailedPrecondition: the
  // database is not fit for Heddle.
  static absl::StatusOr<std::unique_ptr<PostgresSession>> Open(Options options);
  ~PostgresSession() override;
  PostgresSession(const PostgresSession&) = delete;
  PostgresSession& operator=(const PostgresSession&) = delete;

  std::unique_ptr<DriverStatement> Prepare(absl::string_view sql, Reading reading) override;
  absl::Status Execute(const std::string& sql) override;
  bool MayQueue() const override { return true; }
  absl::Status Begin(Running running) override;
  absl::Status Settle() override;
  // The table heddle_commit gets the number of each commit, by which LastCommitted recognises it.
  absl::Status Commit() override;
  absl::Status CommitRepeatable() override { return CommitWith("COMMIT"); }
  void Rollback() override;
  bool InTransaction() const override { return in_transaction_; }
  absl::Status Savepoint() override { return Execute("SAVEPOINT batch"); }
  absl::Status Release() override { return Execute("RELEASE SAVEPOINT batch"); }
  absl::Status Undo() override;
  // Tells of a commit before the connection was lost: the server's process of that one has ended, so nothing is under way.
  absl::StatusOr<bool> LastCommitted() override;
  absl::StatusOr<int64_t> ClockNs() override;
  bool Lost() const override;
  absl::Status EndOtherWriters(absl::string_view table) override;
  bool UnavailableToAll() const override { return false; }  // others may reach the server

 private:
  friend class PostgresStatement;
  // A statement as this connection prepared it.
  struct Plan {
    std::string name;
    std::vector<int> parameters;  // the caller's, from 1, in the server's order
    std::vector<unsigned> types;  // of the server's parameters
  };

  explicit PostgresSession(Options options);
  absl::Status Connect();
  absl::Status ConnectOnce();
  // Ends the server's process of the connection before, so that what it did is settled, and locks nothing.
  absl::Status EndFormer();
  void Disconnect();
  bool Connected() const;
  // Makes sure that a statement may run now.
  absl::Status Ready();
  absl::StatusOr<const Plan*> PlanOf(const std::string& sql);
  // Remembers the first error of a transaction, after which the server refuses all else.
  absl::Status Fail(absl::Status status);
  // Runs statements now, and drops their rows.
  absl::Status RunText(const std::string& sql);
  // Ends the transaction by these statements, the last of which is COMMIT.
  absl::Status CommitWith(const std::string& sql);

  static constexpr size_t kMostQueued = 2000;                  // statements
  static constexpr size_t kMostQueuedBytes = size_t{4} << 20;  // of their parameters
  static constexpr size_t kMostPlans = 500;

  const Options options_;
  bool opened_ = false;
  bool connecting_ = false;  // `connected` runs
  pg_conn* connection_ = nullptr;
  int process_ = 0;  // the server's, of the latest connection; 0: there was none, or it has ended
  std::map<std::string, Plan> plans_;
  int64_t prepared_ = 0;           // statements, ever
  const void* reading_ = nullptr;  // the statement that reads row by row
  bool in_transaction_ = false;
  Running running_ = Running::kAtOnce;
  absl::Status failed_;  // of the transaction
  bool pipelining_ = false;
  std::deque<bool> queue_;  // of each queued statement: whether it must change a row
  size_t queued_bytes_ = 0;
  int64_t commit_ = 0;  // number of the last commit that was tried
};

// The SQL in PostgreSQL's words, and which of the caller's parameters, from 1, stand for $1, $2 and
// so on.
struct PostgresSql {
  std::string text;
  std::vector<int> parameters;
};
PostgresSql ToPostgres(absl::string_view sql);

// The error of a call by its SQLSTATE (five characters).
absl::StatusCode CodeOfSqlState(absl::string_view state);

// The URL as it may be shown: host, port and database, without user and password.
std::string ShownPostgresUrl(const std::string& url);

}  // namespace heddle::scheduler
