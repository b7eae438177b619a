#include "scheduler/store/sql_read.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <compare>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/vocabulary/choose_trials.h"
#include "base/vocabulary/target.h"
#include "proto/job_states.h"

namespace heddle::scheduler {
namespace {

absl::StatusOr<JobRow> DecodeJob(const Statement& row) {
  JobRow out;
  out.id = row.Int(0);
  v1::Job& job = out.job;
  v1::Job notes;
  if (!job.mutable_spec()->ParseFromString(row.Text(1)) || !notes.ParseFromString(row.Text(13))) {
    return absl::DataLossError("job " + JobName(out.id) + " is not readable");
  }
  job.set_id(JobName(out.id));
  job.set_state(static_cast<v1::JobState>(row.Int(2)));
  out.paused = row.Int(3) != 0;
  job.set_reason(row.Text(4));
  if (row.Int(5) != v1::FAULT_NONE) {
    job.mutable_fault()->set_kind(static_cast<v1::FaultKind>(row.Int(5)));
    job.mutable_fault()->set_message(row.Text(6));
  }
  out.device_key = row.Text(7);
  job.set_model_digest(row.Text(8));
  job.set_module_digest(row.Text(9));
  job.set_created_unix_ns(row.Int(10));
  job.set_finished_unix_ns(row.Int(11));
  job.set_running_ms(row.Int(12));
  *job.mutable_warnings() = notes.warnings();
  *job.mutable_inputs() = notes.inputs();
  *job.mutable_outputs() = notes.outputs();
  job.set_stop(notes.stop());
  job.set_tuning_ms(notes.tuning_ms());
  job.set_parts_digest(notes.parts_digest());
  job.set_plan(notes.plan());
  job.set_machine(notes.machine());
  if (notes.has_comparison()) *job.mutable_comparison() = notes.comparison();
  job.set_default_digest(notes.default_digest());
  job.set_estimated_plan(notes.estimated_plan());
  if (notes.has_plan_report()) *job.mutable_plan_report() = notes.plan_report();
  job.set_surveys(notes.surveys());
  job.set_plan_settled(notes.plan_settled());
  job.set_other_digest(notes.other_digest());
  job.set_other_default_digest(notes.other_default_digest());
  *job.mutable_claims() = notes.claims();
  job.set_collected_unix_ns(notes.collected_unix_ns());
  out.submit_key = row.Text(15);
  return out;
}

absl::Status ReadTasks(SqlSession* db, StoredJob* job) {
  Statement rows(
      db,
      "SELECT "
      "t.idx,w.key,w.text,w.label,w.flops,t.weight,t.budget,t.known,t.known_valid,t.done,t."
      "exhausted,"
      "t.warm_pending,t.known_best_ns,t.known_untuned_ns,t.state,t.estimated_weight,t.rival_weight "
      "FROM tasks t "
      "JOIN workloads w ON w.id=t.workload WHERE t.job=? ORDER BY t.idx");
  rows.Bind(job->row.id);
  while (rows.Step()) {
    TaskRow task;
    task.job = job->row.id;
    task.index = static_cast<int32_t>(rows.Int(0));
    task.info.set_key(rows.Text(1));
    task.info.set_workload(rows.Text(2));
    task.info.set_label(rows.Text(3));
    task.info.set_flops(rows.Real(4));
    task.info.set_weight(static_cast<int32_t>(rows.Int(5)));
    task.budget = static_cast<int32_t>(rows.Int(6));
    task.known = {static_cast<int>(rows.Int(7)), static_cast<int>(rows.Int(8)), rows.Real(12),
                  rows.Real(13)};
    task.done = rows.Int(9) != 0;
    task.exhausted = rows.Int(10) != 0;
    task.warm_pending = rows.Int(11) != 0;
    task.estimated_weight = static_cast<int>(rows.Int(15));
    task.rival_weight = static_cast<int>(rows.Int(16));
    job->tasks.push_back(std::move(task));
    job->states.push_back(rows.Text(14));
  }
  return rows.status();
}

absl::Status ReadCandidates(SqlSession* db, StoredJob* job) {
  // Of a finished job, the measurements that failed are enough: they say why.
  Statement rows(db,
                 "SELECT c.id,c.task,CASE WHEN ?2 THEN '' ELSE c.trace "
                 "END,c.origin,c.attempts,c.learned,r.outcome,r.median_ns,"
                 "CASE WHEN ?2 AND r.outcome=1 THEN NULL ELSE r.measurement END,"
                 "r.retracted_ns>0,r.retraction,c.kept_outcome,c.kept_ns FROM "
                 "candidates c LEFT JOIN records r ON r.job=c.job AND r.candidate=c.id WHERE "
                 "c.job=?1 ORDER BY c.id",
                 Reading::kRowByRow);
  rows.Bind(job->row.id, IsFinal(job->row.job.state()));
  while (rows.Step()) {
    StoredCandidate row;
    row.job = job->row.id;
    row.id = rows.Int(0);
    row.task = static_cast<int32_t>(rows.Int(1));
    row.trace = rows.Text(2);
    row.origin = rows.Text(3);
    row.attempts = static_cast<int32_t>(rows.Int(4));
    row.learned = rows.Int(5) != 0;
    if (!rows.IsNull(6)) {
      row.outcome = static_cast<v1::Outcome>(rows.Int(6));
      row.median_ns = rows.Real(7);
      v1::Measurement measured;
      if (measured.ParseFromString(rows.Text(8))) {
        row.message = measured.message();
        row.profile_ns = measured.profile_ns();
      }
      if (rows.Int(9) != 0) {
        row.outcome = v1::OUTCOME_LOST;
        row.median_ns = 0;
        row.message = absl::StrCat(kRetracted, rows.Text(10));
      }
    } else if (rows.Int(11) != 0) {
      row.outcome = static_cast<v1::Outcome>(rows.Int(11));
      row.median_ns = rows.Real(12);
      if (row.outcome != v1::OUTCOME_OK) row.message = kRemoved;
    }
    job->candidates.push_back(std::move(row));
  }
  return rows.status();
}

v1::StageSpan DecodeSpan(const Statement& row) {
  v1::StageSpan span;
  span.set_attempt_id(row.Int(0));
  span.set_job(JobName(row.Int(1)));
  span.set_task(row.Text(2));
  span.set_kind(static_cast<v1::StageKind>(row.Int(3)));
  span.set_worker(row.Text(4));
  span.set_slot(row.Text(5));
  span.set_start_unix_ns(row.Int(7));
  span.set_end_unix_ns(row.Int(8));
  if (row.Int(9) != v1::FAULT_NONE) {
    span.mutable_fault()->set_kind(static_cast<v1::FaultKind>(row.Int(9)));
    span.mutable_fault()->set_message(row.Text(10));
  }
  span.set_candidates(static_cast<int32_t>(row.Int(11)));
  return span;
}

// Rows of workload key, target, device key, samples, measured and version.
absl::StatusOr<std::vector<TransferSamples>> TakeSamples(Statement* rows) {
  std::vector<TransferSamples> found;
  while (rows->Step()) {
    TransferSamples& one = found.emplace_back();
    one.workload = {rows->Text(0), rows->Text(1), rows->Text(2)};
    one.learned.set_samples(rows->Text(3));
    one.learned.set_measured(static_cast<int32_t>(rows->Int(4)));
    one.learned.set_version(static_cast<int32_t>(rows->Int(5)));
  }
  HEDDLE_RETURN_IF_ERROR(rows->status());
  return found;
}

}  // namespace

namespace {

// These columns of the selected jobs, the last one first. Its parameters are `before` and `limit`.
std::string SelectJobs(const std::string& columns, const JobSelection& selection) {
  constexpr const char* kSources[] = {
      "jobs WHERE id<?", "jobs INDEXED BY jobs_unfinished WHERE id<? AND state NOT IN (4, 5, 6)",
      "jobs WHERE id<? AND state IN (4, 5, 6)"};
  return absl::StrCat("SELECT ", columns, " FROM ", kSources[selection.which],
                      " ORDER BY id DESC LIMIT ?");
}

}  // namespace

absl::StatusOr<LeaderRow> ReadLeader(SqlSession* db, const std::string& pool) {
  LeaderRow leader;
  Statement row(db,
                "SELECT scheduler, address, epoch, renewed_ns, lease_ns FROM leaders WHERE pool=?");
  if (row.Bind(pool).Step()) {
    leader = {row.Text(0), row.Text(1), row.Int(2), absl::FromUnixNanos(row.Int(3)),
              absl::Nanoseconds(row.Int(4))};
  }
  HEDDLE_RETURN_IF_ERROR(row.status());
  return leader;
}

absl::StatusOr<std::vector<StoredJob>> ReadJobs(SqlSession* db, const JobSelection& selection) {
  std::vector<StoredJob> jobs;
  {
    const std::string sql = SelectJobs("*", selection);
    Statement rows(db, sql);
    rows.Bind(selection.before, selection.limit);
    while (rows.Step()) {
      HEDDLE_ASSIGN_OR_RETURN(JobRow row, DecodeJob(rows));
      jobs.push_back({std::move(row), {}, {}, {}});
    }
    HEDDLE_RETURN_IF_ERROR(rows.status());
  }
  std::reverse(jobs.begin(), jobs.end());
  for (StoredJob& job : jobs) {
    HEDDLE_RETURN_IF_ERROR(ReadTasks(db, &job));
    HEDDLE_RETURN_IF_ERROR(ReadCandidates(db, &job));
  }
  return jobs;
}

absl::StatusOr<std::vector<JobOwner>> ReadOwners(SqlSession* db, const JobSelection& selection) {
  std::vector<JobOwner> owners;
  // The column `user` is empty in jobs of old databases; the spec says it of all.
  const std::string sql = SelectJobs("id,spec", selection);
  Statement rows(db, sql);
  rows.Bind(selection.before, selection.limit);
  v1::JobSpec spec;
  while (rows.Step()) {
    if (!spec.ParseFromString(rows.Text(1)))
      return absl::DataLossError("job " + JobName(rows.Int(0)) + " is not readable");
    owners.push_back({rows.Int(0), spec.user()});
  }
  HEDDLE_RETURN_IF_ERROR(rows.status());
  std::reverse(owners.begin(), owners.end());
  return owners;
}

absl::StatusOr<int64_t> ReadLastJob(SqlSession* db) {
  Statement row(db, "SELECT coalesce(max(id),0) FROM jobs");
  const int64_t last = row.Step() ? row.Int(0) : 0;
  HEDDLE_RETURN_IF_ERROR(row.status());
  return last;
}

absl::StatusOr<std::optional<JobRow>> ReadJob(SqlSession* db, int64_t id) {
  Statement rows(db, "SELECT * FROM jobs WHERE id=?");
  rows.Bind(id);
  std::optional<JobRow> found;
  while (rows.Step()) {
    HEDDLE_ASSIGN_OR_RETURN(found, DecodeJob(rows));
  }
  HEDDLE_RETURN_IF_ERROR(rows.status());
  return found;
}

absl::StatusOr<std::optional<JobRow>> ReadSubmitted(SqlSession* db, const std::string& user,
                                                    const std::string& submit_key) {
  Statement rows(db, "SELECT * FROM jobs WHERE \"user\"=? AND submit_key=?");
  rows.Bind(user, submit_key);
  std::optional<JobRow> found;
  while (rows.Step()) {
    HEDDLE_ASSIGN_OR_RETURN(found, DecodeJob(rows));
  }
  HEDDLE_RETURN_IF_ERROR(rows.status());
  return found;
}

absl::StatusOr<std::vector<JobBlobs>> ReadBlobsOfJobs(SqlSession* db, int64_t after,
                                                      int64_t limit) {
  std::vector<JobBlobs> all;
  Statement rows(db, "SELECT * FROM jobs WHERE id>? ORDER BY id LIMIT ?");
  rows.Bind(after, limit);
  while (rows.Step()) {
    HEDDLE_ASSIGN_OR_RETURN(const JobRow row, DecodeJob(rows));
    all.push_back(BlobsOf(row));
  }
  HEDDLE_RETURN_IF_ERROR(rows.status());
  return all;
}

absl::StatusOr<std::vector<int64_t>> ReadFinished(SqlSession* db) {
  std::vector<int64_t> jobs;
  Statement rows(db,
                 "SELECT id FROM jobs WHERE state IN (4, 5, 6) AND model_digest<>'' "
                 "ORDER BY finished_ns, id");
  while (rows.Step()) jobs.push_back(rows.Int(0));
  HEDDLE_RETURN_IF_ERROR(rows.status());
  return jobs;
}

absl::StatusOr<std::vector<FinishedJob>> ReadCollectable(SqlSession* db,
                                                         absl::Span<const int64_t> jobs) {
  std::vector<FinishedJob> found;
  for (const int64_t job : jobs) {
    HEDDLE_ASSIGN_OR_RETURN(const std::optional<JobRow> row, ReadJob(db, job));
    if (!row || row->job.collected_unix_ns() != 0) continue;
    found.push_back({job, row->job.spec().name(), row->job.finished_unix_ns(), BlobsOf(*row)});
  }
  return found;
}

absl::StatusOr<Collection> ReadCollection(SqlSession* db, int64_t job, const CollectionPlace& after,
                                          int64_t limit) {
  Collection found{{job, {}, {}, {}}, 0, std::nullopt};
  CollectionPlace place = after;
  int64_t looked = 0;
  {
    // A thin measurement has about 64 bytes, and so has a stage besides its texts.
    Statement rows(
        db,
        "WITH live AS (SELECT DISTINCT t.workload FROM jobs j INDEXED BY jobs_unfinished "
        "CROSS JOIN tasks t ON t.job=j.id WHERE j.state NOT IN (4, 5, 6)) "
        "SELECT c.id, length(c.trace), r.id, length(r.measurement)-64, "
        "r.id IS NOT NULL AND r.workload NOT IN (SELECT workload FROM live) "
        "AND r.id IS DISTINCT FROM (SELECT b.id FROM records b WHERE b.workload=r.workload AND "
        "b.target=r.target AND b.device=r.device AND b.outcome=1 AND b.retracted_ns=0 "
        "ORDER BY b.median_ns, b.id LIMIT 1) "
        "FROM candidates c LEFT JOIN records r ON r.job=c.job AND r.candidate=c.id "
        "WHERE c.job=?1 AND c.id>?2 ORDER BY c.id LIMIT ?3");
    rows.Bind(job, after.candidate, limit);
    while (rows.Step()) {
      ++looked;
      place.candidate = rows.Int(0);
      if (rows.Int(1) > 0) {
        found.rows.candidates.push_back(rows.Int(0));
        found.bytes += rows.Int(1);
      }
      if (rows.Int(4) != 0) {
        found.rows.records.push_back(rows.Int(2));
        found.bytes += std::max<int64_t>(0, rows.Int(3));
      }
    }
    HEDDLE_RETURN_IF_ERROR(rows.status());
  }
  if (looked < limit) {
    Statement rows(
        db,
        "SELECT attempt, start_ns, end_ns<>0 AND attempt<(SELECT max(attempt) FROM stages), "
        "length(task)+length(worker)+length(fault_message)+64 FROM stages "
        "WHERE job=?1 AND (start_ns, attempt)>(?2, ?3) ORDER BY start_ns, attempt LIMIT ?4");
    rows.Bind(job, after.start_unix_ns, after.attempt, limit - looked);
    while (rows.Step()) {
      ++looked;
      place.attempt = rows.Int(0);
      place.start_unix_ns = rows.Int(1);
      if (rows.Int(2) == 0) continue;
      found.rows.attempts.push_back(rows.Int(0));
      found.bytes += rows.Int(3);
    }
    HEDDLE_RETURN_IF_ERROR(rows.status());
  }
  if (looked == limit) found.last = place;
  if (after.candidate != 0 || after.attempt != 0) return found;
  Statement tasks(db,
                  "SELECT coalesce(sum(length(state)+length(report)), 0) FROM tasks WHERE job=?");
  tasks.Bind(job);
  if (tasks.Step()) found.bytes += tasks.Int(0);
  HEDDLE_RETURN_IF_ERROR(tasks.status());
  return found;
}

namespace {

// Looks at records in the order of OldRecordPlace and tells which are old.
class OldRecordWalk {
 public:
  OldRecordWalk(SqlSession* db, const OldRecordRule& rule,
                const std::optional<OldRecordPlace>& after)
      : db_(db),
        rule_(rule),
        place_(after.value_or(OldRecordPlace())),
        best_(db,
              "SELECT median_ns, id FROM records WHERE workload=? AND target=? AND device=? "
              "AND outcome=1 AND retracted_ns=0 ORDER BY median_ns, id LIMIT 1"),
        best_here_(db,
                   "SELECT median_ns, id FROM records WHERE workload=? AND target=? AND device=? "
                   "AND outcome=1 AND retracted_ns=0 AND job IS NOT NULL "
                   "ORDER BY median_ns, id LIMIT 1"),
        stands_(db, "SELECT 1 FROM records WHERE id=? AND retracted_ns=0") {}

