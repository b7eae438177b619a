#include "bench/records/fill_postgres.h"

#include <libpq-fe.h>

#include <cstdio>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

struct Finish {
  void operator()(PGconn* connection) const { PQfinish(connection); }
  void operator()(PGresult* result) const { PQclear(result); }
};
using Result = std::unique_ptr<PGresult, Finish>;

absl::Status SqlError(PGconn* connection) {
  return absl::InternalError(absl::StrCat("PostgreSQL: ", PQerrorMessage(connection)));
}

absl::StatusOr<Result> Query(PGconn* connection, const std::string& sql) {
  Result result(PQexec(connection, sql.c_str()));
  const ExecStatusType status = PQresultStatus(result.get());
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_COPY_IN)
    return SqlError(connection);
  return result;
}

// In the text form of COPY.
std::string Text(const std::string& value) {
  return absl::StrReplaceAll(value, {{"\\", "\\\\"}, {"\n", "\\n"}, {"\t", "\\t"}, {"\r", "\\r"}});
}
std::string Bytes(const std::string& value) {
  return absl::StrCat("\\\\x", absl::BytesToHexString(value));
}

absl::Status EndCopy(PGconn* connection) {
  if (PQputCopyEnd(connection, nullptr) != 1) return SqlError(connection);
  const Result result(PQgetResult(connection));
  if (PQresultStatus(result.get()) != PGRES_COMMAND_OK) return SqlError(connection);
  while (PGresult* more = PQgetResult(connection)) PQclear(more);
  return absl::OkStatus();
}

// Texts that rows refer to, numbered from 1 in the order in which they come.
class Numbers {
 public:
  int64_t operator()(const std::string& text) {
    const auto [found, fresh] = numbers_.emplace(text, static_cast<int64_t>(numbers_.size()) + 1);
    if (fresh) texts_.push_back(text);
    return found->second;
  }
  // `rest`: further columns of each row, after a tab.
  absl::Status Copy(PGconn* connection, const std::string& table, const std::string& rest) const {
    HEDDLE_RETURN_IF_ERROR(Query(connection, absl::StrCat("COPY ", table, " FROM STDIN")).status());
    for (size_t i = 0; i < texts_.size(); ++i) {
      const std::string row = absl::StrCat(i + 1, "\t", Text(texts_[i]), rest, "\n");
      if (PQputCopyData(connection, row.data(), static_cast<int>(row.size())) != 1)
        return SqlError(connection);
    }
    return EndCopy(connection);
  }

 private:
  std::unordered_map<std::string, int64_t> numbers_;
  std::vector<std::string> texts_;
};

}  // namespace

absl::Status FillPostgres(const std::string& url, int64_t records,
                          const std::function<v1::Record(int64_t)>& make,
                          const std::function<void(int64_t)>& progress) {
  const std::unique_ptr<PGconn, Finish> owned(PQconnectdb(url.c_str()));
  PGconn* const connection = owned.get();
  if (PQstatus(connection) != CONNECTION_OK) return SqlError(connection);
  HEDDLE_RETURN_IF_ERROR(Query(connection,
                               "BEGIN; SET LOCAL session_replication_role=replica; "
                               "SET LOCAL maintenance_work_mem='2GB'")
                             .status());
  HEDDLE_ASSIGN_OR_RETURN(Result any, Query(connection, "SELECT 1 FROM records LIMIT 1"));
  if (PQntuples(any.get()) > 0)
    return absl::FailedPreconditionError("the database has records already; give an empty one");
  HEDDLE_ASSIGN_OR_RETURN(
      const Result indexes,
      Query(connection,
            "SELECT indexname, indexdef FROM pg_indexes WHERE tablename='records' AND "
            "schemaname=current_schema() AND indexname<>'records_pkey'"));
  for (int i = 0; i < PQntuples(indexes.get()); ++i) {
    HEDDLE_RETURN_IF_ERROR(
        Query(connection, absl::StrCat("DROP INDEX ", PQgetvalue(indexes.get(), i, 0))).status());
  }
  Numbers workloads, targets, devices;
  HEDDLE_RETURN_IF_ERROR(
      Query(connection,
            "COPY records(id,workload,target,device,trace,outcome,median_ns,created_ns,provenance,"
            "measurement,digest,imported_by) FROM STDIN")
          .status());
  std::string rows;
  for (int64_t i = 0; i < records; ++i) {
    const v1::Record record = make(i);
    absl::StrAppend(&rows, i + 1, "\t", workloads(record.workload_key()), "\t",
                    targets(record.target()), "\t", devices(record.device_key()), "\t",
                    Text(record.trace()), "\t");
    absl::StrAppend(&rows, static_cast<int>(record.measurement().outcome()), "\t",
                    absl::StrFormat("%.17g", record.median_ns()), "\t", record.created_unix_ns(),
                    "\t", Text(record.job()), "\t");
    absl::StrAppend(&rows, Bytes(record.measurement().SerializeAsString()), "\t",
                    Bytes(RecordDigest(record)), "\t", Text(record.imported_by()), "\n");
    if (rows.size() < kBufferBytes && i + 1 < records) continue;
    if (PQputCopyData(connection, rows.data(), static_cast<int>(rows.size())) != 1)
      return SqlError(connection);
    rows.clear();
    progress(i + 1);
  }
  HEDDLE_RETURN_IF_ERROR(EndCopy(connection));
  HEDDLE_RETURN_IF_ERROR(workloads.Copy(connection, "workloads(id,key,text,label,flops)",
                                        "\t\tconv2d 1x56x56x64\t100000000"));
  HEDDLE_RETURN_IF_ERROR(targets.Copy(connection, "targets(id,text)", ""));
  HEDDLE_RETURN_IF_ERROR(devices.Copy(connection, "devices(id,key)", ""));
  for (int i = 0; i < PQntuples(indexes.get()); ++i) {
    std::fprintf(stderr, "making the index %s\n", PQgetvalue(indexes.get(), i, 0));
    HEDDLE_RETURN_IF_ERROR(Query(connection, PQgetvalue(indexes.get(), i, 1)).status());
  }
  std::fprintf(stderr, "counting the records of each group\n");
  HEDDLE_RETURN_IF_ERROR(
      Query(connection,
            absl::StrCat("INSERT INTO record_groups SELECT workload, target, device, 1, count(*), "
                         "count(*) FILTER (WHERE outcome<>",
                         static_cast<int>(v1::OUTCOME_LOST),
                         "), count(*) FILTER (WHERE outcome=", static_cast<int>(v1::OUTCOME_OK),
                         "), coalesce(min(median_ns) FILTER (WHERE outcome=",
                         static_cast<int>(v1::OUTCOME_OK),
                         "), 0), 0 FROM records GROUP BY workload, target, device; COMMIT; "
                         "ANALYZE records"))
          .status());
  return absl::OkStatus();
}

}  // namespace heddle::scheduler
