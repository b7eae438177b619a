#include "scheduler/store/copy_store.h"

#include <bit>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/one_line.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "scheduler/store/leader.h"
#include "scheduler/store/open_store.h"
#include "scheduler/store/postgres/postgres_schema.h"
#include "scheduler/store/postgres/postgres_session.h"
#include "scheduler/store/postgres/postgres_use.h"
#include "scheduler/store/sqlite_schema.h"
#include "scheduler/store/sqlite_session.h"

namespace heddle::scheduler {
namespace {

constexpr int64_t kRowsAtATime = 20'000;            // in a transaction
constexpr size_t kBytesAtATime = size_t{16} << 20;  // about
constexpr char kApplication[] = "heddle-scheduler copy-store";

enum class Kind { kInteger, kReal, kText, kBlob };
struct Column {
  const char* name;
  Kind kind;
};
struct Table {
  const char* name;
  size_t key;  // so many of the columns, the first ones, are the primary key
  std::vector<Column> columns;
};

// Each table after those that it refers to.
const std::vector<Table>& Tables() {
  constexpr Kind kInt = Kind::kInteger, kReal = Kind::kReal, kText = Kind::kText,
                 kBlob = Kind::kBlob;
  static const auto* const tables = new std::vector<Table>{
      {"workloads",
       1,
       {{"id", kInt}, {"key", kText}, {"text", kText}, {"label", kText}, {"flops", kReal}}},
      {"targets", 1, {{"id", kInt}, {"text", kText}}},
      {"devices", 1, {{"id", kInt}, {"key", kText}, {"machine", kText}}},
      {"jobs",
       1,
       {{"id", kInt},
        {"spec", kBlob},
        {"state", kInt},
        {"paused", kInt},
        {"reason", kText},
        {"fault_kind", kInt},
        {"fault_message", kText},
        {"device_key", kText},
        {"model_digest", kText},
        {"module_digest", kText},
        {"created_ns", kInt},
        {"finished_ns", kInt},
        {"running_ms", kInt},
        {"notes", kBlob},
        {"user", kText},
        {"submit_key", kText}}},
      {"tasks",
       2,
       {{"job", kInt},
        {"idx", kInt},
        {"workload", kInt},
        {"weight", kInt},
        {"budget", kInt},
        {"known", kInt},
        {"known_valid", kInt},
        {"done", kInt},
        {"exhausted", kInt},
        {"warm_pending", kInt},
        {"known_best_ns", kReal},
        {"known_untuned_ns", kReal},
        {"state", kBlob},
        {"report", kBlob},
        {"estimated_weight", kInt},
        {"rival_weight", kInt}}},
      {"candidates",
       2,
       {{"job", kInt},
        {"id", kInt},
        {"task", kInt},
        {"trace", kText},
        {"origin", kText},
        {"attempts", kInt},
        {"learned", kInt},
        {"predicted", kReal},
        {"predicted_from", kInt},
        {"kept_outcome", kInt},
        {"kept_ns", kReal}}},
      {"records",
       1,
       {{"id", kInt},
        {"workload", kInt},
        {"target", kInt},
        {"device", kInt},
        {"trace", kText},
        {"outcome", kInt},
        {"median_ns", kReal},
        {"created_ns", kInt},
        {"job", kInt},
        {"candidate", kInt},
        {"attempt", kInt},
        {"provenance", kText},
        {"measurement", kBlob},
        {"digest", kBlob},
        {"worker", kText},
        {"imported_by", kText},
        {"retracted_ns", kInt},
        {"retracted_by", kText},
        {"retraction", kText}}},
      {"retracted_digests", 1, {{"digest", kBlob}}},
      {"stages",
       1,
       {{"attempt", kInt},
        {"job", kInt},
        {"task", kText},
        {"kind", kInt},
        {"worker", kText},
        {"slot", kText},
        {"lease", kText},
        {"start_ns", kInt},
        {"end_ns", kInt},
        {"fault_kind", kInt},
        {"fault_message", kText},
        {"candidates", kInt}}},
      {"fences", 2, {{"worker", kText}, {"slot", kText}, {"token", kInt}}},
      {"experience",
       3,
       {{"workload", kInt},
        {"target", kInt},
        {"device", kInt},
        {"made_ns", kInt},
        {"samples", kBlob},
        {"measured", kInt},
        {"version", kInt}}},
      {"others_models",
       3,
       {{"target", kInt},
        {"device", kInt},
        {"strategy", kText},
        {"made_ns", kInt},
        {"since", kInt},
        {"model", kBlob}}},
      {"kernel_factors",
       3,
       {{"workload", kInt},
        {"target", kInt},
        {"device", kInt},
        {"made_ns", kInt},
        {"op", kText},
        {"layout", kText},
        {"window", kText},
        {"log_factor", kReal},
        {"version", kInt}}},
      {"record_groups",
       3,
       {{"workload", kInt},
        {"target", kInt},
        {"device", kInt},
        {"counted", kInt},
        {"records", kInt},
        {"known", kInt},
        {"valid", kInt},
        {"best_ns", kReal},
        {"untuned_ns", kReal}}}};
  return *tables;
}

using CopiedValue = std::variant<std::monostate, int64_t, double, std::string>;  // monostate: null
using Row = std::vector<CopiedValue>;

std::string Names(const Table& table, size_t count, const char* after = "") {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i)
    names.push_back(absl::StrCat("\"", table.columns[i].name, "\"", after));
  return absl::StrJoin(names, ",");
}

std::string Parameters(size_t count) {
  return absl::StrJoin(std::vector<std::string>(count, "?"), ",");
}

// The first `count` columns of the statement's row. Texts are made what PostgreSQL takes, so that a copy
// equals its original.
Row ReadRow(const DriverStatement& from, const Table& table, size_t count) {
  Row row(count);
  for (size_t i = 0; i < count; ++i) {
    const int column = static_cast<int>(i);
    if (from.IsNull(column)) continue;
    switch (table.columns[i].kind) {
      case Kind::kInteger:
        row[i] = from.Int(column);
        break;
      case Kind::kReal:
        row[i] = from.Real(column) + 0.0;  // SQLite gives a stored -0 as 0, PostgreSQL as -0
        break;
      case Kind::kText:
        row[i] = ValidText(from.Text(column));
        break;
      case Kind::kBlob:
        row[i] = from.Text(column);
        break;
    }
  }
  return row;
}

size_t BytesOfRow(const Row& row) {
  size_t bytes = 0;
  for (const CopiedValue& value : row) {
    const auto* text = std::get_if<std::string>(&value);
    bytes += text != nullptr ? text->size() : sizeof(int64_t);
  }
  return bytes;
}

// The row's values become the statement's parameters, from 1.
void Bind(const Row& row, const Table& table, DriverStatement* to) {
  to->Reset();
  for (size_t i = 0; i < row.size(); ++i) {
    const int index = static_cast<int>(i) + 1;
    if (const auto* integer = std::get_if<int64_t>(&row[i])) {
      to->BindInt(index, *integer);
    } else if (const auto* real = std::get_if<double>(&row[i])) {
      to->BindReal(index, *real);
    } else if (const auto* text = std::get_if<std::string>(&row[i])) {
      table.columns[i].kind == Kind::kBlob ? to->BindBlob(index, *text)
                                           : to->BindText(index, *text);
    } else {
      to->BindNull(index);
    }
  }
}

// The rows of a table in the order of its key, those after a row's key if there is one.
class Reader {
 public:
  Reader(SqlSession* session, const Table& table, const std::optional<Row>& after)
      : table_(table),
        statement_(session->Prepare(
            absl::StrCat("SELECT ", Names(table, table.columns.size()), " FROM ", table.name,
                         after ? absl::StrCat(" WHERE (", Names(table, table.key), ")>(",
                                              Parameters(table.key), ")")
                               : "",
                         " ORDER BY ", Names(table, table.key)),
            Reading::kRowByRow)) {
    Bind(after.value_or(Row()), table, statement_.get());
  }
  bool Next(Row* row) {
    if (!statement_->Step()) return false;
    *row = ReadRow(*statement_, table_, table_.columns.size());
    return true;
  }
  const absl::Status& status() const { return statement_->status(); }