  struct Record {
    std::array<int64_t, 3> group;
    int64_t created_ns, id, retracted_ns;
    double median_ns;
    bool valid, imported, is_default;
    bool needed;  // by its job, or so that no id comes again
  };
  // To be called for one record after the other.
  absl::StatusOr<bool> IsOld(const Record& record) {
    if (record.group != place_.group) {
      place_ = {.group = record.group};
      best_is_checked_ = false;
    }
    place_.created_unix_ns = record.created_ns;
    place_.id = record.id;
    if (record.retracted_ns != 0)
      return !record.needed && record.retracted_ns < rule_.before_unix_ns;
    const bool enough = place_.newer++ >= std::max<int64_t>(1, rule_.newest);
    if (!enough || record.needed || record.is_default || record.created_ns >= rule_.before_unix_ns)
      return false;
    return IsSuperseded(record);
  }
  const OldRecordPlace& place() const { return place_; }

 private:
  using Fast = OldRecordPlace::Fast;

  absl::StatusOr<bool> IsSuperseded(const Record& record) {
    HEDDLE_RETURN_IF_ERROR(ReadLive());
    if (live_->contains(record.group[0])) return false;
    if (!record.valid) return true;
    HEDDLE_RETURN_IF_ERROR(FindBest());
    // One that was stored since the best was found may be faster, and then it is the best.
    const Fast fast{record.median_ns, record.id};
    const auto is_slower_than = [&](const std::optional<Fast>& best) {
      return best && *best < fast;
    };
    return is_slower_than(place_.best) && (record.imported || is_slower_than(place_.best_here));
  }

