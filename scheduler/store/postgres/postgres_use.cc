#include "scheduler/store/postgres/postgres_use.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "scheduler/store/postgres/postgres_schema.h"

namespace heddle::scheduler {
namespace {

// The key of the advisory lock, two numbers of our own: "hedd" in ASCII, and 1.
constexpr int kLockClass = 0x68656464, kLock = 1;
// The server notices within moments that a program was killed, so one that starts then waits for it.
constexpr absl::Duration kPatience = absl::Seconds(3);
constexpr absl::Duration kPauseOfLock = absl::Milliseconds(100);

// Calls a function of advisory locks, which tells whether it did its work.
absl::StatusOr<bool> Call(const char* function, PostgresSession* session) {
  Statement call(session,
                 absl::StrCat("SELECT ", function, "(CAST(? AS INTEGER), CAST(? AS INTEGER))"));
  const bool done = call.Bind(kLockClass, kLock).Step() && call.Int(0) != 0;
  HEDDLE_RETURN_IF_ERROR(call.status());
  return done;
}

// The name of somebody else who has the lock; empty: nobody has.
absl::StatusOr<std::string> OtherUser(PostgresSession* session) {
  Statement query(session,
                  "SELECT coalesce(a.application_name, 'another program') "
                  "FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid=l.pid "
                  "WHERE l.locktype='advisory' AND l.granted AND CAST(l.classid AS BIGINT)=? "
                  "AND CAST(l.objid AS BIGINT)=? AND l.objsubid=2 AND l.pid<>pg_backend_pid() "
                  "AND l.database=(SELECT oid FROM pg_database WHERE datname=current_database())");
  std::string name;
  if (query.Bind(kLockClass, kLock).Step()) name = query.Text(0);
  HEDDLE_RETURN_IF_ERROR(query.status());
  return name;
}

}  // namespace

absl::Status UsePostgres(PostgresUse use, PostgresSession* session) {
  const bool copying = use == PostgresUse::kCopyTo;
  for (const absl::Time give_up = MonotonicNow() + kPatience;; absl::SleepFor(kPauseOfLock)) {
    HEDDLE_ASSIGN_OR_RETURN(const bool fits, PostgresFits(session, copying));
    const bool alone = use != PostgresUse::kShare || !fits;
    HEDDLE_ASSIGN_OR_RETURN(
        const bool locked,
        Call(alone ? "pg_try_advisory_lock" : "pg_try_advisory_lock_shared", session));
    if (locked && alone) {
      HEDDLE_RETURN_IF_ERROR(MigratePostgres(session, copying));
      if (use != PostgresUse::kShare) return absl::OkStatus();
      HEDDLE_RETURN_IF_ERROR(Call("pg_try_advisory_lock_shared", session).status());
      return Call("pg_advisory_unlock", session).status();
    }
    if (locked) {
      // This lock keeps others from changing the tables. They may have changed between the first look and
      // the lock, so their version is read again.
      HEDDLE_ASSIGN_OR_RETURN(const bool still_fits, PostgresFits(session, copying));
      if (still_fits) return absl::OkStatus();
      HEDDLE_RETURN_IF_ERROR(Call("pg_advisory_unlock_shared", session).status());
    }
    if (MonotonicNow() < give_up) continue;
    HEDDLE_ASSIGN_OR_RETURN(const std::string other, OtherUser(session));
    return absl::FailedPreconditionError(
        absl::StrCat(fits ? "" : "its tables are of another version, and ",
                     other.empty() ? "another program" : other,
                     " uses it; stop that one, or give another database"));
  }
}

}  // namespace heddle::scheduler
