#include "scheduler/store/postgres/postgres_record_store.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/store/postgres/postgres_session.h"
#include "scheduler/store/postgres/postgres_use.h"
#include "scheduler/store/sql_record_store.h"

namespace heddle::scheduler {
namespace {

// The scheduler cannot go on without what it reads, so its reads outlast a restart of the server. A user
// can ask again.
constexpr absl::Duration kReadPatience = absl::Seconds(60);
constexpr absl::Duration kUserPatience = absl::Seconds(5);
constexpr size_t kMostName = 63;  // bytes that the server keeps

// "heddle-scheduler HOST:PROCESS"
std::string UserName() {
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  const std::string process = absl::StrCat(":", getpid());
  std::string name = absl::StrCat("heddle-scheduler ", host);
  name.resize(std::min(name.size(), kMostName - process.size()));
  return name + process;
}

absl::StatusOr<std::unique_ptr<RecordStore>> OpenSessions(const std::string& url) {
  const std::string name = UserName();
  SqlSessions sessions;
  HEDDLE_ASSIGN_OR_RETURN(
      sessions.write,
      PostgresSession::Open(
          {.url = url, .application = name, .connected = [](PostgresSession* session) {
             return UsePostgres(PostgresUse::kShare, session);
           }}));
  HEDDLE_ASSIGN_OR_RETURN(
      sessions.read,
      PostgresSession::Open(
          {.url = url, .application = name, .patience = kReadPatience, .connected = nullptr}));
  for (std::unique_ptr<SqlSession>* session : {&sessions.users, &sessions.later}) {
    HEDDLE_ASSIGN_OR_RETURN(
        *session,
        PostgresSession::Open(
            {.url = url, .application = name, .patience = kUserPatience, .connected = nullptr}));
  }
  return MakeSqlRecordStore(std::move(sessions));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordStore>> OpenPostgresRecordStore(const std::string& url) {
  absl::StatusOr<std::unique_ptr<RecordStore>> store = OpenSessions(url);
  if (store.ok()) return store;
  const absl::Status& status = store.status();
  return absl::Status(status.code(),
                      absl::StrCat(ShownPostgresUrl(url), ": ", status.message(),
                                   absl::IsUnavailable(status)
                                       ? "; see to the server or the address, then start again"
                                       : ""));
}

}  // namespace heddle::scheduler