  absl::Status ReadLive() {
    if (live_) return absl::OkStatus();
    live_.emplace();
    Statement rows(db_,
                   "SELECT DISTINCT t.workload FROM jobs j INDEXED BY jobs_unfinished "
                   "CROSS JOIN tasks t ON t.job=j.id WHERE j.state NOT IN (4, 5, 6)");
    while (rows.Step()) live_->insert(rows.Int(0));
    return rows.status();
  }

  // Of the group of the place. What an earlier page found is found again only if it was retracted
  // or is gone.
  absl::Status FindBest() {
    if (best_is_checked_) return absl::OkStatus();
    best_is_checked_ = true;
    if (place_.knows_best) {
      HEDDLE_ASSIGN_OR_RETURN(const bool best, Stands(place_.best));
      HEDDLE_ASSIGN_OR_RETURN(const bool best_here, Stands(place_.best_here));
      if (best && best_here) return absl::OkStatus();
    }
    place_.knows_best = true;
    HEDDLE_ASSIGN_OR_RETURN(place_.best, First(best_));
    HEDDLE_ASSIGN_OR_RETURN(place_.best_here, First(best_here_));
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<Fast>> First(Statement& best) {
    best.Bind(place_.group[0], place_.group[1], place_.group[2]);
    std::optional<Fast> found;
    if (best.Step()) found = Fast{best.Real(0), best.Int(1)};
    HEDDLE_RETURN_IF_ERROR(best.status());
    return found;
  }
  absl::StatusOr<bool> Stands(const std::optional<Fast>& best) {
    if (!best) return true;  // then no valid record is superseded
    stands_.Bind(best->id);
    const bool stands = stands_.Step();
    HEDDLE_RETURN_IF_ERROR(stands_.status());
    return stands;
  }

  SqlSession* const db_;
  const OldRecordRule rule_;
  OldRecordPlace place_;
  bool best_is_checked_ = false;  // in this page
  Statement best_, best_here_, stands_;
  std::optional<std::set<int64_t>> live_;  // workloads that unfinished jobs tune
};

}  // namespace

absl::StatusOr<OldRecords> ReadOldRecords(SqlSession* db, const OldRecordRule& rule,
                                          const std::optional<OldRecordPlace>& after,
                                          int64_t limit) {
  OldRecordWalk walk(db, rule, after);
  OldRecords found;
  int64_t looked = 0;
  const auto look = [&](Statement& rows) -> absl::Status {
    while (rows.Step()) {
      ++looked;
      HEDDLE_ASSIGN_OR_RETURN(const bool old,
                              walk.IsOld({.group = {rows.Int(0), rows.Int(1), rows.Int(2)},
                                          .created_ns = rows.Int(3),
                                          .id = rows.Int(4),
                                          .retracted_ns = rows.Int(5),
                                          .median_ns = rows.Real(6),
                                          .valid = rows.Int(7) != 0,
                                          .imported = rows.Int(8) != 0,
                                          .is_default = rows.Int(9) != 0,
                                          .needed = rows.Int(10) == 0}));
      if (!old) continue;
      found.ids.push_back(rows.Int(4));
      found.bytes += rows.Int(11);
    }
    return rows.status();
  };
  // A finished job without a model is collected.
  const auto sql = [](const char* after_place) {
    return absl::StrCat(
        "SELECT r.workload, r.target, r.device, r.created_ns, r.id, r.retracted_ns, r.median_ns, "
        "r.outcome=1, r.job IS NULL, c.origin='default', "
        "r.id<>(SELECT max(id) FROM records) AND (r.job IS NULL OR EXISTS(SELECT 1 FROM jobs j "
        "WHERE j.id=r.job AND j.state IN (4, 5, 6) AND j.model_digest='')), "
        "length(r.trace)+length(r.measurement)+length(r.digest)+128 "
        "FROM records r LEFT JOIN candidates c ON c.job=r.job AND c.id=r.candidate WHERE ",
        after_place,
        " ORDER BY r.workload DESC, r.target DESC, r.device DESC, r.created_ns DESC, r.id DESC "
        "LIMIT ?");
  };
  // SQLite's index finds a place up to its time, so those of the same time are read by themselves.
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const OldRecordPlace from =
      after.value_or(OldRecordPlace{.group = {kMax, kMax, kMax}, .created_unix_ns = kMax});
  if (after) {
    Statement same(db, sql("r.workload=? AND r.target=? AND r.device=? AND r.created_ns=? "
                           "AND r.id<?"));
    same.Bind(from.group[0], from.group[1], from.group[2], from.created_unix_ns, from.id, limit);
    HEDDLE_RETURN_IF_ERROR(look(same));
  }
  if (looked < limit) {
    Statement others(db, sql("(r.workload, r.target, r.device, r.created_ns)<(?, ?, ?, ?)"));
    others.Bind(from.group[0], from.group[1], from.group[2], from.created_unix_ns, limit - looked);
    HEDDLE_RETURN_IF_ERROR(look(others));
  }
  if (looked == limit) found.last = walk.place();
  return found;
}

absl::StatusOr<std::vector<StageRow>> ReadUnfinishedStages(SqlSession* db) {
  std::vector<StageRow> stages;
  Statement rows(db, "SELECT * FROM stages WHERE end_ns=0 ORDER BY attempt");
  while (rows.Step()) stages.push_back({DecodeSpan(rows), rows.Text(6)});
  HEDDLE_RETURN_IF_ERROR(rows.status());
  return stages;
}

absl::StatusOr<int64_t> ReadLastAttempt(SqlSession* db) {
  Statement row(db, "SELECT coalesce(max(attempt),0) FROM stages");
  const int64_t last = row.Step() ? row.Int(0) : 0;
  HEDDLE_RETURN_IF_ERROR(row.status());
  return last;
}

absl::StatusOr<std::map<SlotId, uint64_t>> ReadFences(SqlSession* db) {
  std::map<SlotId, uint64_t> fences;
  Statement rows(db, "SELECT worker, slot, token FROM fences");
  while (rows.Step()) fences[{rows.Text(0), rows.Text(1)}] = static_cast<uint64_t>(rows.Int(2));
  HEDDLE_RETURN_IF_ERROR(rows.status());
  return fences;
}

absl::StatusOr<std::vector<v1::StageSpan>> ReadTimeline(SqlSession* db, int64_t job,
                                                        int64_t since_unix_ns, int64_t limit) {
  std::vector<v1::StageSpan> spans;
  Statement rows(db,
                 "SELECT * FROM stages WHERE job=? AND start_ns>=? ORDER BY start_ns DESC, attempt "
                 "DESC LIMIT ?");
  rows.Bind(job, since_unix_ns, limit);
  while (rows.Step()) spans.push_back(DecodeSpan(rows));
  HEDDLE_RETURN_IF_ERROR(rows.status());
  std::reverse(spans.begin(), spans.end());
  return spans;
}

namespace {

// Whether the query asks for something of records to which no index leads, so that it has to look at
// all of them, the newest first.
bool LooksAtAll(const v1::RecordQuery& query) {
  if (!query.workload_key().empty() || !query.job().empty() || query.id() != 0 || query.best_only())
    return false;
  return !query.target().empty() || !query.device_key().empty() || !query.worker().empty() ||
         !query.imported_by().empty() || query.valid_only();
}

// The place of the record that comes `rows` after this one in the order of queries; nullopt: there are
// not so many. Only the index is read.
absl::StatusOr<std::optional<RecordPlace>> PlaceAfter(SqlSession* db,
                                                      const std::optional<RecordPlace>& after,
                                                      int64_t rows) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const RecordPlace from = after.value_or(RecordPlace{kMax, kMax});
  Statement row(db,
                "SELECT created_ns, id FROM records WHERE (created_ns, id)<(?1, ?2) "
                "ORDER BY created_ns DESC, id DESC LIMIT 1 OFFSET ?3");
  row.Bind(from.created_unix_ns, from.id, rows - 1);
  std::optional<RecordPlace> found;
  if (row.Step()) found = RecordPlace{row.Int(0), row.Int(1)};
  HEDDLE_RETURN_IF_ERROR(row.status());
  return found;
}

}  // namespace

absl::StatusOr<RecordPage> ReadRecords(SqlSession* db, const v1::RecordQuery& query,
                                       const std::optional<RecordPlace>& after, int64_t limit,
                                       const PageCost& most) {
  // Only the fields that are given become conditions, so that the database can choose an index by them.
  // best_only keeps, of the records that match, the fastest valid one per workload, target and device
  // key; of equally fast ones, the first that was stored. One index lookup per group finds it, so
  // records are not compared with each other.
  const auto given = [](bool is_given, const char* condition) { return is_given ? condition : ""; };
  const auto of_key = [&](const std::string& table) {
    const auto is = [&](bool is_given, const char* condition) {
      return is_given ? absl::StrCat(" AND ", table, condition) : "";
    };
    return absl::StrCat(
        "1=1",
        is(!query.workload_key().empty(), ".workload=(SELECT id FROM workloads WHERE key=?1)"),
        is(!query.target().empty(), ".target=(SELECT id FROM targets WHERE text=?2)"),
        is(!query.device_key().empty(), ".device=(SELECT id FROM devices WHERE key=?3)"));
  };
  const std::string of_workload = of_key("r");
  const std::string of_origin =
      absl::StrCat(given(!query.job().empty(), " AND r.job=?4"),
                   given(!query.worker().empty(), " AND r.worker=?7"),
                   given(!query.imported_by().empty(), " AND r.imported_by=?8"),
                   given(query.id() != 0, " AND r.id=?9"));
  const std::string of_record = absl::StrCat(
      of_origin, given(!query.retracted() || query.best_only(), " AND r.retracted_ns=0"));
  // All groups are listed where nothing is asked of their records. One whose records are all retracted, or
  // gone, has no best.
  const std::string groups =
      of_origin.empty()
          ? absl::StrCat("SELECT k.workload, k.target, k.device FROM record_groups k WHERE ",
                         of_key("k"))
          : absl::StrCat("SELECT DISTINCT r.workload, r.target, r.device FROM records r WHERE ",
                         of_workload, of_origin);
  const std::string best = absl::StrCat(
      "(", groups,
      ") g CROSS JOIN records r ON r.id=(SELECT r.id FROM records r WHERE r.workload=g.workload "
      "AND r.target=g.target AND r.device=g.device AND r.outcome=1",
      of_record, " ORDER BY r.median_ns, r.id LIMIT 1)");
  std::optional<RecordPlace> end;  // of the page, however few records match
  if (LooksAtAll(query) && most.rows < std::numeric_limits<int64_t>::max()) {
    HEDDLE_ASSIGN_OR_RETURN(end, PlaceAfter(db, after, most.rows));
  }
  const std::string sql = absl::StrCat(
      "SELECT w.key, ", query.with_workload() ? "w.text" : "''",
      ", w.label, w.flops, t.text, d.key, r.trace, r.median_ns, r.created_ns, "
      "r.job, r.candidate, r.attempt, r.provenance, r.measurement, c.origin, c.predicted, "
      "c.predicted_from, r.id, r.imported_by, r.retracted_ns, r.retracted_by, r.retraction FROM ",
      query.best_only() ? best : "records r",
      " JOIN workloads w ON w.id=r.workload JOIN targets t ON t.id=r.target "
      "JOIN devices d ON d.id=r.device "
      "LEFT JOIN candidates c ON c.job=r.job AND c.id=r.candidate WHERE ",
      of_workload, of_record, query.valid_only() ? " AND r.outcome=1" : "",
      after ? " AND (r.created_ns, r.id) < (?5, ?6)" : "",
      end ? " AND (r.created_ns, r.id) >= (?10, ?11)" : "",
      " ORDER BY r.created_ns DESC, r.id DESC LIMIT ?12");
  Statement rows(db, sql, Reading::kRowByRow);
  const RecordPlace place = after.value_or(RecordPlace()), least = end.value_or(RecordPlace());
  rows.Bind(query.workload_key(), query.target(), query.device_key(), ParseJobName(query.job()),
            place.created_unix_ns, place.id, query.worker(), query.imported_by(), query.id(),
            least.created_unix_ns, least.id, limit);
  RecordPage page;
  size_t bytes = 0;
  while (bytes < most.bytes && rows.Step()) {
    v1::Record record;
    record.set_schema_version(1);
    record.set_workload_key(rows.Text(0));
    record.set_workload(rows.Text(1));
    record.set_label(rows.Text(2));
    record.set_flops(rows.Real(3));
    record.set_target(rows.Text(4));
    record.set_device_key(rows.Text(5));
    record.set_trace(rows.Text(6));
    record.set_median_ns(rows.Real(7));
    record.set_created_unix_ns(rows.Int(8));
    record.set_job(rows.IsNull(9) ? rows.Text(12) : JobName(rows.Int(9)));
    record.set_candidate(rows.Int(10));
    record.set_attempt(static_cast<int32_t>(rows.Int(11)));
    record.set_origin(rows.Text(14));
    if (!rows.IsNull(15)) {
      record.mutable_prediction()->set_score(rows.Real(15));
      record.mutable_prediction()->set_samples(static_cast<int32_t>(rows.Int(16)));
    }
    record.set_id(rows.Int(17));
    record.set_imported_by(rows.Text(18));
    if (rows.Int(19) != 0) {
      record.mutable_retraction()->set_unix_ns(rows.Int(19));
      record.mutable_retraction()->set_by(rows.Text(20));
      record.mutable_retraction()->set_reason(rows.Text(21));
    }
    if (!record.mutable_measurement()->ParseFromString(rows.Text(13))) {
      return absl::DataLossError("a record's measurement is not readable");
    }
    if (!most.loops) record.mutable_measurement()->clear_loops();
    page.last = {rows.Int(8), rows.Int(17)};
    bytes += record.ByteSizeLong();
    page.records.push_back(std::move(record));
  }
  HEDDLE_RETURN_IF_ERROR(rows.status());
  if (static_cast<int64_t>(page.records.size()) < limit && bytes < most.bytes) page.last = end;
  return page;
}

absl::StatusOr<TrialSample> ReadTrialSample(SqlSession* db, const WorkloadId& id, int64_t most) {
  // The index records_best has all that decides which rows are read.
  struct Trial {
    int64_t id;
    double median_ns;
  };
  std::vector<Trial> trials;
  {
    Statement rows(db,
                   "SELECT r.id, r.outcome, r.median_ns FROM records r INDEXED BY records_best "
                   "WHERE r.workload=(SELECT id FROM workloads WHERE key=?1) "
                   "AND r.target=(SELECT id FROM targets WHERE text=?2) "
                   "AND r.device=(SELECT id FROM devices WHERE key=?3)",
                   Reading::kRowByRow);
    rows.Bind(id.key, id.target, id.device_key);
    while (rows.Step()) {
      const int64_t outcome = rows.Int(1);
      if (outcome == v1::OUTCOME_LOST) continue;
      trials.push_back({rows.Int(0), outcome == v1::OUTCOME_OK ? rows.Real(2) : 0});
    }
    HEDDLE_RETURN_IF_ERROR(rows.status());
  }
  std::sort(trials.begin(), trials.end(),
            [](const Trial& a, const Trial& b) { return a.id < b.id; });
  // Whether a record was retracted is known only once it is read. If one of the fastest was, the
  // choice is made anew without those; somebody who retracts records of a task retracts few or all.
  constexpr int kRounds = 8;
  TrialSample sample;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> medians;
    medians.reserve(trials.size());
    for (const Trial& trial : trials) medians.push_back(trial.median_ns);
    sample.all = static_cast<int64_t>(trials.size());
    sample.points.clear();
    std::vector<int64_t> retracted;
    bool fastest_retracted = false;
    Statement row(
        db,
        "SELECT r.created_ns, r.job, r.provenance, c.origin, r.retracted_ns FROM records r "
        "LEFT JOIN candidates c ON c.job=r.job AND c.id=r.candidate WHERE r.id=?");
    for (const ChosenTrial& chosen : ChooseTrials(medians, most)) {
      const Trial& trial = trials[chosen.index];
      row.Bind(trial.id);
      if (!row.Step()) {
        HEDDLE_RETURN_IF_ERROR(row.status());
        continue;
      }
      if (row.Int(4) != 0) {
        retracted.push_back(trial.id);
        fastest_retracted |= chosen.fastest_so_far;
        continue;
      }
      TrialPoint& point = sample.points.emplace_back();
      point.number = static_cast<int64_t>(chosen.index) + 1;
      point.id = trial.id;
      point.created_unix_ns = row.Int(0);
      point.median_ns = trial.median_ns;
      point.origin = row.Text(3);
      if (!row.IsNull(1)) point.job = JobName(row.Int(1));
      point.fastest_so_far = chosen.fastest_so_far;
    }
    if (!fastest_retracted) break;
    std::erase_if(trials, [&](const Trial& trial) {
      return std::find(retracted.begin(), retracted.end(), trial.id) != retracted.end();
    });
  }
  return sample;
}

