// The part of SQLite's C API that the store needs, with RAII and absl::Status.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace heddle::scheduler {

// Converts an error code: ResourceExhausted (disk or quota full), Unavailable (locked by another process),
// DataLoss (corrupt or no database), AlreadyExists (a unique index), otherwise Internal. The
// message is SQLite's own. An I/O error counts as a full disk if errno says so; set it to 0 before the
// first call of what may fail.
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

struct Blob {
  absl::string_view bytes;
};

// A prepared statement. After a failure its calls do nothing until the next Bind, and status()
// gives the error.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql);
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  template <typename... Values>
  Statement& Bind(const Values&... values) {
    sqlite3_reset(statement_);
    if (statement_ != nullptr)
      status_ = absl::OkStatus();  // a row that was refused before must not affect this one
    int index = 0;
    (BindOne(++index, values), ...);
    return *this;
  }
  // True while there is a row.
  bool Step();
  // For statements without rows.
  absl::Status Run();
  const absl::Status& status() const { return status_; }

  int64_t Int(int column) const { return sqlite3_column_int64(statement_, column); }
  double Real(int column) const { return sqlite3_column_double(statement_, column); }
  bool IsNull(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
  std::string Text(int column) const;

 private:
  template <typename Value>
  void BindOne(int index, const Value& value) {
    if constexpr (std::is_same_v<Value, std::nullptr_t>) {
      Check(sqlite3_bind_null(statement_, index));
    } else if constexpr (requires { value.has_value(); }) {
      value ? BindOne(index, *value) : BindOne(index, nullptr);
    } else if constexpr (std::is_same_v<Value, Blob>) {
      Check(sqlite3_bind_blob64(statement_, index, value.bytes.empty() ? "" : value.bytes.data(),
                                value.bytes.size(), SQLITE_TRANSIENT));
    } else if constexpr (std::is_floating_point_v<Value>) {
      Check(sqlite3_bind_double(statement_, index, value));
    } else if constexpr (std::is_integral_v<Value> || std::is_enum_v<Value>) {
      Check(sqlite3_bind_int64(statement_, index, static_cast<int64_t>(value)));
    } else {
      const absl::string_view text(value);
      Check(sqlite3_bind_text64(statement_, index, text.empty() ? "" : text.data(), text.size(),
                                SQLITE_TRANSIENT, SQLITE_UTF8));
    }
  }
  void Check(int code);

  sqlite3* db_;
  sqlite3_stmt* statement_ = nullptr;
  absl::Status status_;
};

absl::Status Execute(sqlite3* db, const char* sql);

}  // namespace heddle::scheduler
