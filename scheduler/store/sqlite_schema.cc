#include "scheduler/store/sqlite_schema.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "proto/common.pb.h"
#include "scheduler/store/leader.h"
#include "scheduler/store/sql_read.h"
#include "scheduler/store/sqlite_session.h"

namespace heddle::scheduler {
namespace {

// Repeated texts (workloads, targets, device keys) are stored once. Times are nanoseconds since the
// Unix epoch.
constexpr std::array<const char*, kSchemaVersion> kMigrations = {
    R"sql(
CREATE TABLE workloads(
  id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, text TEXT NOT NULL, label TEXT NOT NULL, flops REAL NOT NULL);
CREATE TABLE targets(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE devices(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE);

CREATE TABLE jobs(
  id INTEGER PRIMARY KEY, spec BLOB NOT NULL, state INTEGER NOT NULL, paused INTEGER NOT NULL, reason TEXT NOT NULL,
  fault_kind INTEGER NOT NULL, fault_message TEXT NOT NULL, device_key TEXT NOT NULL,
  model_digest TEXT NOT NULL, module_digest TEXT NOT NULL,
  created_ns INTEGER NOT NULL, finished_ns INTEGER NOT NULL, running_ms INTEGER NOT NULL,
  notes BLOB NOT NULL);  -- warnings, inputs, outputs, stop, tuning_ms, parts_digest, plans and their surveys, machine, comparison, digests of
                         -- modules besides the job's: as a Job message
CREATE TABLE tasks(
  job INTEGER NOT NULL REFERENCES jobs(id), idx INTEGER NOT NULL, workload INTEGER NOT NULL REFERENCES workloads(id),
  weight INTEGER NOT NULL, budget INTEGER NOT NULL, known INTEGER NOT NULL, known_valid INTEGER NOT NULL,
  done INTEGER NOT NULL, exhausted INTEGER NOT NULL, warm_pending INTEGER NOT NULL,
  known_best_ns REAL NOT NULL, known_untuned_ns REAL NOT NULL, state BLOB NOT NULL DEFAULT x'',
  PRIMARY KEY(job, idx)) WITHOUT ROWID;
CREATE TABLE candidates(
  job INTEGER NOT NULL, id INTEGER NOT NULL, task INTEGER NOT NULL, trace TEXT NOT NULL, origin TEXT NOT NULL,
  attempts INTEGER NOT NULL, learned INTEGER NOT NULL,
  PRIMARY KEY(job, id), FOREIGN KEY(job, task) REFERENCES tasks(job, idx));

CREATE TABLE records(
  id INTEGER PRIMARY KEY, workload INTEGER NOT NULL REFERENCES workloads(id),
  target INTEGER NOT NULL REFERENCES targets(id), device INTEGER NOT NULL REFERENCES devices(id),
  trace TEXT NOT NULL, outcome INTEGER NOT NULL, median_ns REAL NOT NULL, created_ns INTEGER NOT NULL,
  job INTEGER, candidate INTEGER, attempt INTEGER,  -- null for imported records
  provenance TEXT NOT NULL,                          -- job of an imported record, in the database it came from
  measurement BLOB NOT NULL, digest BLOB NOT NULL);
CREATE UNIQUE INDEX records_attempt ON records(job, candidate, attempt) WHERE job IS NOT NULL;
CREATE UNIQUE INDEX records_candidate ON records(job, candidate) WHERE job IS NOT NULL;  -- one final record each
CREATE INDEX records_workload ON records(workload, target, device, created_ns);
CREATE INDEX records_created ON records(created_ns);
CREATE INDEX records_digest ON records(digest);

CREATE TABLE stages(
  attempt INTEGER PRIMARY KEY, job INTEGER NOT NULL, task TEXT NOT NULL, kind INTEGER NOT NULL, worker TEXT NOT NULL,
  slot TEXT NOT NULL, lease TEXT NOT NULL, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
  fault_kind INTEGER NOT NULL, fault_message TEXT NOT NULL, candidates INTEGER NOT NULL);
CREATE INDEX stages_job ON stages(job, start_ns);
CREATE INDEX stages_open ON stages(attempt) WHERE end_ns = 0;

CREATE TABLE fences(
  worker TEXT NOT NULL, slot TEXT NOT NULL, token INTEGER NOT NULL, PRIMARY KEY(worker, slot)) WITHOUT ROWID;
)sql",
    // Finds the fastest record of a workload without reading the others.
    R"sql(
CREATE INDEX records_best ON records(workload, target, device, outcome, median_ns);
)sql",
    // Predictions of candidates, search reports, and transfer samples.
    R"sql(
ALTER TABLE candidates ADD COLUMN predicted REAL;  -- null: there was no model
ALTER TABLE candidates ADD COLUMN predicted_from INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN report BLOB NOT NULL DEFAULT x'';
CREATE TABLE experience(
  workload INTEGER NOT NULL REFERENCES workloads(id), target INTEGER NOT NULL REFERENCES targets(id),
  device INTEGER NOT NULL REFERENCES devices(id), made_ns INTEGER NOT NULL, samples BLOB NOT NULL,
  PRIMARY KEY(workload, target, device)) WITHOUT ROWID;
CREATE INDEX experience_latest ON experience(target, device, made_ns);
)sql",
    // The number of measurements that transfer samples cover.
    R"sql(
ALTER TABLE experience ADD COLUMN measured INTEGER NOT NULL DEFAULT 0;
ALTER TABLE experience ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
)sql",
    // Transfer models.
    R"sql(