absl::StatusOr<std::vector<v1::StageSpan>> ReadLatestStages(SqlSession* db, int64_t first_attempt,
                                                            int64_t limit) {
  std::vector<v1::StageSpan> spans;
  Statement rows(db, "SELECT * FROM stages WHERE attempt>=? ORDER BY attempt DESC LIMIT ?");
  rows.Bind(first_attempt, limit);
  while (rows.Step()) spans.push_back(DecodeSpan(rows));
  HEDDLE_RETURN_IF_ERROR(rows.status());
  std::reverse(spans.begin(), spans.end());
  return spans;
}

absl::StatusOr<std::vector<WorkloadName>> ReadWorkloads(SqlSession* db, const std::string& text,
                                                        const std::string& after, int64_t limit) {
  std::vector<WorkloadName> found;
  Statement rows(db,
                 "SELECT w.key, w.label, w.flops FROM workloads w WHERE w.key>?1 "
                 "AND (instr(lower(w.label), lower(?2 COLLATE BINARY))>0 "
                 "OR substr(w.key, 1, length(?2))=lower(?2 COLLATE BINARY)) "
                 "AND EXISTS(SELECT 1 FROM records r WHERE r.workload=w.id) "
                 "ORDER BY w.key LIMIT ?3");
  rows.Bind(after, text, limit);
  while (rows.Step()) found.push_back({rows.Text(0), rows.Text(1), rows.Real(2)});
  HEDDLE_RETURN_IF_ERROR(rows.status());
  return found;
}

