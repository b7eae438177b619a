#include "scheduler/store/postgres/postgres_session.h"

#include <libpq-fe.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/one_line.h"
#include "base/status_macros.h"

namespace heddle::scheduler {
namespace {

// The epoch of a leader is read beside its writes, so a statement must see what others committed before it. A database may have
// another level as its default.
constexpr const char* kBegin = "BEGIN ISOLATION LEVEL READ COMMITTED";

constexpr absl::Duration kPause = absl::Milliseconds(250);  // between attempts to connect
// A leader's renewal must take less than 2.5 s (scheduler/service/leadership.h), and a claim less than the lease of 4 s.
constexpr const char* kFirstConnect = "5";  // s; at the start nobody waits
constexpr const char* kConnectAgain = "2";
constexpr int kEndMs = 1000;           // a server process that is told to end needs moments
constexpr int kOldestServer = 140000;  // of PQserverVersion: pg_terminate_backend waits since 14

// The words of SQLite's SQL that PostgreSQL has others for.
constexpr std::array<std::pair<absl::string_view, absl::string_view>, 6> kWords = {{
    {" INDEXED BY jobs_unfinished", ""},  // its planner needs no such hints
    {" INDEXED BY records_best", ""},
    {"CROSS JOIN", "JOIN"},  // there it only forces the order
    {"instr(", "strpos("},
    {"COLLATE BINARY", "COLLATE \"C\""},
    {"SELECT user_version FROM pragma_user_version", "SELECT version FROM heddle_schema"},
}};

// Types of parameters and columns, as the server's table pg_type numbers them.
constexpr unsigned kBool = 16, kBytes = 17, kInt8 = 20, kInt2 = 21, kInt4 = 23, kText = 25,
                   kFloat8 = 701, kVarchar = 1043;

struct ClearResult {
  void operator()(PGresult* result) const { PQclear(result); }
};
using Result = std::unique_ptr<PGresult, ClearResult>;

// Numbers travel in network order.
template <typename Unsigned>
std::string Encoded(Unsigned value) {
  std::string bytes(sizeof(Unsigned), '\0');
  for (size_t i = 0; i < sizeof(Unsigned); ++i)
    bytes[sizeof(Unsigned) - 1 - i] = static_cast<char>(value >> (8 * i));
  return bytes;
}

template <typename Unsigned>
Unsigned Decoded(const char* bytes) {
  Unsigned value = 0;
  for (size_t i = 0; i < sizeof(Unsigned); ++i)
    value = static_cast<Unsigned>(value << 8) | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::string Trimmed(const char* message) {
  std::string line = OneLine(message == nullptr ? "" : message);
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

absl::Status LostConnection(const PGconn* connection) {
  const std::string message = Trimmed(PQerrorMessage(connection));
  return absl::UnavailableError(message.empty() ? "the connection is lost" : message);
}

bool Succeeded(const PGresult* result) {
  const ExecStatusType status = PQresultStatus(result);
  return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_SINGLE_TUPLE ||
         status == PGRES_EMPTY_QUERY;
}

// The status of a result; null: the connection is lost, or there is no memory.
absl::Status StatusOf(const PGresult* result, const PGconn* connection) {
  if (result == nullptr) return LostConnection(connection);
  if (Succeeded(result)) return absl::OkStatus();
  const char* state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  if (state == nullptr) return LostConnection(connection);  // libpq's own error
  const char* message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
  return absl::Status(CodeOfSqlState(state), Trimmed(message));
}

bool ChangedRows(PGresult* result) {
  const absl::string_view count = PQcmdTuples(result);
  return !count.empty() && count != "0";
}

struct SentValue {
  enum Kind { kNull, kInteger, kReal, kRaw } kind = kNull;
  int64_t integer = 0;
  double real = 0;
  std::string bytes;
};

// As the server's type wants it, in binary; nullopt: the value is null.
absl::StatusOr<std::optional<std::string>> Encode(const SentValue& value, unsigned type) {
  if (value.kind == SentValue::kNull) return std::optional<std::string>();
  const auto real = [&] {
    return value.kind == SentValue::kReal ? value.real : static_cast<double>(value.integer);
  };
  const bool number = value.kind != SentValue::kRaw;
  std::optional<std::string> bytes;
  if (type == kFloat8 && number) bytes = Encoded(std::bit_cast<uint64_t>(real()));
  if (value.kind == SentValue::kInteger) {
    if (type == kInt8) bytes = Encoded(static_cast<uint64_t>(value.integer));
    if (type == kInt4) bytes = Encoded(static_cast<uint32_t>(value.integer));
    if (type == kInt2) bytes = Encoded(static_cast<uint16_t>(value.integer));
    if (type == kBool) bytes = std::string(1, value.integer != 0 ? '\1' : '\0');
  }
  if (!number && (type == kText || type == kVarchar || type == kBytes)) bytes = value.bytes;
  if (!bytes) {
    return absl::InternalError(
        absl::StrCat("a parameter of type ", type, " got a value of kind ", value.kind));
  }
  return bytes;
}

}  // namespace

absl::StatusCode CodeOfSqlState(absl::string_view state) {
  // Classes and single states: https://www.postgresql.org/docs/15/errcodes-appendix.html
  if (state == "53100") return absl::StatusCode::kResourceExhausted;  // disk_full
  const absl::string_view group = state.substr(0, 2);
  // No connection; no memory or connection left; an operator stops the server or the call; a lock or a
  // deadlock; a standby that takes no writes.
  for (const absl::string_view away : {"08", "53", "57", "40", "55"}) {
    if (group == away) return absl::StatusCode::kUnavailable;
  }
  if (state == "25006" || state == "25P03") return absl::StatusCode::kUnavailable;
  if (group == "23") return absl::StatusCode::kAlreadyExists;
  if (state == "XX001" || state == "XX002") return absl::StatusCode::kDataLoss;
  // What the administrator of the database has to allow or to make.
  if (group == "28" || group == "3D" || state == "42501")
    return absl::StatusCode::kFailedPrecondition;
  return absl::StatusCode::kInternal;
}

PostgresSql ToPostgres(absl::string_view sql) {
  const std::string words = absl::StrReplaceAll(sql, kWords);
  PostgresSql made;
  int largest = 0;
  char quote = '\0';
  for (size_t i = 0; i < words.size(); ++i) {
    const char c = words[i];
    if (quote != '\0' || c == '\'' || c == '"') {
      if (quote == '\0')
        quote = c;
      else if (c == quote)
        quote = '\0';
      made.text += c;
      continue;
    }
    if (c != '?') {
      made.text += c;
      continue;
    }
    int number = 0;
    while (i + 1 < words.size() && words[i + 1] >= '0' && words[i + 1] <= '9')
      number = number * 10 + (words[++i] - '0');
    if (number == 0) number = largest + 1;
    largest = std::max(largest, number);
    // Parameters that are not used must not be counted: their types could not be told.
    auto place = std::find(made.parameters.begin(), made.parameters.end(), number);
    if (place == made.parameters.end())
      place = made.parameters.insert(made.parameters.end(), number);
    absl::StrAppend(&made.text, "$", place - made.parameters.begin() + 1);
  }
  return made;
}

std::string ShownPostgresUrl(const std::string& url) {
  std::string host, port, database;
  PQconninfoOption* const options = PQconninfoParse(url.c_str(), nullptr);
  for (const PQconninfoOption* option = options; option != nullptr && option->keyword != nullptr;
       ++option) {
    if (option->val == nullptr) continue;
    const absl::string_view keyword = option->keyword;
    if (keyword == "host") host = option->val;
    if (keyword == "port") port = absl::StrCat(":", option->val);
    if (keyword == "dbname") database = option->val;
  }
  PQconninfoFree(options);
  return absl::StrCat("postgresql://", host, port, "/", database);
}

// ---- statements ----

class PostgresStatement final : public DriverStatement {
 public:
  PostgresStatement(PostgresSession* session, absl::string_view sql, Reading reading)
      : session_(session), sql_(sql), reading_(reading) {}
  ~PostgresStatement() override { EndReading(); }
  PostgresStatement(const PostgresStatement&) = delete;
  PostgresStatement& operator=(const PostgresStatement&) = delete;

  void Reset() override {
    EndReading();
    result_.reset();
    row_ = -1;
    executed_ = false;
    status_ = absl::OkStatus();
  }
  void BindNull(int index) override { At(index) = SentValue(); }
  void BindInt(int index, int64_t value) override {
    At(index) = {.kind = SentValue::kInteger, .integer = value, .real = 0, .bytes = {}};
  }
  void BindReal(int index, double value) override {
    At(index) = {.kind = SentValue::kReal, .integer = 0, .real = value, .bytes = {}};
  }
  void BindText(int index, absl::string_view value) override {
    At(index) = {.kind = SentValue::kRaw,
                 .integer = 0,
                 .real = 0,
                 .bytes = ValidText(std::string_view(value.data(), value.size()))};
  }
  void BindBlob(int index, absl::string_view value) override {
    At(index) = {.kind = SentValue::kRaw, .integer = 0, .real = 0, .bytes = std::string(value)};
  }

  bool Step() override {
    if (!status_.ok()) return false;
    if (!executed_) {
      status_ = ExecuteNow();
      if (!status_.ok()) return false;
    } else if (session_->reading_ == this) {
      status_ = NextRow();
      if (!status_.ok()) return false;
    } else {
      ++row_;
    }
    return result_ != nullptr && row_ < PQntuples(result_.get());
  }

  absl::Status Run() override {
    if (!status_.ok()) return status_;
    if (!executed_) {
      status_ = CanQueue() ? Enqueue(/*must_change=*/false) : ExecuteNow();
    }
    EndReading();
    result_.reset();
    return status_;
  }

  absl::StatusOr<bool> RunIfItChanges() override {
    HEDDLE_RETURN_IF_ERROR(status_);
    if (CanQueue()) {
      status_ = Enqueue(/*must_change=*/true);
      HEDDLE_RETURN_IF_ERROR(status_);
      return true;
    }
    status_ = ExecuteNow();
    HEDDLE_RETURN_IF_ERROR(status_);
    const bool changed = ChangedRows(result_.get());
    result_.reset();
    return changed;
  }

  const absl::Status& status() const override { return status_; }

  int64_t Int(int column) const override {
    if (IsNull(column)) return 0;
    const char* bytes = PQgetvalue(result_.get(), row_, column);
    switch (PQftype(result_.get(), column)) {
      case kBool:
        return bytes[0] != 0 ? 1 : 0;
      case kInt2:
        return static_cast<int16_t>(Decoded<uint16_t>(bytes));
      case kInt4:
        return static_cast<int32_t>(Decoded<uint32_t>(bytes));
      case kFloat8:
        return static_cast<int64_t>(std::bit_cast<double>(Decoded<uint64_t>(bytes)));
      case kInt8:
        return static_cast<int64_t>(Decoded<uint64_t>(bytes));
      default:
        return 0;  // SQLite, too, takes a text for 0
    }
  }
  double Real(int column) const override {
    if (IsNull(column)) return 0;
    if (PQftype(result_.get(), column) != kFloat8) return static_cast<double>(Int(column));
    return std::bit_cast<double>(Decoded<uint64_t>(PQgetvalue(result_.get(), row_, column)));
  }
  bool IsNull(int column) const override { return PQgetisnull(result_.get(), row_, column) != 0; }
  std::string Text(int column) const override {
    if (IsNull(column)) return "";
    return std::string(PQgetvalue(result_.get(), row_, column),
                       static_cast<size_t>(PQgetlength(result_.get(), row_, column)));
  }

 private:
  // Parameters as libpq takes them.
  struct Encoding {
    std::vector<std::optional<std::string>> bytes;
    std::vector<const char*> values;
    std::vector<int> lengths;
    std::vector<int> formats;  // all binary
    size_t size = 0;
  };

  SentValue& At(int index) {
    if (values_.size() < static_cast<size_t>(index)) values_.resize(static_cast<size_t>(index));
    return values_[static_cast<size_t>(index) - 1];
  }
  bool CanQueue() const {
    return session_->in_transaction_ && session_->running_ == SqlSession::Running::kQueued;
  }

  absl::StatusOr<Encoding> EncodeFor(const PostgresSession::Plan& plan) {
    Encoding made;
    for (size_t i = 0; i < plan.parameters.size(); ++i) {
      HEDDLE_ASSIGN_OR_RETURN(std::optional<std::string> bytes,
                              Encode(At(plan.parameters[i]), plan.types[i]));
      made.size += bytes ? bytes->size() : 0;
      made.lengths.push_back(bytes ? static_cast<int>(bytes->size()) : 0);
      made.formats.push_back(1);
      made.bytes.push_back(std::move(bytes));
    }
    for (const std::optional<std::string>& bytes : made.bytes)
      made.values.push_back(bytes ? bytes->data() : nullptr);
    return made;
  }

  absl::Status Enqueue(bool must_change) {
    executed_ = true;
    HEDDLE_RETURN_IF_ERROR(session_->Ready());
    HEDDLE_ASSIGN_OR_RETURN(const PostgresSession::Plan* plan, session_->PlanOf(sql_));
    absl::StatusOr<Encoding> encoding = EncodeFor(*plan);
    if (!encoding.ok()) return session_->Fail(encoding.status());
    PGconn* const connection = session_->connection_;
    if (!session_->pipelining_) {
      if (PQenterPipelineMode(connection) != 1) return session_->Fail(LostConnection(connection));
      session_->pipelining_ = true;
    }
    if (PQsendQueryPrepared(connection, plan->name.c_str(),
                            static_cast<int>(encoding->values.size()), encoding->values.data(),
                            encoding->lengths.data(), encoding->formats.data(),
                            /*resultFormat=*/1) != 1)
      return session_->Fail(LostConnection(connection));
    session_->queue_.push_back(must_change);
    session_->queued_bytes_ += encoding->size;
    if (session_->queue_.size() < PostgresSession::kMostQueued &&
        session_->queued_bytes_ < PostgresSession::kMostQueuedBytes)
      return absl::OkStatus();
    return session_->Settle();
  }

  absl::Status ExecuteNow() {
    executed_ = true;
    HEDDLE_RETURN_IF_ERROR(session_->Ready());
    HEDDLE_RETURN_IF_ERROR(session_->Settle());
    HEDDLE_ASSIGN_OR_RETURN(const PostgresSession::Plan* plan, session_->PlanOf(sql_));
    absl::StatusOr<Encoding> encoding = EncodeFor(*plan);
    if (!encoding.ok()) return session_->Fail(encoding.status());
    PGconn* const connection = session_->connection_;
    const int count = static_cast<int>(encoding->values.size());
    if (reading_ == Reading::kRowByRow) {
      if (PQsendQueryPrepared(connection, plan->name.c_str(), count, encoding->values.data(),
                              encoding->lengths.data(), encoding->formats.data(), 1) != 1)
        return session_->Fail(LostConnection(connection));
      session_->reading_ = this;
      PQsetSingleRowMode(connection);
      return NextRow();
    }
    result_.reset(PQexecPrepared(connection, plan->name.c_str(), count, encoding->values.data(),
                                 encoding->lengths.data(), encoding->formats.data(), 1));
    row_ = 0;
    absl::Status status = StatusOf(result_.get(), connection);
    if (status.ok()) return status;
    result_.reset();
    return session_->Fail(std::move(status));
  }

  // The next row of those that come one by one; without one, the reading is over.
  absl::Status NextRow() {
    PGconn* const connection = session_->connection_;
    result_.reset(PQgetResult(connection));
    row_ = 0;
    absl::Status status = StatusOf(result_.get(), connection);
    if (status.ok() && PQresultStatus(result_.get()) == PGRES_SINGLE_TUPLE) return status;
    // The last result has no row; null follows it.
    session_->reading_ = nullptr;
    while (Result rest{PQgetResult(connection)}) {
      if (PQstatus(connection) == CONNECTION_BAD) break;
    }
    if (status.ok()) return status;
    result_.reset();
    return session_->Fail(std::move(status));
  }

  // Rows that nobody wants any more must not come first when the next statement runs.
  void EndReading() {
    if (session_->reading_ != this) return;
    session_->reading_ = nullptr;
    PGconn* const connection = session_->connection_;
    if (connection == nullptr) return;
    // PQcancel returns once the server has signalled its process, which takes the signal before it reads what this connection
    // sends next, and ignores it between statements. So it never ends a later statement.
    if (PGcancel* const cancel = PQgetCancel(connection)) {
      char error[256];
      PQcancel(cancel, error, sizeof(error));
      PQfreeCancel(cancel);
    }
    while (Result rest{PQgetResult(connection)}) {
      if (PQstatus(connection) == CONNECTION_BAD) break;
    }
  }

  PostgresSession* const session_;
  const std::string sql_;
  const Reading reading_;
  std::vector<SentValue> values_;  // by index
  bool executed_ = false;
  Result result_;
  int row_ = -1;
  absl::Status status_;
};

// ---- the session ----

PostgresSession::PostgresSession(Options options) : options_(std::move(options)) {
  std::random_device random;
  // Far from the numbers of other processes, so that none is taken for one of this.
  commit_ = static_cast<int64_t>((uint64_t{random()} << 30) ^ random());
}

PostgresSession::~PostgresSession() { Disconnect(); }

absl::StatusOr<std::unique_ptr<PostgresSession>> PostgresSession::Open(Options options) {
  std::unique_ptr<PostgresSession> session(new PostgresSession(std::move(options)));
  HEDDLE_RETURN_IF_ERROR(session->Connect());
  session->opened_ = true;
  return session;
}

bool PostgresSession::Connected() const {
  return connection_ != nullptr && PQstatus(connection_) == CONNECTION_OK;
}

bool PostgresSession::Lost() const { return connection_ != nullptr && !Connected(); }

void PostgresSession::Disconnect() {
  if (connection_ != nullptr) PQfinish(connection_);
  connection_ = nullptr;
  plans_.clear();
  reading_ = nullptr;
  pipelining_ = false;
  queue_.clear();
  queued_bytes_ = 0;
}

absl::Status PostgresSession::Connect() {
  const absl::Time give_up = MonotonicNow() + (opened_ ? options_.patience : absl::ZeroDuration());
  while (true) {
    absl::Status status = ConnectOnce();
    if (!absl::IsUnavailable(status) || MonotonicNow() + kPause > give_up) return status;
    absl::SleepFor(kPause);
  }
}

absl::Status PostgresSession::ConnectOnce() {
  Disconnect();
  // The URL may say otherwise for what comes before it.
  const char* const keywords[] = {"connect_timeout",  "keepalives_idle",  "keepalives_interval",
                                  "keepalives_count", "tcp_user_timeout", "dbname",
                                  "client_encoding",  "application_name", nullptr};
  const char* const values[] = {opened_ ? kConnectAgain : kFirstConnect,
                                "10",
                                "5",
                                "3",
                                "25000",  // ms; so long a dead server is not noticed
                                options_.url.c_str(),
                                "UTF8",
                                options_.application.c_str(),
                                nullptr};
  connection_ = PQconnectdbParams(keywords, values, /*expand_dbname=*/1);
  if (!Connected()) {
    absl::Status status = LostConnection(connection_);
    Disconnect();
    return status;
  }
  PQsetNoticeProcessor(
      connection_, [](void*, const char*) {}, nullptr);
  if (PQserverVersion(connection_) < kOldestServer) {
    Disconnect();
    return absl::FailedPreconditionError("its server is older than PostgreSQL 14; use a newer one");
  }
  const char* encoding = PQparameterStatus(connection_, "server_encoding");
  if (encoding == nullptr || absl::string_view(encoding) != "UTF8") {
    Disconnect();
    return absl::FailedPreconditionError(
        "its encoding is not UTF8; make one with `createdb --encoding=UTF8 --template=template0`");
  }
  // The server, too, notices soon that this process or its machine is gone. A commit that was acknowledged
  // is on disk, whatever the server's default is.
  absl::Status status = RunText(
      "SET jit=off; SET statement_timeout='600s'; SET idle_in_transaction_session_timeout=0; "
      "SET tcp_keepalives_idle=10; SET tcp_keepalives_interval=5; SET tcp_keepalives_count=3; "
      "SELECT set_config('synchronous_commit', 'on', false) "
      "WHERE current_setting('synchronous_commit')='off'");
  connecting_ = true;
  if (status.ok()) status = EndFormer();
  if (status.ok()) process_ = PQbackendPID(connection_);
  if (status.ok() && options_.connected) status = options_.connected(this);
  connecting_ = false;
  if (!status.ok()) Disconnect();
  return status;
}

absl::Status PostgresSession::EndFormer() {
  if (process_ == 0) return absl::OkStatus();
  // By now, that number may be of a process of somebody else.
  Statement end(this,
                "SELECT pg_terminate_backend(pid, CAST(? AS BIGINT)) FROM pg_stat_activity WHERE "
                "pid=CAST(? AS INTEGER) AND application_name=current_setting('application_name')");
  const bool ended = !end.Bind(kEndMs, process_).Step() || end.Int(0) != 0;
  HEDDLE_RETURN_IF_ERROR(end.status());
  if (!ended) return absl::UnavailableError("the server does not end our lost connection");
  process_ = 0;
  return absl::OkStatus();
}

absl::Status PostgresSession::Ready() {
  if (reading_ != nullptr)
    return absl::InternalError("a statement runs while another one reads row by row");
  if (!in_transaction_) {
    if (Connected()) return absl::OkStatus();
    if (connecting_) return absl::UnavailableError("the connection is lost");
    return Connect();
  }
  if (failed_.ok() && !Connected()) failed_ = absl::UnavailableError("the connection is lost");
  return failed_;
}

absl::Status PostgresSession::Fail(absl::Status status) {
  if (in_transaction_ && failed_.ok()) failed_ = status;
  return status;
}

absl::StatusOr<const PostgresSession::Plan*> PostgresSession::PlanOf(const std::string& sql) {
  if (const auto found = plans_.find(sql); found != plans_.end()) return &found->second;
  HEDDLE_RETURN_IF_ERROR(Settle());
  if (plans_.size() >= kMostPlans) {
    HEDDLE_RETURN_IF_ERROR(RunText("DEALLOCATE ALL"));
    plans_.clear();
  }
  PostgresSql made = ToPostgres(sql);
  Plan plan{absl::StrCat("h", ++prepared_), std::move(made.parameters), {}};
  const Result prepared(PQprepare(connection_, plan.name.c_str(), made.text.c_str(), 0, nullptr));
  if (absl::Status status = StatusOf(prepared.get(), connection_); !status.ok())
    return Fail(std::move(status));
  const Result described(PQdescribePrepared(connection_, plan.name.c_str()));
  if (absl::Status status = StatusOf(described.get(), connection_); !status.ok())
    return Fail(std::move(status));
  for (int i = 0; i < PQnparams(described.get()); ++i)
    plan.types.push_back(PQparamtype(described.get(), i));
  if (plan.types.size() != plan.parameters.size())
    return Fail(absl::InternalError("a statement has another number of parameters"));
  return &plans_.emplace(sql, std::move(plan)).first->second;
}

std::unique_ptr<DriverStatement> PostgresSession::Prepare(absl::string_view sql, Reading reading) {
  return std::make_unique<PostgresStatement>(this, sql, reading);
}

absl::Status PostgresSession::RunText(const std::string& sql) {
  const Result result(PQexec(connection_, sql.c_str()));
  absl::Status status = StatusOf(result.get(), connection_);
  return status.ok() ? status : Fail(std::move(status));
}

absl::Status PostgresSession::Execute(const std::string& sql) {
  HEDDLE_RETURN_IF_ERROR(Ready());
  HEDDLE_RETURN_IF_ERROR(Settle());
  return RunText(sql);
}

absl::Status PostgresSession::Begin(Running running) {
  if (in_transaction_) return absl::InternalError("a transaction is open already");
  HEDDLE_RETURN_IF_ERROR(Ready());
  absl::Status status = RunText(kBegin);
  if (absl::IsUnavailable(status) && !Connected()) {
    // It was lost since the last call; nothing was begun.
    HEDDLE_RETURN_IF_ERROR(Ready());
    status = RunText(kBegin);
  }
  HEDDLE_RETURN_IF_ERROR(status);
  in_transaction_ = true;
  running_ = running;
  failed_ = absl::OkStatus();
  return absl::OkStatus();
}

absl::Status PostgresSession::Settle() {
  if (!pipelining_) return failed_;
  absl::Status first;
  if (PQpipelineSync(connection_) != 1) first = LostConnection(connection_);
  for (const bool must_change : std::exchange(queue_, {})) {
    if (!Connected()) break;
    const Result result(PQgetResult(connection_));
    while (Result rest{PQgetResult(connection_)}) {  // null ends the results of a statement
      if (!Connected()) break;
    }
    if (!first.ok()) continue;  // the server has skipped this one
    first = StatusOf(result.get(), connection_);
    if (first.ok() && must_change && !ChangedRows(result.get()))
      first = absl::AbortedError("a statement changed no row");
  }
  queued_bytes_ = 0;
  pipelining_ = false;
  if (Connected()) {
    const Result sync(PQgetResult(connection_));
    if (PQresultStatus(sync.get()) != PGRES_PIPELINE_SYNC || PQexitPipelineMode(connection_) != 1) {
      // A server that is told to end says so in the place of any result. Nothing is committed yet, so the caller may
      // try again.
      if (first.ok()) first = LostConnection(connection_);
      Disconnect();
    }
  } else if (first.ok()) {
    first = absl::UnavailableError("the connection is lost");
  }
  return first.ok() ? failed_ : Fail(std::move(first));
}

absl::Status PostgresSession::Commit() {
  ++commit_;  // also where nothing is sent, so that LastCommitted does not mean an earlier one
  return CommitWith(absl::StrCat("UPDATE heddle_commit SET number=", commit_, "; COMMIT"));
}

absl::Status PostgresSession::CommitWith(const std::string& sql) {
  if (!in_transaction_) return absl::InternalError("there is no transaction to commit");
  if (absl::Status status = Settle(); !status.ok()) {
    Rollback();
    return status;
  }
  const Result result(PQexec(connection_, sql.c_str()));
  absl::Status status = StatusOf(result.get(), connection_);
  // The server answers the commit of a transaction that has failed with this word.
  if (status.ok() && absl::string_view(PQcmdStatus(result.get())) != "COMMIT")
    status = absl::InternalError("the transaction had failed before its commit");
  if (!status.ok()) {
    Rollback();
    return status;
  }
  in_transaction_ = false;
  return absl::OkStatus();
}

void PostgresSession::Rollback() {
  if (!in_transaction_) return;
  (void)Settle();
  in_transaction_ = false;
  failed_ = absl::OkStatus();
  if (!Connected()) {
    Disconnect();
    return;
  }
  const absl::Status status = RunText("ROLLBACK");
  if (!status.ok() || PQtransactionStatus(connection_) != PQTRANS_IDLE) Disconnect();
}

absl::Status PostgresSession::Undo() {
  if (!Connected()) return Fail(absl::UnavailableError("the connection is lost"));
  (void)Settle();
  failed_ = absl::OkStatus();
  return RunText("ROLLBACK TO SAVEPOINT batch; RELEASE SAVEPOINT batch");
}

absl::Status PostgresSession::EndOtherWriters(absl::string_view table) {
  HEDDLE_RETURN_IF_ERROR(Execute("SET LOCAL lock_timeout='2s'"));  // should one not end
  Statement end(this,
                "SELECT pg_terminate_backend(a.pid, CAST(?1 AS BIGINT)) FROM pg_stat_activity a "
                "WHERE a.datname=current_database() AND a.wait_event_type='Client' AND "
                "a.state_change<clock_timestamp()-interval '0.5 seconds' AND a.pid IN "
                "(SELECT l.pid FROM pg_locks l WHERE l.locktype='relation' AND "
                "l.database=a.datid AND l.relation=to_regclass(?2) AND l.granted AND "
                "l.mode='RowExclusiveLock' AND l.pid<>pg_backend_pid())");
  return end.Bind(kEndMs, table).Run();
}

absl::StatusOr<int64_t> PostgresSession::ClockNs() {
  Statement query(this,
                  "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000000 AS BIGINT)");
  const int64_t now = query.Step() ? query.Int(0) : 0;
  HEDDLE_RETURN_IF_ERROR(query.status());
  return now;
}

absl::StatusOr<bool> PostgresSession::LastCommitted() {
  Statement query(this, "SELECT number FROM heddle_commit");
  const bool committed = query.Step() && query.Int(0) == commit_;
  HEDDLE_RETURN_IF_ERROR(query.status());
  return committed;
}

}  // namespace heddle::scheduler
