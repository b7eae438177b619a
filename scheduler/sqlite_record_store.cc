#include "scheduler/sqlite_record_store.h"

#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "scheduler/sqlite_read.h"
#include "scheduler/sqlite_schema.h"
#include "scheduler/sqlite_util.h"

namespace heddle::scheduler {
namespace {

constexpr int kBusyTimeoutMs =
    3000;  // another program that reads holds locks for moments, not longer

struct Closer {
  void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
};
using Connection = std::unique_ptr<sqlite3, Closer>;

absl::StatusOr<Connection> Connect(const std::string& path, int flags) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &raw, flags | SQLITE_OPEN_FULLMUTEX, nullptr);
  Connection db(raw);
  if (code != SQLITE_OK) return SqliteStatus(raw, code);
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, kBusyTimeoutMs);
  return db;
}

// Applies changes within a transaction that the caller opened.
class Writer {
 public:
  explicit Writer(sqlite3* db) : db_(db) {}

  absl::Status operator()(const PutJob& change) {
    const v1::Job& job = change.row.job;
    v1::Job notes;
    *notes.mutable_warnings() = job.warnings();
    *notes.mutable_inputs() = job.inputs();
    *notes.mutable_outputs() = job.outputs();
    notes.set_stop(job.stop());
    notes.set_tuning_ms(job.tuning_ms());
    const std::string spec = job.spec().SerializeAsString(), note = notes.SerializeAsString();
    return Prepared(
               "INSERT INTO jobs VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(id) DO UPDATE SET "
               "spec=excluded.spec,state=excluded.state,paused=excluded.paused,reason=excluded."
               "reason,"
               "fault_kind=excluded.fault_kind,fault_message=excluded.fault_message,device_key="
               "excluded.device_key,"
               "model_digest=excluded.model_digest,module_digest=excluded.module_digest,"
               "created_ns=excluded.created_ns,finished_ns=excluded.finished_ns,running_ms="
               "excluded.running_ms,"
               "notes=excluded.notes")
        .Bind(change.row.id, Blob{spec}, job.state(), change.row.paused, job.reason(),
              job.fault().kind(), job.fault().message(), change.row.device_key, job.model_digest(),
              job.module_digest(), job.created_unix_ns(), job.finished_unix_ns(), job.running_ms(),
              Blob{note})
        .Run();
  }

  absl::Status operator()(const PutTask& change) {
    const TaskRow& row = change.row;
    absl::StatusOr<int64_t> workload =
        Workload(row.info.key(), row.info.workload(), row.info.label(), row.info.flops());
    if (!workload.ok()) return workload.status();
    return Prepared(
               "INSERT INTO "
               "tasks(job,idx,workload,weight,budget,known,known_valid,done,exhausted,warm_pending,"
               "known_best_ns,known_untuned_ns) VALUES(?,?,?,?,?,?,?,?,?,?,?,?) ON "
               "CONFLICT(job,idx) DO UPDATE SET "
               "workload=excluded.workload,weight=excluded.weight,budget=excluded.budget,known="
               "excluded.known,"
               "known_valid=excluded.known_valid,done=excluded.done,exhausted=excluded.exhausted,"
               "warm_pending=excluded.warm_pending,known_best_ns=excluded.known_best_ns,"
               "known_untuned_ns=excluded.known_untuned_ns")
        .Bind(row.job, row.index, *workload, row.info.weight(), row.budget, row.known,
              row.known_valid, row.done, row.exhausted, row.warm_pending, row.known_best_ns,
              row.known_untuned_ns)
        .Run();
  }

  absl::Status operator()(const PutSearchState& change) {
    return Prepared("UPDATE tasks SET state=? WHERE job=? AND idx=?")
        .Bind(Blob{change.state}, change.job, change.task)
        .Run();
  }

  absl::Status operator()(const PutLearned& change) {
    const std::string report = change.report.SerializeAsString();
    absl::Status put = Prepared("UPDATE tasks SET report=? WHERE job=? AND idx=?")
                           .Bind(Blob{report}, change.job, change.task)
                           .Run();
    if (!put.ok() || change.experience.samples().empty()) return put;
    absl::StatusOr<int64_t> target = Target(change.workload.target);
    if (!target.ok()) return target.status();
    absl::StatusOr<int64_t> device = Device(change.workload.device_key);
    if (!device.ok()) return device.status();
    return Prepared(  // as Replaces says
               "INSERT INTO experience SELECT id,?,?,?,?,?,? FROM workloads WHERE key=? "
               "ON CONFLICT DO UPDATE SET made_ns=excluded.made_ns, samples=excluded.samples, "
               "measured=excluded.measured, version=excluded.version "
               "WHERE excluded.version>version "
               "OR excluded.measured>=measured+(excluded.version<version)")
        .Bind(*target, *device, change.made_unix_ns, Blob{change.experience.samples()},
              change.experience.measured(), change.experience.version(), change.workload.key)
        .Run();
  }