absl::StatusOr<std::vector<DevicePair>> ReadDevicePairs(SqlSession* db, const std::string& device_a,
                                                        const std::string& device_b,
                                                        int64_t limit) {
  // The index records_best leads to the fastest record of each target.
  Statement best(db,
                 "SELECT r.median_ns, t.text FROM targets t CROSS JOIN records r ON r.id="
                 "(SELECT b.id FROM records b WHERE b.workload=?1 AND b.target=t.id "
                 "AND b.device=(SELECT id FROM devices WHERE key=?2) AND b.outcome=1 "
                 "AND b.retracted_ns=0 ORDER BY b.median_ns, b.id LIMIT 1) "
                 "ORDER BY r.median_ns, r.id LIMIT 1");
  const auto find = [&](int64_t workload, const std::string& device, DevicePair::Best* found) {
    best.Bind(workload, device);
    if (!best.Step()) return false;
    *found = {best.Real(0), best.Text(1)};
    return true;
  };
  std::vector<DevicePair> pairs;
  Statement rows(db, "SELECT id, key, label, flops FROM workloads ORDER BY key LIMIT ?");
  rows.Bind(limit);
  while (rows.Step()) {
    DevicePair pair;
    if (find(rows.Int(0), device_a, &pair.a) && find(rows.Int(0), device_b, &pair.b)) {
      pair.name = {rows.Text(1), rows.Text(2), rows.Real(3)};
      pairs.push_back(std::move(pair));
    }
    HEDDLE_RETURN_IF_ERROR(best.status());
  }
  HEDDLE_RETURN_IF_ERROR(rows.status());
  return pairs;
}