CREATE TABLE others_models(
  target INTEGER NOT NULL REFERENCES targets(id), device INTEGER NOT NULL REFERENCES devices(id),
  strategy TEXT NOT NULL, made_ns INTEGER NOT NULL, since INTEGER NOT NULL,
  model BLOB NOT NULL,  -- a TransferModel message, whose `since` is that of the column
  PRIMARY KEY(target, device, strategy));
)sql",
    // What was measured of the devices of a key.
    R"sql(
ALTER TABLE devices ADD COLUMN machine TEXT NOT NULL DEFAULT '';
)sql",
    // What plan stages found about kernels' costs, and the weights of tasks by the plan of the import. Of older
    // jobs these are unknown; the weights by the job's plan stand in for them.
    R"sql(
CREATE TABLE kernel_factors(
  workload INTEGER NOT NULL REFERENCES workloads(id), target INTEGER NOT NULL REFERENCES targets(id),
  device INTEGER NOT NULL REFERENCES devices(id), made_ns INTEGER NOT NULL,
  op TEXT NOT NULL, layout TEXT NOT NULL, window TEXT NOT NULL, log_factor REAL NOT NULL, version INTEGER NOT NULL,
  PRIMARY KEY(workload, target, device)) WITHOUT ROWID;
CREATE INDEX kernel_factors_latest ON kernel_factors(device, made_ns);
ALTER TABLE tasks ADD COLUMN estimated_weight INTEGER NOT NULL DEFAULT 0;
UPDATE tasks SET estimated_weight=weight;
)sql",
    // Who measured or imported a record, and whether it was retracted.
    R"sql(
ALTER TABLE records ADD COLUMN worker TEXT NOT NULL DEFAULT '';       -- that measured it; empty for imported records
ALTER TABLE records ADD COLUMN imported_by TEXT NOT NULL DEFAULT '';  -- empty for measured ones
ALTER TABLE records ADD COLUMN retracted_ns INTEGER NOT NULL DEFAULT 0;  -- 0: it stands
ALTER TABLE records ADD COLUMN retracted_by TEXT NOT NULL DEFAULT '';
ALTER TABLE records ADD COLUMN retraction TEXT NOT NULL DEFAULT '';  -- the reason
UPDATE records SET worker=worker_of(measurement) WHERE job IS NOT NULL;
UPDATE records SET imported_by='unknown' WHERE job IS NULL;
)sql",
    // Who submitted a job, and with which key of theirs, so that a submission that is sent again makes no second
    // job. Unfinished jobs are found without reading the others.
    R"sql(
ALTER TABLE jobs ADD COLUMN user TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN submit_key TEXT;  -- null: the client gave none
CREATE UNIQUE INDEX jobs_submitted ON jobs(user, submit_key) WHERE submit_key IS NOT NULL;
CREATE INDEX jobs_unfinished ON jobs(id) WHERE state NOT IN (4, 5, 6);
)sql",
    // What stays of records that were old and were removed: outcome and median of their candidates, and digests of those
    // that were retracted, so that nobody imports them again.
    R"sql(
ALTER TABLE candidates ADD COLUMN kept_outcome INTEGER NOT NULL DEFAULT 0;  -- 0: no record was removed
ALTER TABLE candidates ADD COLUMN kept_ns REAL NOT NULL DEFAULT 0;
CREATE TABLE retracted_digests(digest BLOB PRIMARY KEY) WITHOUT ROWID;
)sql",
    // The weights of tasks in the plan that contends with the job's.
    R"sql(
ALTER TABLE tasks ADD COLUMN rival_weight INTEGER NOT NULL DEFAULT 0;
)sql",
    // Who leads, and the name of the store.
    R"sql(
CREATE TABLE leaders(
  pool TEXT PRIMARY KEY, scheduler TEXT NOT NULL, address TEXT NOT NULL, epoch INTEGER NOT NULL,
  renewed_ns INTEGER NOT NULL,  -- by the monotonic clock of the host
  lease_ns INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE store(identity TEXT NOT NULL);
INSERT INTO store VALUES(lower(hex(randomblob(16))));
)sql",
    // Statistics of the records of each workload, target and device key, so that nobody counts records to read them. Each step of
    // the recursion finds the next group by one search of the index. The groups of an old database are counted later, some
    // with each transaction (SqlWriter::CountGroups), so that a start does not wait for millions of records.
    R"sql(