  absl::Status operator()(const InsertCandidate& change) {
    const CandidateRow& row = change.row;
    Statement& insert = Prepared("INSERT INTO candidates VALUES(?,?,?,?,?,?,?,?,?)");
    if (!row.prediction) {
      return insert
          .Bind(row.job, row.id, row.task, row.trace, row.origin, row.attempts, row.learned,
                nullptr, 0)
          .Run();
    }
    return insert
        .Bind(row.job, row.id, row.task, row.trace, row.origin, row.attempts, row.learned,
              row.prediction->score(), row.prediction->samples())
        .Run();
  }

  absl::Status operator()(const PutAttempts& change) {
    return Prepared("UPDATE candidates SET attempts=? WHERE job=? AND id=?")
        .Bind(change.attempts, change.job, change.candidate)
        .Run();
  }

  absl::Status operator()(const LearnTask& change) {
    return Prepared(
               "UPDATE candidates SET learned=1 WHERE job=?1 AND task=?2 AND id<?3 AND learned=0 "
               "AND "
               "EXISTS(SELECT 1 FROM records r WHERE r.job=?1 AND r.candidate=candidates.id)")
        .Bind(change.job, change.task, change.before)
        .Run();
  }

  absl::Status operator()(const InsertRecord& change) {
    const v1::Record& record = change.record;
    const std::string digest = RecordDigest(record);
    if (change.imported) {
      Statement& same = Prepared("SELECT 1 FROM records WHERE digest=?").Bind(Blob{digest});
      const bool exists = same.Step();
      if (absl::Status status = same.Run(); !status.ok()) return status;
      if (exists) return absl::AlreadyExistsError("the record is there already");
    } else if (absl::Status fenced = Fence(change); !fenced.ok()) {
      return fenced;
    }
    absl::StatusOr<int64_t> workload =
        Workload(record.workload_key(), record.workload(), record.label(), record.flops());
    if (!workload.ok()) return workload.status();
    absl::StatusOr<int64_t> target = Target(record.target());
    if (!target.ok()) return target.status();
    absl::StatusOr<int64_t> device = Device(record.device_key());
    if (!device.ok()) return device.status();
    const v1::Measurement& measured = record.measurement();
    const std::string blob = measured.SerializeAsString();
    const double median =
        Median(std::vector<double>(measured.samples_ns().begin(), measured.samples_ns().end()));
    Statement& insert = Prepared(
        "INSERT INTO records(workload,target,device,trace,outcome,median_ns,created_ns,job,"
        "candidate,attempt,provenance,measurement,digest) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)");
    if (change.imported) {
      return insert
          .Bind(*workload, *target, *device, record.trace(), measured.outcome(), median,
                record.created_unix_ns(), nullptr, nullptr, nullptr, record.job(), Blob{blob},
                Blob{digest})
          .Run();
    }
    return insert
        .Bind(*workload, *target, *device, record.trace(), measured.outcome(), median,
              record.created_unix_ns(), ParseJobName(record.job()), record.candidate(),
              record.attempt(), "", Blob{blob}, Blob{digest})
        .Run();
  }

  absl::Status operator()(const PutStage& change) {
    const v1::StageSpan& span = change.row.span;
    return Prepared("INSERT OR REPLACE INTO stages VALUES(?,?,?,?,?,?,?,?,?,?,?,?)")
        .Bind(span.attempt_id(), ParseJobName(span.job()), span.task(), span.kind(), span.worker(),
              span.slot(), change.row.lease_id, span.start_unix_ns(), span.end_unix_ns(),
              span.fault().kind(), span.fault().message(), span.candidates())
        .Run();
  }

 private:
  // Statements are prepared once for the life of the connection.
  Statement& Prepared(const char* sql) {
    std::unique_ptr<Statement>& slot = prepared_[sql];
    if (slot == nullptr) slot = std::make_unique<Statement>(db_, sql);
    return *slot;
  }

  absl::StatusOr<int64_t> Select(const char* sql, const std::string& key) {
    Statement& query = Prepared(sql).Bind(key);
    int64_t id = 0;
    while (query.Step()) id = query.Int(0);
    if (absl::Status status = query.status(); !status.ok()) return status;
    return id;
  }

