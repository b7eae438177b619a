// What the record store asks of an SQL database. There are two drivers: SQLite (sqlite_session.h) and
// PostgreSQL (postgres/postgres_session.h). All SQL but the schemas is written once, in SQLite's words;
// the other driver translates what differs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace heddle::scheduler {

// The codes of errors mean the same with both drivers: ResourceExhausted (disk or quota full), Unavailable
// (locked by another program, or the connection is lost), DataLoss (corrupt), AlreadyExists (a unique index or
// a foreign key), Internal for anything else. The message is the database's own.

// How rows reach the reader. kWhole: all at once, so that other statements may run between them.
// kRowByRow: in constant memory; no other statement of the session may run before the last row is
// read or the statement is bound again or destroyed.
enum class Reading { kWhole, kRowByRow };

// A prepared statement of a driver; see Statement for what the calls mean.
class DriverStatement {
 public:
  virtual ~DriverStatement() = default;
  // Ends the last execution and forgets its error. Parameters keep their values.
  virtual void Reset() = 0;
  virtual void BindNull(int index) = 0;
  virtual void BindInt(int index, int64_t value) = 0;
  virtual void BindReal(int index, double value) = 0;
  virtual void BindText(int index, absl::string_view value) = 0;
  virtual void BindBlob(int index, absl::string_view value) = 0;
  virtual bool Step() = 0;
  virtual absl::Status Run() = 0;
  virtual absl::StatusOr<bool> RunIfItChanges() = 0;
  virtual const absl::Status& status() const = 0;
  virtual int64_t Int(int column) const = 0;
  virtual double Real(int column) const = 0;
  virtual bool IsNull(int column) const = 0;
  virtual std::string Text(int column) const = 0;
};

// One connection. Not thread-safe.
class SqlSession {
 public:
  // How statements without rows run in a transaction. kQueued: Run may only queue them, so that a
  // transaction needs few round trips; an error is then the result of a later call.
  enum class Running { kAtOnce, kQueued };

  virtual ~SqlSession() = default;
  // Never null; an error is the status of the statement. The session must outlive it.
  virtual std::unique_ptr<DriverStatement> Prepare(absl::string_view sql, Reading reading) = 0;
  // Runs one or several statements without parameters, whose rows are dropped.
  virtual absl::Status Execute(const std::string& sql) = 0;

  // Whether Running::kQueued saves anything.
  virtual bool MayQueue() const = 0;
  // Begins a transaction that may write. A connection that was lost is made anew before.
  virtual absl::Status Begin(Running running) = 0;
  // Waits for the queued statements; the first of their errors. Aborted: one that RunIfItChanges
  // queued changed no row.
  virtual absl::Status Settle() = 0;
  // Ends the transaction, also after an error, and is durable if OK. After Unavailable, LastCommitted
  // tells whether it was taken.
  virtual absl::Status Commit() = 0;
  // The same for a transaction that may be made twice. LastCommitted does not tell of it, so what it tells of the last
  // Commit of another program stays right.
  virtual absl::Status CommitRepeatable() { return Commit(); }
  // Nothing of the transaction stays. Without a transaction, does nothing.
  virtual void Rollback() = 0;
  virtual bool InTransaction() const = 0;
  // Part of a transaction that can be undone alone. They do not nest. Undo works also after an error.
  virtual absl::Status Savepoint() = 0;
  virtual absl::Status Release() = 0;
  virtual absl::Status Undo() = 0;
  // Whether the last Commit, which ended with Unavailable, was taken. Unavailable: it cannot be told
  // yet.
  virtual absl::StatusOr<bool> LastCommitted() = 0;
  // In a transaction: undoes those of other programs that have changed the table and wait for their program for half a
  // second, since it may be stopped or cut off. Does nothing where only their program can end them.
  virtual absl::Status EndOtherWriters(absl::string_view table) = 0;
  // The store's clock, of which all programs that use the database read the same time: nanoseconds since a moment
  // that may change when its host starts anew.
  virtual absl::StatusOr<int64_t> ClockNs() = 0;
  // Whether the connection was lost in the last call, so that a read may be repeated on a new one.
  virtual bool Lost() const = 0;
  // Whether Unavailable, for this session, means that no program can write now.
  virtual bool UnavailableToAll() const = 0;
};

struct Blob {
  absl::string_view bytes;
};

// A prepared statement. Its parameters are `?`, or `?1`, `?2` where one is used twice. After a failure its
// calls do nothing until the next Bind, and status() gives the error.
class Statement {
 public:
  Statement(SqlSession* session, absl::string_view sql, Reading reading = Reading::kWhole)
      : driver_(session->Prepare(sql, reading)) {}

  template <typename... Values>
  Statement& Bind(const Values&... values) {
    driver_->Reset();
    int index = 0;
    (BindOne(++index, values), ...);
    return *this;
  }
  // The same for a number of parameters that only the caller knows.
  Statement& BindAll(absl::Span<const int64_t> values) {
    driver_->Reset();
    for (size_t i = 0; i < values.size(); ++i) driver_->BindInt(static_cast<int>(i) + 1, values[i]);
    return *this;
  }
  // True while there is a row.
  bool Step() { return driver_->Step(); }
  // For statements without rows; after Step, ends the reading.
  absl::Status Run() { return driver_->Run(); }
  // As Run; tells whether a row was inserted, changed or deleted. If the session only queues the
  // statement, this is true, and Settle fails if no row was.
  absl::StatusOr<bool> RunIfItChanges() { return driver_->RunIfItChanges(); }
  const absl::Status& status() const { return driver_->status(); }

  // Columns of the row, from 0. Truth values are 0 and 1; null is 0 or "".
  int64_t Int(int column) const { return driver_->Int(column); }
  double Real(int column) const { return driver_->Real(column); }
  bool IsNull(int column) const { return driver_->IsNull(column); }
  std::string Text(int column) const { return driver_->Text(column); }  // of blobs, too

 private:
  template <typename Value>
  void BindOne(int index, const Value& value) {
    if constexpr (std::is_same_v<Value, std::nullptr_t>) {
      driver_->BindNull(index);
    } else if constexpr (requires { value.has_value(); }) {
      value ? BindOne(index, *value) : driver_->BindNull(index);
    } else if constexpr (std::is_same_v<Value, Blob>) {
      driver_->BindBlob(index, value.bytes);
    } else if constexpr (std::is_floating_point_v<Value>) {
      driver_->BindReal(index, value);
    } else if constexpr (std::is_integral_v<Value> || std::is_enum_v<Value>) {
      driver_->BindInt(index, static_cast<int64_t>(value));
    } else {
      driver_->BindText(index, absl::string_view(value));
    }
  }

  const std::unique_ptr<DriverStatement> driver_;
};

}  // namespace heddle::scheduler
