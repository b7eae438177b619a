#include "scheduler/store/postgres/postgres_schema.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "scheduler/store/leader.h"
#include "scheduler/store/sqlite_schema.h"

namespace heddle::scheduler {
namespace {

constexpr int kFirstVersion = 13;

// Migration N makes version kFirstVersion + N. They are never changed once released; new ones are added at
// the end. STRING stands for a text that is compared byte by byte, as SQLite does. What the columns mean,
// sqlite_schema.cc tells.
constexpr std::array kPostgresMigrations = {
    R"sql(
CREATE TABLE workloads(
  id BIGINT PRIMARY KEY, key STRING NOT NULL UNIQUE, text STRING NOT NULL, label STRING NOT NULL,
  flops DOUBLE PRECISION NOT NULL);
CREATE TABLE targets(id BIGINT PRIMARY KEY, text STRING NOT NULL UNIQUE);
CREATE TABLE devices(id BIGINT PRIMARY KEY, key STRING NOT NULL UNIQUE, machine STRING NOT NULL DEFAULT '');

CREATE TABLE jobs(
  id BIGINT PRIMARY KEY, spec BYTEA NOT NULL, state BIGINT NOT NULL, paused BIGINT NOT NULL, reason STRING NOT NULL,
  fault_kind BIGINT NOT NULL, fault_message STRING NOT NULL, device_key STRING NOT NULL,
  model_digest STRING NOT NULL, module_digest STRING NOT NULL,
  created_ns BIGINT NOT NULL, finished_ns BIGINT NOT NULL, running_ms BIGINT NOT NULL, notes BYTEA NOT NULL,
  "user" STRING NOT NULL, submit_key STRING);
CREATE UNIQUE INDEX jobs_submitted ON jobs("user", submit_key) WHERE submit_key IS NOT NULL;
CREATE INDEX jobs_unfinished ON jobs(id) WHERE state NOT IN (4, 5, 6);

CREATE TABLE tasks(
  job BIGINT NOT NULL REFERENCES jobs(id), idx BIGINT NOT NULL, workload BIGINT NOT NULL REFERENCES workloads(id),
  weight BIGINT NOT NULL, budget BIGINT NOT NULL, known BIGINT NOT NULL, known_valid BIGINT NOT NULL,
  done BIGINT NOT NULL, exhausted BIGINT NOT NULL, warm_pending BIGINT NOT NULL,
  known_best_ns DOUBLE PRECISION NOT NULL, known_untuned_ns DOUBLE PRECISION NOT NULL,
  state BYTEA NOT NULL DEFAULT '', report BYTEA NOT NULL DEFAULT '',
  estimated_weight BIGINT NOT NULL DEFAULT 0, rival_weight BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY(job, idx));
CREATE TABLE candidates(
  job BIGINT NOT NULL, id BIGINT NOT NULL, task BIGINT NOT NULL, trace STRING NOT NULL, origin STRING NOT NULL,
  attempts BIGINT NOT NULL, learned BIGINT NOT NULL, predicted DOUBLE PRECISION,
  predicted_from BIGINT NOT NULL DEFAULT 0, kept_outcome BIGINT NOT NULL DEFAULT 0,
  kept_ns DOUBLE PRECISION NOT NULL DEFAULT 0,
  PRIMARY KEY(job, id), FOREIGN KEY(job, task) REFERENCES tasks(job, idx));

CREATE TABLE records(
  id BIGINT PRIMARY KEY, workload BIGINT NOT NULL REFERENCES workloads(id),
  target BIGINT NOT NULL REFERENCES targets(id), device BIGINT NOT NULL REFERENCES devices(id),
  trace STRING NOT NULL, outcome BIGINT NOT NULL, median_ns DOUBLE PRECISION NOT NULL, created_ns BIGINT NOT NULL,
  job BIGINT, candidate BIGINT, attempt BIGINT, provenance STRING NOT NULL, measurement BYTEA NOT NULL,
  digest BYTEA NOT NULL, worker STRING NOT NULL DEFAULT '', imported_by STRING NOT NULL DEFAULT '',
  retracted_ns BIGINT NOT NULL DEFAULT 0, retracted_by STRING NOT NULL DEFAULT '',
  retraction STRING NOT NULL DEFAULT '');
CREATE UNIQUE INDEX records_attempt ON records(job, candidate, attempt) WHERE job IS NOT NULL;
CREATE UNIQUE INDEX records_candidate ON records(job, candidate) WHERE job IS NOT NULL;
CREATE INDEX records_workload ON records(workload, target, device, created_ns, id);
CREATE INDEX records_created ON records(created_ns, id);
CREATE INDEX records_digest ON records(digest);
CREATE INDEX records_best ON records(workload, target, device, outcome, median_ns, id);
CREATE TABLE retracted_digests(digest BYTEA PRIMARY KEY);

CREATE TABLE stages(
  attempt BIGINT PRIMARY KEY, job BIGINT NOT NULL, task STRING NOT NULL, kind BIGINT NOT NULL, worker STRING NOT NULL,
  slot STRING NOT NULL, lease STRING NOT NULL, start_ns BIGINT NOT NULL, end_ns BIGINT NOT NULL,
  fault_kind BIGINT NOT NULL, fault_message STRING NOT NULL, candidates BIGINT NOT NULL);
CREATE INDEX stages_job ON stages(job, start_ns, attempt);
CREATE INDEX stages_open ON stages(attempt) WHERE end_ns = 0;
CREATE TABLE fences(
  worker STRING NOT NULL, slot STRING NOT NULL, token BIGINT NOT NULL, PRIMARY KEY(worker, slot));

CREATE TABLE experience(
  workload BIGINT NOT NULL REFERENCES workloads(id), target BIGINT NOT NULL REFERENCES targets(id),
  device BIGINT NOT NULL REFERENCES devices(id), made_ns BIGINT NOT NULL, samples BYTEA NOT NULL,
  measured BIGINT NOT NULL DEFAULT 0, version BIGINT NOT NULL DEFAULT 0, PRIMARY KEY(workload, target, device));
CREATE INDEX experience_latest ON experience(target, device, made_ns);
CREATE TABLE others_models(
  target BIGINT NOT NULL REFERENCES targets(id), device BIGINT NOT NULL REFERENCES devices(id),
  strategy STRING NOT NULL, made_ns BIGINT NOT NULL, since BIGINT NOT NULL, model BYTEA NOT NULL,
  PRIMARY KEY(target, device, strategy));
CREATE TABLE kernel_factors(
  workload BIGINT NOT NULL REFERENCES workloads(id), target BIGINT NOT NULL REFERENCES targets(id),
  device BIGINT NOT NULL REFERENCES devices(id), made_ns BIGINT NOT NULL, op STRING NOT NULL, layout STRING NOT NULL,
  "window" STRING NOT NULL, log_factor DOUBLE PRECISION NOT NULL, version BIGINT NOT NULL,
  PRIMARY KEY(workload, target, device));
CREATE INDEX kernel_factors_latest ON kernel_factors(device, made_ns);
CREATE TABLE record_groups(
  workload BIGINT NOT NULL REFERENCES workloads(id), target BIGINT NOT NULL REFERENCES targets(id),
  device BIGINT NOT NULL REFERENCES devices(id), counted BIGINT NOT NULL, records BIGINT NOT NULL,
  known BIGINT NOT NULL, valid BIGINT NOT NULL, best_ns DOUBLE PRECISION NOT NULL,
  untuned_ns DOUBLE PRECISION NOT NULL, PRIMARY KEY(workload, target, device));
CREATE INDEX record_groups_uncounted ON record_groups(workload, target, device) WHERE counted=0;

CREATE TABLE leaders(
  pool STRING PRIMARY KEY, scheduler STRING NOT NULL, address STRING NOT NULL, epoch BIGINT NOT NULL,
  renewed_ns BIGINT NOT NULL, lease_ns BIGINT NOT NULL);
CREATE TABLE store(identity STRING NOT NULL);
INSERT INTO store VALUES(replace(CAST(gen_random_uuid() AS TEXT), '-', ''));

-- The number of the last commit (PostgresSession::Commit), in one row.
CREATE TABLE heddle_commit(number BIGINT NOT NULL);
INSERT INTO heddle_commit VALUES(0);
)sql",
    R"sql(
CREATE INDEX experience_pages ON experience(target, workload, device);
)sql",
    R"sql(
CREATE INDEX records_equal ON records(workload, target, device, digest);
DROP INDEX records_digest;
)sql"};
static_assert(kFirstVersion + kPostgresMigrations.size() == kSchemaVersion + 1,
              "a migration of SQLite needs one here, with the same result");

}  // namespace