  absl::StatusOr<int64_t> Intern(const char* insert, const char* select, const std::string& key) {
    absl::StatusOr<int64_t> id = Select(select, key);
    if (!id.ok() || *id != 0) return id;
    if (absl::Status status = Prepared(insert).Bind(key).Run(); !status.ok()) return status;
    return Select(select, key);
  }

  absl::StatusOr<int64_t> Target(const std::string& text) {
    return Intern("INSERT OR IGNORE INTO targets(text) VALUES(?)",
                  "SELECT id FROM targets WHERE text=?", text);
  }
  absl::StatusOr<int64_t> Device(const std::string& key) {
    return Intern("INSERT OR IGNORE INTO devices(key) VALUES(?)",
                  "SELECT id FROM devices WHERE key=?", key);
  }

  // An imported record may have named a workload without its text; whoever brings the text fills it
  // in.
  absl::StatusOr<int64_t> Workload(const std::string& key, const std::string& text,
                                   const std::string& label, double flops) {
    absl::Status status = Prepared(
                              "INSERT INTO workloads(key,text,label,flops) VALUES(?,?,?,?) ON "
                              "CONFLICT(key) DO UPDATE "
                              "SET text=excluded.text,label=excluded.label,flops=excluded.flops "
                              "WHERE workloads.text='' AND excluded.text<>''")
                              .Bind(key, text, label, flops)
                              .Run();
    if (!status.ok()) return status;
    return Select("SELECT id FROM workloads WHERE key=?", key);
  }

  absl::Status Fence(const InsertRecord& change) {
    const v1::Evidence& evidence = change.record.measurement().evidence();
    if (evidence.slot().empty()) return absl::OkStatus();  // lost: nothing was measured anywhere
    Statement& query = Prepared("SELECT token FROM fences WHERE worker=? AND slot=?")
                           .Bind(evidence.worker(), evidence.slot());
    int64_t seen = 0;
    while (query.Step()) seen = query.Int(0);
    if (absl::Status status = query.status(); !status.ok()) return status;
    const int64_t token = static_cast<int64_t>(change.fencing_token);
    if (token < seen) {
      return absl::FailedPreconditionError(absl::StrCat("fencing token ", token, " of ",
                                                        evidence.worker(), "/", evidence.slot(),
                                                        " is older than ", seen));
    }
    if (token == seen) return absl::OkStatus();
    return Prepared("INSERT OR REPLACE INTO fences VALUES(?,?,?)")
        .Bind(evidence.worker(), evidence.slot(), token)
        .Run();
  }

  sqlite3* db_;
  std::map<const char*, std::unique_ptr<Statement>> prepared_;
};

class SqliteRecordStore : public RecordStore {
 public:
  SqliteRecordStore(Connection write, Connection read)
      : write_db_(std::move(write)), read_db_(std::move(read)), writer_(write_db_.get()) {}

  absl::StatusOr<std::vector<absl::Status>> Apply(absl::Span<const Batch> batches) override {
    absl::MutexLock lock(&write_mutex_);
    sqlite3* db = write_db_.get();
    if (absl::Status status = Execute(db, "BEGIN IMMEDIATE"); !status.ok()) return status;
    std::vector<absl::Status> results;
    for (const Batch& batch : batches) {
      absl::Status status = ApplyOne(batch);
      // A full disk may have rolled the whole transaction back; nothing of this call must remain.
      const bool fatal = status.code() == absl::StatusCode::kResourceExhausted ||
                         status.code() == absl::StatusCode::kInternal ||
                         status.code() == absl::StatusCode::kDataLoss ||
                         sqlite3_get_autocommit(db) != 0;
      if (fatal) {
        if (sqlite3_get_autocommit(db) == 0) (void)Execute(db, "ROLLBACK");
        return status.ok() ? absl::InternalError("the transaction ended by itself") : status;
      }
      results.push_back(std::move(status));
    }
    if (absl::Status status = Execute(db, "COMMIT"); !status.ok()) {
      if (sqlite3_get_autocommit(db) == 0) (void)Execute(db, "ROLLBACK");
      return status;
    }
    return results;
  }

