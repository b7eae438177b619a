#include "scheduler/store/postgres/postgres_owner.h"

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
// The server notices within moments that a scheduler was killed, so one that starts then waits for it.
constexpr absl::Duration kPatience = absl::Seconds(3);
constexpr absl::Duration kPause = absl::Milliseconds(100);
constexpr int kEndMs = 3000;  // a server process that is told to end needs moments

}  // namespace

absl::Status PostgresOwner::Lock(PostgresSession* session) const {
  Statement lock(session, "SELECT pg_try_advisory_lock(CAST(? AS INTEGER), CAST(? AS INTEGER))");
  Statement holder(session,
                   "SELECT l.pid, coalesce(a.application_name, 'another program') "
                   "FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid=l.pid "
                   "WHERE l.locktype='advisory' AND l.granted AND CAST(l.classid AS BIGINT)=? "
                   "AND CAST(l.objid AS BIGINT)=? AND l.objsubid=2 AND l.database="
                   "(SELECT oid FROM pg_database WHERE datname=current_database())");
  Statement end(session, "SELECT pg_terminate_backend(CAST(? AS INTEGER), CAST(? AS BIGINT))");
  for (const absl::Time give_up = MonotonicNow() + kPatience;; absl::SleepFor(kPause)) {
    lock.Bind(kLockClass, kLock);
    const bool taken = lock.Step() && lock.Int(0) != 0;
    HEDDLE_RETURN_IF_ERROR(lock.status());
    if (taken) return absl::OkStatus();
    holder.Bind(kLockClass, kLock);
    const bool held = holder.Step();
    HEDDLE_RETURN_IF_ERROR(holder.status());
    const bool ours = held && holder.Int(0) == process_;
    if (MonotonicNow() > give_up) {
      if (ours) return absl::UnavailableError("the server does not end our lost connection");
      return absl::FailedPreconditionError(
          absl::StrCat(held ? holder.Text(1) : "another scheduler",
                       " uses it; stop that one, or give another database"));
    }
    if (ours) HEDDLE_RETURN_IF_ERROR(end.Bind(process_, kEndMs).Run());
  }
}

absl::Status PostgresOwner::Take(PostgresSession* session) {
  HEDDLE_RETURN_IF_ERROR(Lock(session));
  process_ = session->server_process();
  HEDDLE_RETURN_IF_ERROR(MigratePostgres(session, copying_));
  if (epoch_ == 0) {
    Statement next(session, "UPDATE heddle_owner SET epoch=epoch+1, name=? RETURNING epoch");
    next.Bind(name_);
    if (next.Step()) epoch_ = next.Int(0);
    return next.status();
  }
  Statement owner(session, "SELECT epoch, name FROM heddle_owner");
  const bool same = owner.Step() && owner.Int(0) == epoch_;
  HEDDLE_RETURN_IF_ERROR(owner.status());
  if (same) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      owner.Text(1), " has used it while this one had no connection; start this one again"));
}

}  // namespace heddle::scheduler