absl::StatusOr<int64_t> PostgresVersion(PostgresSession* session) {
  int64_t version = 0;
  Statement exists(session, "SELECT to_regclass('heddle_schema') IS NOT NULL");
  const bool there = exists.Step() && exists.Int(0) != 0;
  HEDDLE_RETURN_IF_ERROR(exists.status());
  if (!there) return version;
  Statement query(session, "SELECT version FROM heddle_schema");
  if (query.Step()) version = query.Int(0);
  HEDDLE_RETURN_IF_ERROR(query.status());
  return version;
}

absl::Status SetPostgresVersion(int64_t version, PostgresSession* session) {
  return session->Execute(absl::StrCat(kEndEpochs, "UPDATE heddle_schema SET version=", version));
}

absl::StatusOr<bool> PostgresFits(PostgresSession* session, bool copying, int version) {
  HEDDLE_ASSIGN_OR_RETURN(const int64_t found, PostgresVersion(session));
  if (found == version || (copying && found == -version)) return true;
  if (found < 0) {
    return absl::FailedPreconditionError(
        "a copy into it did not end; run the same `heddle store copy` again");
  }
  if (found > version) {
    return absl::FailedPreconditionError(absl::StrCat(
        "it is of version ", found, ", this program knows ", version, ": use the newer program"));
  }
  return false;
}