absl::StatusOr<KnownRecords> ReadKnown(SqlSession* db, const WorkloadId& id) {
  {
    Statement row(db,
                  "SELECT known, valid, best_ns, untuned_ns FROM record_groups "
                  "WHERE workload=(SELECT id FROM workloads WHERE key=?1) "
                  "AND target=(SELECT id FROM targets WHERE text=?2) "
                  "AND device=(SELECT id FROM devices WHERE key=?3) AND counted=1");
    row.Bind(id.key, id.target, id.device_key);
    if (row.Step())
      return KnownRecords{static_cast<int>(row.Int(0)), static_cast<int>(row.Int(1)), row.Real(2),
                          row.Real(3)};
    HEDDLE_RETURN_IF_ERROR(row.status());
  }
  // There is no record, or the group is not counted yet. A lost trial says nothing about its candidate, so it
  // does not count as known.
  constexpr char kSql[] = R"sql(
SELECT count(*), count(CASE WHEN r.outcome=1 THEN 1 END), coalesce(min(CASE WHEN r.outcome=1 THEN r.median_ns END),0),
       coalesce(min(CASE WHEN r.outcome=1 AND c.origin='default' THEN r.median_ns END),0)
FROM records r LEFT JOIN candidates c ON c.job=r.job AND c.id=r.candidate
WHERE r.workload=(SELECT id FROM workloads WHERE key=?1) AND r.target=(SELECT id FROM targets WHERE text=?2)
  AND r.device=(SELECT id FROM devices WHERE key=?3) AND r.outcome<>7 AND r.retracted_ns=0)sql";
  Statement row(db, kSql);
  row.Bind(id.key, id.target, id.device_key);
  KnownRecords known;
  if (row.Step())
    known = {static_cast<int>(row.Int(0)), static_cast<int>(row.Int(1)), row.Real(2), row.Real(3)};
  HEDDLE_RETURN_IF_ERROR(row.status());
  return known;
}

