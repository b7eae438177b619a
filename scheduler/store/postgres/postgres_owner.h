// One scheduler uses a database at a time. It holds an advisory lock of the connection that writes, and its
// epoch, a number that grows each time a scheduler takes the database. Several schedulers on one
// database would change this file, and nothing else of the store but its memory of fences and ids
// (sql_writer.h).
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "scheduler/store/postgres/postgres_session.h"

namespace heddle::scheduler {

class PostgresOwner {
 public:
  // `name`: who takes the database, for people; the connection's application has the same name.
  // `copying`: also one into which a copy did not end.
  explicit PostgresOwner(std::string name, bool copying = false)
      : name_(std::move(name)), copying_(copying) {}

  // For PostgresSession::Options::connected: takes the database, makes its tables, or takes it
  // again on a new connection. A server process that still works for the connection before is ended
  // first, so that what it did is settled. FailedPrecondition: another scheduler uses the database,
  // or did so since; the message names it.
  absl::Status Take(PostgresSession* session);

 private:
  absl::Status Lock(PostgresSession* session) const;

  const std::string name_;
  const bool copying_;
  int process_ = 0;    // the server's, of the connection that held the lock last
  int64_t epoch_ = 0;  // 0: never taken
};

}  // namespace heddle::scheduler