absl::Status MigratePostgres(PostgresSession* session, bool copying, int version) {
  HEDDLE_ASSIGN_OR_RETURN(const bool fits, PostgresFits(session, copying, version));
  if (fits) return absl::OkStatus();
  HEDDLE_ASSIGN_OR_RETURN(const int64_t found, PostgresVersion(session));
  if (found > 0 && found < kFirstVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "it is of version ", found, ", and this program knows versions from ", kFirstVersion,
        " on; `heddle records export` with the program that made it "
        "keeps its records, then give this one an empty database"));
  }
  std::string sql;
  if (found == 0) {
    sql =
        "CREATE TABLE heddle_schema(version BIGINT NOT NULL);"
        "INSERT INTO heddle_schema VALUES(0);";
  }
  for (size_t i = 0; i < kPostgresMigrations.size(); ++i) {
    if (kFirstVersion + static_cast<int64_t>(i) <= found) continue;
    absl::StrAppend(
        &sql, absl::StrReplaceAll(kPostgresMigrations[i], {{"STRING", "TEXT COLLATE \"C\""}}));
  }
  absl::StrAppend(&sql, kEndEpochs, "UPDATE heddle_schema SET version=", version);
  HEDDLE_RETURN_IF_ERROR(session->Begin(SqlSession::Running::kAtOnce));
  absl::Status status;
  if (found > 0) {
    // Each transaction of a leader changes this table first, so no other one is open from here to the commit.
    status = session->EndOtherWriters("leaders");
    if (status.ok()) status = session->Execute("LOCK TABLE leaders IN EXCLUSIVE MODE");
  }
  // An index over many million records takes longer than any other statement may.
  if (status.ok()) status = session->Execute("SET LOCAL statement_timeout=0");
  if (status.ok()) status = session->Execute(sql);
  if (status.ok()) return session->CommitRepeatable();
  session->Rollback();
  return status;
}

}  // namespace heddle::scheduler