 private:
  const Table& table_;
  const std::unique_ptr<DriverStatement> statement_;
};

// One of the two stores.
class End {
 public:
  virtual ~End() = default;
  virtual SqlSession* session() = 0;
  // As kSchemaVersion; negative: a copy into the store did not end.
  virtual absl::StatusOr<int64_t> Version() = 0;
  // Ends the epoch of whoever leads, too.
  virtual absl::Status SetVersion(int64_t version) = 0;
};

class SqliteEnd final : public End {
 public:
  explicit SqliteEnd(Connection db) : session_(std::move(db)) {}
  SqlSession* session() override { return &session_; }
  absl::StatusOr<int64_t> Version() override {
    Statement query(&session_, "PRAGMA user_version");
    const int64_t version = query.Step() ? query.Int(0) : 0;
    HEDDLE_RETURN_IF_ERROR(query.status());
    return version;
  }
  absl::Status SetVersion(int64_t version) override {
    return session_.Execute(
        absl::StrCat("BEGIN IMMEDIATE;", kEndEpochs, "PRAGMA user_version=", version, ";COMMIT"));
  }

 private:
  SqliteSession session_;
};

class PostgresEnd final : public End {
 public:
  explicit PostgresEnd(std::unique_ptr<PostgresSession> session) : session_(std::move(session)) {}
  SqlSession* session() override { return session_.get(); }
  absl::StatusOr<int64_t> Version() override { return PostgresVersion(session_.get()); }
  absl::Status SetVersion(int64_t version) override {
    return SetPostgresVersion(version, session_.get());
  }

