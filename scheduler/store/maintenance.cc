#include "scheduler/store/maintenance.h"

#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/store/open_store.h"
#include "scheduler/store/postgres/postgres_session.h"
#include "scheduler/store/sql_read.h"
#include "scheduler/store/sqlite_session.h"

namespace heddle::scheduler {
namespace {

constexpr int kPagesAtATime = 2048;       // 8 MiB
constexpr int kStepsAtATime = 1'000'000;  // of SQLite's virtual machine: some milliseconds

absl::Status CopyPages(sqlite3* from, sqlite3* to,
                       const std::function<bool(int64_t done, int64_t pages)>& go_on) {
  sqlite3_backup* const backup = sqlite3_backup_init(to, "main", from, "main");
  if (backup == nullptr) return SqliteStatus(to, sqlite3_extended_errcode(to));
  absl::Cleanup finish = [backup] { sqlite3_backup_finish(backup); };
  for (int code = SQLITE_OK; code != SQLITE_DONE;) {
    code = sqlite3_backup_step(backup, kPagesAtATime);
    if (code != SQLITE_OK && code != SQLITE_DONE) break;  // finishing tells the error
    const int64_t pages = sqlite3_backup_pagecount(backup);
    if (!go_on(pages - sqlite3_backup_remaining(backup), pages))
      return absl::CancelledError("the backup was cancelled");
  }
  std::move(finish).Cancel();
  return SqliteStatus(to, sqlite3_backup_finish(backup));
}

// A connection that only reads.
absl::StatusOr<std::unique_ptr<SqlSession>> OpenReader(const std::string& address) {
  if (IsPostgres(address)) {
    HEDDLE_ASSIGN_OR_RETURN(
        std::unique_ptr<PostgresSession> session,
        PostgresSession::Open(
            {.url = address, .application = "heddle: a check", .connected = nullptr}));
    HEDDLE_RETURN_IF_ERROR(session->Execute("SET default_transaction_read_only=on"));
    return session;
  }
  HEDDLE_ASSIGN_OR_RETURN(Connection db, ConnectReader(address));
  return std::make_unique<SqliteSession>(std::move(db));
}

using GoOn = std::function<bool()>;

// Collects what is wrong.
class Findings {
 public:
  Findings(SqlSession* session, int limit, const GoOn& go_on)
      : session_(session), limit_(limit), go_on_(go_on) {}

  // Adds the line that `describe` makes of each row of the query, unless it is empty.
  template <typename Describe>
  absl::Status Find(const std::string& sql, Describe describe) {
    Statement rows(session_, sql, Reading::kRowByRow);
    while (static_cast<int>(wrong_.size()) < limit_ && rows.Step()) {
      if (!go_on_()) return absl::CancelledError("the check was cancelled");
      if (std::string text = describe(rows); !text.empty()) wrong_.push_back(std::move(text));
    }
    if (!absl::IsDataLoss(rows.status())) return rows.status();
    if (static_cast<int>(wrong_.size()) < limit_)
      wrong_.push_back(absl::StrCat("the database is damaged: ", rows.status().message()));
    return absl::OkStatus();
  }
  absl::Status FindStrayRecords() {
    return Find(
        "SELECT r.job, r.candidate FROM records r LEFT JOIN candidates c ON c.job=r.job AND "
        "c.id=r.candidate WHERE r.job IS NOT NULL AND c.id IS NULL",
        [](const Statement& row) {
          return absl::StrCat("there is a record of candidate ", row.Int(1), " of job ",
                              JobName(row.Int(0)), ", but no such candidate");
        });
  }
  std::vector<std::string> Take() { return std::move(wrong_); }

 private:
  SqlSession* const session_;
  const int limit_;
  const GoOn& go_on_;
  std::vector<std::string> wrong_;
};

absl::StatusOr<std::vector<std::string>> CheckSqlite(const std::string& path, int limit,
                                                     const GoOn& go_on) {
  HEDDLE_ASSIGN_OR_RETURN(const Connection connection, ConnectReader(path));
  sqlite3* const db = connection.get();
  bool cancelled = false;
  auto interrupt = [&] { return cancelled = cancelled || !go_on(); };
  sqlite3_progress_handler(
      db, kStepsAtATime,
      [](void* asked) { return (*static_cast<decltype(interrupt)*>(asked))() ? 1 : 0; },
      &interrupt);
  SqliteSession session(db);
  const GoOn not_cancelled = [&] { return !cancelled; };
  Findings findings(&session, limit, not_cancelled);
  absl::Status status =
      findings.Find(absl::StrCat("PRAGMA quick_check(", limit, ")"), [](const Statement& row) {
        return row.Text(0) == "ok" ? "" : absl::StrCat("the database is damaged: ", row.Text(0));
      });
  if (status.ok()) {
    status = findings.Find("PRAGMA foreign_key_check", [](const Statement& row) {
      return absl::StrCat("a row of ", row.Text(0), " refers to a row of ", row.Text(2),
                          " that is not there");
    });
  }
  if (status.ok()) status = findings.FindStrayRecords();
  if (cancelled) return absl::CancelledError("the check was cancelled");
  HEDDLE_RETURN_IF_ERROR(status);
  return findings.Take();
}

}  // namespace

absl::StatusOr<std::vector<JobBlobs>> BackUpDatabase(
    const std::string& address, const std::string& copy,
    const std::function<bool(int64_t done, int64_t pages)>& go_on) {
  if (IsPostgres(address)) {
    return absl::FailedPreconditionError(
        "the service keeps its database in PostgreSQL: back that up with pg_dump, then copy the "
        "folder "
        "`blobs` of its data folder");
  }
  HEDDLE_ASSIGN_OR_RETURN(const Connection from, ConnectReader(address));
  // All steps read in this transaction. So the copy is of one moment, and what the scheduler writes
  // meanwhile does not make it begin anew.
  HEDDLE_RETURN_IF_ERROR(Execute(from.get(), "BEGIN; SELECT count(*) FROM sqlite_schema"));
  HEDDLE_ASSIGN_OR_RETURN(const Connection to,
                          Connect(copy, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  HEDDLE_RETURN_IF_ERROR(Execute(to.get(), "PRAGMA synchronous=OFF"));
  HEDDLE_RETURN_IF_ERROR(CopyPages(from.get(), to.get(), go_on));
  SqliteSession session(to.get());
  return ReadBlobsOfJobs(&session, 0, std::numeric_limits<int64_t>::max());
}

absl::StatusOr<std::vector<JobBlobs>> BlobsOfDatabase(const std::string& address) {
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<SqlSession> session, OpenReader(address));
  return ReadBlobsOfJobs(session.get(), 0, std::numeric_limits<int64_t>::max());
}

int64_t BytesOfDatabase(const std::string& address) {
  int64_t bytes = 0;
  if (IsPostgres(address)) {
    const auto session = OpenReader(address);
    if (!session.ok()) return 0;
    Statement size(session->get(), "SELECT pg_database_size(current_database())");
    return size.Step() ? size.Int(0) : 0;
  }
  for (const char* end : {"", "-wal"}) {
    std::error_code error;
    const auto size = std::filesystem::file_size(address + end, error);
    if (!error) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

absl::StatusOr<std::vector<std::string>> CheckDatabase(const std::string& address, int limit,
                                                       const std::function<bool()>& go_on) {
  if (!IsPostgres(address)) return CheckSqlite(address, limit, go_on);
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<SqlSession> session, OpenReader(address));
  Findings findings(session.get(), limit, go_on);
  HEDDLE_RETURN_IF_ERROR(findings.FindStrayRecords());
  return findings.Take();
}

}  // namespace heddle::scheduler