CREATE TABLE record_groups(
  workload INTEGER NOT NULL REFERENCES workloads(id), target INTEGER NOT NULL REFERENCES targets(id),
  device INTEGER NOT NULL REFERENCES devices(id),
  counted INTEGER NOT NULL,                             -- 0: the columns that follow mean nothing
  records INTEGER NOT NULL,                             -- that were not retracted; the others are of these
  known INTEGER NOT NULL, valid INTEGER NOT NULL,       -- that were not lost; that have a valid measurement
  best_ns REAL NOT NULL, untuned_ns REAL NOT NULL,      -- the fastest, of all and of default schedules; 0: none
  PRIMARY KEY(workload, target, device)) WITHOUT ROWID;
CREATE INDEX record_groups_uncounted ON record_groups(workload, target, device) WHERE counted=0;
INSERT INTO record_groups
WITH RECURSIVE found(workload, target, device) AS (
  SELECT * FROM (SELECT workload, target, device FROM records ORDER BY workload, target, device LIMIT 1)
  UNION ALL
  SELECT r.workload, r.target, r.device FROM found f CROSS JOIN records r ON r.id=
    (SELECT n.id FROM records n WHERE (n.workload, n.target, n.device)>(f.workload, f.target, f.device)
     ORDER BY n.workload, n.target, n.device LIMIT 1))
SELECT workload, target, device, 0, 0, 0, 0, 0, 0 FROM found;
)sql",
    // Samples on one target are read without those on others, the newest workload first.
    R"sql(
CREATE INDEX experience_pages ON experience(target, workload, device);
)sql",
    // Whether a record is there already is looked up among those of its workload, target and device. Digests alone are spread
    // over their whole index, so that each new one of many million waited for a page of it.
    R"sql(
CREATE INDEX records_equal ON records(workload, target, device, digest);
DROP INDEX records_digest;
)sql"};

constexpr int64_t kLeadersSince = 12;  // the first version with the table of leaders

// The SQL function worker_of: the worker that a stored measurement names.
void WorkerOf(sqlite3_context* context, int, sqlite3_value** values) {
  v1::Measurement measured;
  const void* bytes = sqlite3_value_blob(values[0]);
  const int size = sqlite3_value_bytes(values[0]);
  if (bytes == nullptr || !measured.ParseFromArray(bytes, size)) measured.Clear();
  const std::string& worker = measured.evidence().worker();
  sqlite3_result_text64(context, worker.data(), worker.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
}

absl::StatusOr<int64_t> VersionOf(sqlite3* db) {
  SqliteSession session(db);
  Statement query(&session, "PRAGMA user_version");
  const int64_t version = query.Step() ? query.Int(0) : 0;
  HEDDLE_RETURN_IF_ERROR(query.status());
  return version;
}

// Unavailable: somebody leads. Its lease tells that also where it has no lock on the data folder, as one that took over
// from a leader that was stopped.
absl::Status CheckNobodyLeads(SqliteSession* session) {
  HEDDLE_ASSIGN_OR_RETURN(const LeaderRow row, ReadLeader(session, kDefaultPool));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t now, session->ClockNs());
  const Leader leader = LeaderAt(row, absl::FromUnixNanos(now));
  if (leader.remaining == absl::ZeroDuration()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("it needs a migration, and a scheduler of an older version leads on it, at ",
                   leader.address, ", or ended less than ", absl::FormatDuration(row.lease),
                   " ago without letting go; if it was killed, wait for ",
                   absl::FormatDuration(leader.remaining)));
}

}  // namespace

absl::Status Migrate(sqlite3* db, int version, bool in_use) {
  HEDDLE_RETURN_IF_ERROR(
      SqliteStatus(db, sqlite3_create_function(db, "worker_of", 1, SQLITE_UTF8, nullptr, WorkerOf,
                                               nullptr, nullptr)));
  // The leader may be writing now. If there is nothing to migrate, nothing is written.
  HEDDLE_ASSIGN_OR_RETURN(int64_t found, VersionOf(db));
  if (found == version) return absl::OkStatus();
  if (in_use) {
    return absl::FailedPreconditionError(
        absl::StrCat("the database is of version ", found, ", this program makes version ", version,
                     " of it, and another scheduler uses it: end that one first"));
  }
  HEDDLE_RETURN_IF_ERROR(Execute(db, "BEGIN IMMEDIATE"));
  if (const absl::StatusOr<int64_t> now = VersionOf(db); now.ok()) found = *now;
  absl::Status status;
  if (found < 0) {
    status = absl::FailedPreconditionError(
        "a copy into it did not end; run the same `heddle store copy` again");
  } else if (found > version) {
    status = absl::FailedPreconditionError(absl::StrCat("the database is of version ", found,
                                                        ", this program knows ", version,
                                                        ": use the newer program"));
  } else if (found >= kLeadersSince && found < version) {
    SqliteSession session(db);
    status = CheckNobodyLeads(&session);
    if (status.ok()) status = Execute(db, kEndEpochs);
  }
  for (int64_t i = found; status.ok() && i < version; ++i) {
    status = Execute(db, kMigrations[static_cast<size_t>(i)]);
  }
  if (status.ok()) status = Execute(db, absl::StrCat("PRAGMA user_version=", version).c_str());
  if (!status.ok()) {
    (void)Execute(db, "ROLLBACK");
    return status;
  }
  return Execute(db, "COMMIT");
}

}  // namespace heddle::scheduler