absl::StatusOr<std::optional<v1::Record>> ReadBestMeasured(SqlSession* db, const WorkloadId& id) {
  // In the order of the index records_best, so only faster imported or retracted records are passed.
  Statement row(
      db,
      "SELECT r.id FROM records r WHERE r.workload=(SELECT id FROM workloads WHERE key=?1) "
      "AND r.target=(SELECT id FROM targets WHERE text=?2) "
      "AND r.device=(SELECT id FROM devices WHERE key=?3) "
      "AND r.outcome=1 AND r.retracted_ns=0 AND r.job IS NOT NULL "
      "ORDER BY r.median_ns, r.id LIMIT 1");
  row.Bind(id.key, id.target, id.device_key);
  v1::RecordQuery query;
  if (row.Step()) query.set_id(row.Int(0));
  HEDDLE_RETURN_IF_ERROR(row.status());
  if (query.id() == 0) return std::optional<v1::Record>();
  HEDDLE_ASSIGN_OR_RETURN(RecordPage page,
                          ReadRecords(db, query, std::nullopt, 1, {.loops = false}));
  if (page.records.empty()) return std::optional<v1::Record>();  // retracted between the two reads
  return std::optional<v1::Record>(std::move(page.records.front()));
}

absl::StatusOr<std::optional<v1::SearchReport>> ReadReport(SqlSession* db, int64_t job,
                                                           int32_t task) {
  Statement row(db, "SELECT report FROM tasks WHERE job=? AND idx=?");
  row.Bind(job, task);
  const std::string bytes = row.Step() ? row.Text(0) : "";
  HEDDLE_RETURN_IF_ERROR(row.status());
  if (bytes.empty()) return std::optional<v1::SearchReport>();
  v1::SearchReport report;
  if (!report.ParseFromString(bytes)) return absl::DataLossError("a task's report is not readable");
  return std::optional<v1::SearchReport>(std::move(report));
}

absl::StatusOr<std::vector<TransferSamples>> ReadRelatedSamples(SqlSession* db,
                                                                const WorkloadId& id,
                                                                int64_t limit) {
  Statement rows(
      db,
      // `own` and `near` give the order of Nearer. Samples are read only for the rows that are
      // returned.
      "SELECT its_key, its_target, its_device, e.samples, e.measured, e.version FROM "
      "(SELECT e.workload AS workload, e.target AS target, e.device AS device, "
      "w.key AS its_key, t.text AS its_target, d.key AS its_device, w.key=?1 AS own, "
      "CASE WHEN d.key<>?3 THEN 0 WHEN t.text<>?2 THEN 1 ELSE 2 END AS near FROM experience e "
      "JOIN workloads w ON w.id=e.workload JOIN targets t ON t.id=e.target "
      "JOIN devices d ON d.id=e.device "
      "WHERE substr(t.text, 1, instr(t.text || ' ', ' ') - 1)=?4 "
      "AND NOT (w.key=?1 AND t.text=?2 AND d.key=?3) "
      "ORDER BY own DESC, near DESC, e.made_ns DESC, w.key, t.text, d.key LIMIT ?5) nearest "
      "JOIN experience e USING(workload, target, device) "
      "ORDER BY own DESC, near DESC, e.made_ns DESC, its_key, its_target, its_device");
  rows.Bind(id.key, id.target, id.device_key, std::string(KindOf(id.target)), limit);
  return TakeSamples(&rows);
}

namespace {

// Rows of the tables of workloads, targets and devices that stand for a WorkloadId.
struct WorkloadRow {
  int64_t workload = 0, target = 0, device = 0;
  friend auto operator<=>(const WorkloadRow&, const WorkloadRow&) = default;
};

// The targets of a kind that have transfer samples. Each step of the recursion finds the next target by one
// search of the index, so neither rows of samples nor targets without any are looked at.
absl::StatusOr<std::vector<int64_t>> TargetsWithSamples(SqlSession* db, const std::string& kind) {
  Statement rows(db,
                 "WITH RECURSIVE used(target) AS (SELECT min(target) FROM experience UNION ALL "
                 "SELECT (SELECT min(e.target) FROM experience e WHERE e.target>u.target) "
                 "FROM used u WHERE u.target IS NOT NULL) "
                 "SELECT t.id FROM used u JOIN targets t ON t.id=u.target "
                 "WHERE substr(t.text, 1, instr(t.text || ' ', ' ') - 1)=?");
  rows.Bind(kind);
  std::vector<int64_t> targets;
  while (rows.Step()) targets.push_back(rows.Int(0));
  HEDDLE_RETURN_IF_ERROR(rows.status());
  return targets;
}

}  // namespace

