#include "scheduler/store/sqlite_maintenance.h"

#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/store/sqlite_read.h"
#include "scheduler/store/sqlite_util.h"

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

}  // namespace

absl::StatusOr<std::vector<JobBlobs>> BackUpDatabase(
    const std::string& path, const std::string& copy,
    const std::function<bool(int64_t done, int64_t pages)>& go_on) {
  HEDDLE_ASSIGN_OR_RETURN(const Connection from, ConnectReader(path));
  // All steps read in this transaction. So the copy is of one moment, and what the scheduler writes
  // meanwhile does not make it begin anew.
  HEDDLE_RETURN_IF_ERROR(Execute(from.get(), "BEGIN; SELECT count(*) FROM sqlite_schema"));
  HEDDLE_ASSIGN_OR_RETURN(const Connection to,
                          Connect(copy, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  HEDDLE_RETURN_IF_ERROR(Execute(to.get(), "PRAGMA synchronous=OFF"));
  HEDDLE_RETURN_IF_ERROR(CopyPages(from.get(), to.get(), go_on));
  return ReadBlobsOfJobs(to.get(), 0, std::numeric_limits<int64_t>::max());
}

absl::StatusOr<std::vector<JobBlobs>> BlobsOfDatabase(const std::string& path) {
  HEDDLE_ASSIGN_OR_RETURN(const Connection db, ConnectReader(path));
  return ReadBlobsOfJobs(db.get(), 0, std::numeric_limits<int64_t>::max());
}

absl::StatusOr<std::vector<std::string>> CheckDatabase(const std::string& path, int limit,
                                                       const std::function<bool()>& go_on) {
  HEDDLE_ASSIGN_OR_RETURN(const Connection connection, ConnectReader(path));
  sqlite3* const db = connection.get();
  bool cancelled = false;
  auto interrupt = [&] { return cancelled = cancelled || !go_on(); };
  sqlite3_progress_handler(
      db, kStepsAtATime,
      [](void* asked) { return (*static_cast<decltype(interrupt)*>(asked))() ? 1 : 0; },
      &interrupt);
  std::vector<std::string> wrong;
  const auto find = [&](const std::string& sql, auto describe) -> absl::Status {
    Statement rows(db, sql.c_str());
    while (static_cast<int>(wrong.size()) < limit && rows.Step()) {
      if (std::string text = describe(rows); !text.empty()) wrong.push_back(std::move(text));
    }
    if (cancelled) return absl::CancelledError("the check was cancelled");
    if (!absl::IsDataLoss(rows.status())) return rows.status();
    if (static_cast<int>(wrong.size()) < limit)
      wrong.push_back(absl::StrCat("the database is damaged: ", rows.status().message()));
    return absl::OkStatus();
  };
  HEDDLE_RETURN_IF_ERROR(
      find(absl::StrCat("PRAGMA quick_check(", limit, ")"), [](const Statement& row) {
        return row.Text(0) == "ok" ? "" : absl::StrCat("the database is damaged: ", row.Text(0));
      }));
  HEDDLE_RETURN_IF_ERROR(find("PRAGMA foreign_key_check", [](const Statement& row) {
    return absl::StrCat("a row of ", row.Text(0), " refers to a row of ", row.Text(2),
                        " that is not there");
  }));
  HEDDLE_RETURN_IF_ERROR(
      find("SELECT r.job, r.candidate FROM records r LEFT JOIN candidates c ON c.job=r.job AND "
           "c.id=r.candidate WHERE r.job IS NOT NULL AND c.id IS NULL",
           [](const Statement& row) {
             return absl::StrCat("there is a record of candidate ", row.Int(1), " of job ",
                                 JobName(row.Int(0)), ", but no such candidate");
           }));
  return wrong;
}

}  // namespace heddle::scheduler