  absl::StatusOr<std::vector<StoredJob>> LoadJobs() override {
    absl::MutexLock lock(&read_mutex_);
    return ReadJobs(read_db_.get());
  }
  absl::StatusOr<std::vector<StageRow>> UnfinishedStages() override {
    absl::MutexLock lock(&read_mutex_);
    return ReadUnfinishedStages(read_db_.get());
  }
  absl::StatusOr<int64_t> LastAttempt() override {
    absl::MutexLock lock(&read_mutex_);
    return ReadLastAttempt(read_db_.get());
  }
  absl::StatusOr<std::map<SlotId, uint64_t>> Fences() override {
    absl::MutexLock lock(&read_mutex_);
    return ReadFences(read_db_.get());
  }
  absl::StatusOr<std::vector<v1::StageSpan>> Timeline(int64_t job, int64_t limit) override {
    absl::MutexLock lock(&read_mutex_);
    return ReadTimeline(read_db_.get(), job, limit);
  }
  absl::StatusOr<std::vector<v1::Record>> Query(const v1::RecordQuery& query) override {
    absl::MutexLock lock(&read_mutex_);
    return ReadRecords(read_db_.get(), query);
  }
  absl::StatusOr<KnownRecords> Known(const WorkloadId& id) override {
    absl::MutexLock lock(&read_mutex_);
    return ReadKnown(read_db_.get(), id);
  }
  absl::StatusOr<std::optional<v1::SearchReport>> Report(int64_t job, int32_t task) override {
    absl::MutexLock lock(&read_mutex_);
    return ReadReport(read_db_.get(), job, task);
  }
  absl::StatusOr<std::vector<Experience>> OthersExperience(const WorkloadId& id,
                                                           int64_t limit) override {
    absl::MutexLock lock(&read_mutex_);
    return ReadOthersExperience(read_db_.get(), id, limit);
  }
  absl::StatusOr<std::vector<std::string>> DeviceKeys(const std::string& target) override {
    absl::MutexLock lock(&read_mutex_);
    return ReadDeviceKeys(read_db_.get(), target);
  }

 private:
  absl::Status ApplyOne(const Batch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) {
    sqlite3* db = write_db_.get();
    if (absl::Status status = Execute(db, "SAVEPOINT batch"); !status.ok()) return status;
    for (const Change& change : batch) {
      absl::Status status = std::visit(writer_, change);
      if (status.ok()) continue;
      if (sqlite3_get_autocommit(db) == 0) (void)Execute(db, "ROLLBACK TO batch; RELEASE batch");
      return status;
    }
    return Execute(db, "RELEASE batch");
  }

  absl::Mutex write_mutex_;
  absl::Mutex read_mutex_;
  const Connection write_db_;
  const Connection read_db_;
  Writer writer_ ABSL_GUARDED_BY(write_mutex_);
};

absl::StatusOr<std::unique_ptr<RecordStore>> Open(const std::string& path) {
  absl::StatusOr<Connection> write = Connect(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  if (!write.ok()) return write.status();
  sqlite3* db = write->get();
  for (const char* sql :
       {"PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA foreign_keys=ON"}) {
    if (absl::Status status = Execute(db, sql); !status.ok()) return status;
  }
  {
    Statement check(db, "PRAGMA quick_check(1)");
    const std::string verdict = check.Step() ? check.Text(0) : "";
    if (!check.status().ok()) return check.status();
    if (verdict != "ok") return absl::DataLossError(verdict);
  }
  if (absl::Status status = Migrate(db); !status.ok()) return status;
  // One connection writes and checkpoints (SQLite 3.40 can damage the WAL when two do); this one
  // only reads.
  absl::StatusOr<Connection> read = Connect(path, SQLITE_OPEN_READONLY);
  if (!read.ok()) return read.status();
  if (absl::Status status = Execute(read->get(), "PRAGMA wal_autocheckpoint=0"); !status.ok())
    return status;
  return std::make_unique<SqliteRecordStore>(*std::move(write), *std::move(read));
}

std::string WayOut(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
      return "; close the program that holds it, then start again";
    case absl::StatusCode::kDataLoss:
      return "; move the file away to begin anew, or bring a copy back (sqlite3's .recover saves "
             "what is readable)";
    case absl::StatusCode::kResourceExhausted:
      return "; free disk space, then start again";
    default:
      return "";
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordStore>> OpenSqliteRecordStore(const std::string& path) {
  absl::StatusOr<std::unique_ptr<RecordStore>> store = Open(path);
  if (store.ok()) return store;
  const absl::Status& status = store.status();
  return absl::Status(status.code(), absl::StrCat("database ", path, ": ", status.message(),
                                                  WayOut(status.code())));
}

}  // namespace heddle::scheduler