 private:
  const std::unique_ptr<PostgresSession> session_;
};

// Opens a store whose tables are of this version. `copying`: it may be new, or an unfinished copy.
absl::StatusOr<std::unique_ptr<End>> OpenEnd(const std::string& address, bool copying) {
  if (IsPostgres(address)) {
    const PostgresUse use = copying ? PostgresUse::kCopyTo : PostgresUse::kCopyFrom;
    HEDDLE_ASSIGN_OR_RETURN(
        std::unique_ptr<PostgresSession> session,
        PostgresSession::Open(
            {.url = address, .application = kApplication, .connected = [use](PostgresSession* on) {
               return UsePostgres(use, on);
             }}));
    // A large table is read in one statement.
    HEDDLE_RETURN_IF_ERROR(session->Execute("SET statement_timeout=0"));
    return std::make_unique<PostgresEnd>(std::move(session));
  }
  const int create = copying ? SQLITE_OPEN_CREATE : 0;
  HEDDLE_ASSIGN_OR_RETURN(Connection db, Connect(address, SQLITE_OPEN_READWRITE | create));
  HEDDLE_RETURN_IF_ERROR(Execute(db.get(), "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL"));
  sqlite3* const raw = db.get();
  auto end = std::make_unique<SqliteEnd>(std::move(db));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t version, end->Version());
  if (!copying || version != -kSchemaVersion) HEDDLE_RETURN_IF_ERROR(Migrate(raw));
  return end;
}

absl::StatusOr<bool> IsEmpty(SqlSession* session) {
  for (const Table& table : Tables()) {
    Statement row(session, absl::StrCat("SELECT 1 FROM ", table.name, " LIMIT 1"));
    const bool there = row.Step();
    HEDDLE_RETURN_IF_ERROR(row.status());
    if (there) return false;
  }
  return true;
}

// The key of the last row; nullopt: the table is empty.
absl::StatusOr<std::optional<Row>> LastKey(SqlSession* session, const Table& table) {
  const std::unique_ptr<DriverStatement> last =
      session->Prepare(absl::StrCat("SELECT ", Names(table, table.key), " FROM ", table.name,
                                    " ORDER BY ", Names(table, table.key, " DESC"), " LIMIT 1"),
                       Reading::kWhole);
  std::optional<Row> key;
  if (last->Step()) key = ReadRow(*last, table, table.key);
  HEDDLE_RETURN_IF_ERROR(last->status());
  return key;
}

// Copies the rows after those that are there; how many.
absl::StatusOr<int64_t> CopyTable(const Table& table, SqlSession* from, SqlSession* to,
                                  const std::function<void(int64_t)>& progress) {
  HEDDLE_ASSIGN_OR_RETURN(const std::optional<Row> last, LastKey(to, table));
  Reader reader(from, table, last);
  const std::unique_ptr<DriverStatement> insert =
      to->Prepare(absl::StrCat("INSERT INTO ", table.name, "(", Names(table, table.columns.size()),
                               ") VALUES(", Parameters(table.columns.size()), ")"),
                  Reading::kWhole);
  int64_t copied = 0;
  for (bool more = true; more;) {
    HEDDLE_RETURN_IF_ERROR(to->Begin(SqlSession::Running::kQueued));
    Row row;
    size_t bytes = 0;
    int64_t rows = 0;
    absl::Status status;
    while (status.ok() && rows < kRowsAtATime && bytes < kBytesAtATime &&
           (more = reader.Next(&row))) {
      Bind(row, table, insert.get());
      status = insert->Run();
      bytes += BytesOfRow(row);
      ++rows;
    }
    if (status.ok()) status = reader.status();
    if (!status.ok()) {
      to->Rollback();
      return status;
    }
    HEDDLE_RETURN_IF_ERROR(to->Commit());
    copied += rows;
    progress(copied);
  }
  return copied;
}