// Takes the first of each target, and of these the first of all, so a page costs what it returns for each
// target of the kind, however many samples other kinds have. The number of statements does not depend on the page's size.
absl::StatusOr<std::vector<TransferSamples>> ReadSamplesAfter(
    SqlSession* db, const std::string& kind, const std::optional<WorkloadId>& after,
    int64_t limit) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  WorkloadRow last{kMost, kMost, kMost};
  if (after) {
    Statement row(db,
                  "SELECT w.id, t.id, d.id FROM workloads w, targets t, devices d "
                  "WHERE w.key=? AND t.text=? AND d.key=?");
    row.Bind(after->key, after->target, after->device_key);
    const bool found = row.Step();
    if (found) last = {row.Int(0), row.Int(1), row.Int(2)};
    HEDDLE_RETURN_IF_ERROR(row.status());
    if (!found) return std::vector<TransferSamples>();
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<int64_t> targets, TargetsWithSamples(db, kind));
  std::vector<WorkloadRow> places;
  Statement of_target(db,
                      "SELECT workload, device FROM experience WHERE target=?1 "
                      "AND (workload, device) < (?2, ?3) "
                      "ORDER BY workload DESC, device DESC LIMIT ?4");
  for (const int64_t target : targets) {
    // Of the workload of `last`, a smaller target has all devices still to come, a larger one none.
    const int64_t device = target < last.target ? kMost : target == last.target ? last.device : 0;
    of_target.Bind(target, last.workload, device, limit);
    while (of_target.Step()) places.push_back({of_target.Int(0), target, of_target.Int(1)});
    HEDDLE_RETURN_IF_ERROR(of_target.status());
  }
  std::sort(places.begin(), places.end(), std::greater<>());
  if (static_cast<int64_t>(places.size()) > limit) places.resize(static_cast<size_t>(limit));
  if (places.empty()) return std::vector<TransferSamples>();
  // All in one statement. Its text depends on the limit alone, so a connection prepares it once; the zeros at the end
  // stand for no row.
  std::vector<int64_t> ids;
  for (const WorkloadRow& place : places)
    ids.insert(ids.end(), {place.workload, place.target, place.device});
  ids.resize(static_cast<size_t>(3 * limit));
  const std::vector<std::string> values(
      static_cast<size_t>(limit), "(CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT))");
  Statement rows(
      db,
      absl::StrCat("SELECT w.key, t.text, d.key, e.samples, e.measured, e.version FROM (VALUES ",
                   absl::StrJoin(values, ", "),
                   ") AS p CROSS JOIN experience e "
                   "ON e.workload=p.column1 AND e.target=p.column2 AND e.device=p.column3 "
                   "JOIN workloads w ON w.id=e.workload JOIN targets t ON t.id=e.target "
                   "JOIN devices d ON d.id=e.device "
                   "ORDER BY e.workload DESC, e.target DESC, e.device DESC"));
  rows.BindAll(ids);
  return TakeSamples(&rows);
}

absl::StatusOr<std::map<TransferModelId, v1::TransferModel>> ReadTransferModels(SqlSession* db) {
  Statement rows(db,
                 "SELECT t.text, d.key, m.strategy, m.since, m.model FROM others_models m "
                 "JOIN targets t ON t.id=m.target JOIN devices d ON d.id=m.device");
  std::map<TransferModelId, v1::TransferModel> models;
  while (rows.Step()) {
    v1::TransferModel model;
    if (!model.ParseFromString(rows.Text(4))) {  // the next search fits another one
      spdlog::warn("a kept model of other tasks, of {}, is not readable", rows.Text(0));
      continue;
    }
    model.set_since(rows.Int(3));
    models[{rows.Text(0), rows.Text(1), rows.Text(2)}] = std::move(model);
  }
  HEDDLE_RETURN_IF_ERROR(rows.status());
  return models;
}

absl::StatusOr<std::map<std::string, std::string>> ReadMachines(SqlSession* db) {
  Statement rows(db, "SELECT key, machine FROM devices WHERE machine<>''");
  std::map<std::string, std::string> machines;
  while (rows.Step()) machines[rows.Text(0)] = rows.Text(1);
  HEDDLE_RETURN_IF_ERROR(rows.status());
  return machines;
}

absl::StatusOr<Experience> ReadExperience(SqlSession* db, const std::string& target,
                                          const std::string& device_key, int64_t limit) {
  Experience found;
  for (const bool same : {true, false}) {
    Statement rows(db,
                   "SELECT w.key, k.op, k.layout, k.\"window\", k.log_factor, k.version "
                   "FROM kernel_factors k JOIN workloads w ON w.id=k.workload "
                   "JOIN targets t ON t.id=k.target JOIN devices d ON d.id=k.device "
                   "WHERE substr(t.text, 1, instr(t.text || ' ', ' ') - 1)=?3 "
                   "AND (t.text=?1 AND d.key=?2)=?4 "
                   "ORDER BY k.made_ns DESC, w.key, t.text, d.key LIMIT ?5");
    rows.Bind(target, device_key, std::string(KindOf(target)), same, limit);
    while (rows.Step()) {
      v1::KernelFactor& factor = (same ? found.device : found.others).emplace_back();
      factor.set_workload_key(rows.Text(0));
      factor.set_op(rows.Text(1));
      factor.set_layout(rows.Text(2));
      factor.set_window(rows.Text(3));
      factor.set_log_factor(rows.Real(4));
      factor.set_version(static_cast<int32_t>(rows.Int(5)));
    }
    HEDDLE_RETURN_IF_ERROR(rows.status());
  }
  return found;
}

absl::StatusOr<std::vector<std::string>> ReadDeviceKeys(SqlSession* db, const std::string& target) {
  // Of a group that is not counted yet, retracted records count too.
  Statement rows(db,
                 "SELECT key FROM (SELECT d.key AS key, sum(CASE WHEN g.counted=1 THEN g.records "
                 "ELSE (SELECT count(*) FROM records r WHERE r.workload=g.workload "
                 "AND r.target=g.target AND r.device=g.device) END) AS n "
                 "FROM record_groups g JOIN devices d ON d.id=g.device "
                 "WHERE g.target=(SELECT id FROM targets WHERE text=?) GROUP BY d.key) counts "
                 "WHERE n>0 ORDER BY n DESC, key");
  rows.Bind(target);
  std::vector<std::string> keys;
  while (rows.Step()) keys.push_back(rows.Text(0));
  HEDDLE_RETURN_IF_ERROR(rows.status());
  return keys;
}

}  // namespace heddle::scheduler