struct Summary {
  int64_t rows = 0;
  std::string digest;
};

// Of all rows, whatever the database is.
absl::StatusOr<Summary> Summarise(SqlSession* session, const Table& table) {
  Reader reader(session, table, std::nullopt);
  Sha256 hash;
  Summary found;
  Row row;
  std::string bytes;
  while (reader.Next(&row)) {
    bytes.clear();
    for (const CopiedValue& value : row) {
      if (const auto* integer = std::get_if<int64_t>(&value)) {
        absl::StrAppend(&bytes, "i", *integer, ",");
      } else if (const auto* real = std::get_if<double>(&value)) {
        absl::StrAppend(&bytes, "r", std::bit_cast<uint64_t>(*real), ",");
      } else if (const auto* text = std::get_if<std::string>(&value)) {
        absl::StrAppend(&bytes, "s", text->size(), ",", *text);
      } else {
        bytes += "n";
      }
    }
    hash.Update(bytes);
    ++found.rows;
  }
  HEDDLE_RETURN_IF_ERROR(reader.status());
  found.digest = hash.Hex();
  return found;
}

absl::Status Named(const absl::Status& status, const std::string& address) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(ShownAddress(address), ": ", status.message()));
}

// Makes `to` a store that opens as none, until all is copied.
absl::Status BeginCopy(End* to) {
  HEDDLE_ASSIGN_OR_RETURN(const int64_t version, to->Version());
  if (version == -kSchemaVersion) return absl::OkStatus();
  HEDDLE_ASSIGN_OR_RETURN(const bool empty, IsEmpty(to->session()));
  if (!empty) {
    return absl::FailedPreconditionError(
        "it has data of its own; give an empty database, or a new data folder");
  }
  return to->SetVersion(-kSchemaVersion);
}

}  // namespace

absl::StatusOr<std::vector<CopiedTable>> CopyStore(
    const std::string& from, const std::string& to,
    const std::function<void(const std::string& table, int64_t copied)>& progress) {
  const auto source = OpenEnd(from, /*copying=*/false);
  if (!source.ok()) return Named(source.status(), from);
  const auto target = OpenEnd(to, /*copying=*/true);
  if (!target.ok()) return Named(target.status(), to);
  HEDDLE_RETURN_IF_ERROR(Named(BeginCopy(target->get()), to));
  std::vector<CopiedTable> tables;
  for (const Table& table : Tables()) {
    absl::StatusOr<int64_t> copied = CopyTable(table, (*source)->session(), (*target)->session(),
                                               [&](int64_t rows) { progress(table.name, rows); });
    if (!copied.ok()) {
      return absl::Status(copied.status().code(),
                          absl::StrCat("copying table ", table.name, ": ",
                                       copied.status().message(), "; run the copy again to go on"));
    }
    tables.push_back({table.name, 0, *copied});
  }
  for (size_t i = 0; i < tables.size(); ++i) {
    const Table& table = Tables()[i];
    const absl::StatusOr<Summary> original = Summarise((*source)->session(), table);
    if (!original.ok()) return Named(original.status(), from);
    const absl::StatusOr<Summary> copy = Summarise((*target)->session(), table);
    if (!copy.ok()) return Named(copy.status(), to);
    if (original->rows != copy->rows || original->digest != copy->digest) {
      return absl::DataLossError(absl::StrCat(ShownAddress(to), ": table ", table.name,
                                              " differs from its original (", copy->rows, " rows, ",
                                              original->rows, " there); empty it, and copy again"));
    }
    tables[i].rows = copy->rows;
  }
  HEDDLE_RETURN_IF_ERROR(Named((*target)->SetVersion(kSchemaVersion), to));
  return tables;
}

}  // namespace heddle::scheduler
