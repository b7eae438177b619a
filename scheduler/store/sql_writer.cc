#include "scheduler/store/sql_writer.h"

#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/quantiles.h"
#include "base/status_macros.h"
#include "proto/job_states.h"
#include "scheduler/store/sql_read.h"
#include "scheduler/store/transfer.h"

namespace heddle::scheduler {
namespace {

absl::Status RecordIsThere() {
  return absl::AlreadyExistsError("the record is there already, or was retracted");
}

}  // namespace

bool SqlWriter::IsRefusedWhole(const Batch& batch) const {
  const InsertRecord* change = batch.size() == 1 ? std::get_if<InsertRecord>(&batch[0]) : nullptr;
  if (change == nullptr || !change->imported) return false;
  const v1::Record& record = change->record;
  return Knows(record.workload_key(), record.workload()).has_value() &&
         targets_.contains(record.target()) && devices_.contains(record.device_key());
}

absl::Status SqlWriter::operator()(const PutJob& change) {
  const v1::Job& job = change.row.job;
  v1::Job notes;
  *notes.mutable_warnings() = job.warnings();
  *notes.mutable_inputs() = job.inputs();
  *notes.mutable_outputs() = job.outputs();
  notes.set_stop(job.stop());
  notes.set_tuning_ms(job.tuning_ms());
  notes.set_parts_digest(job.parts_digest());
  notes.set_plan(job.plan());
  notes.set_machine(job.machine());
  if (job.has_comparison()) *notes.mutable_comparison() = job.comparison();
  notes.set_default_digest(job.default_digest());
  notes.set_estimated_plan(job.estimated_plan());
  if (job.has_plan_report()) *notes.mutable_plan_report() = job.plan_report();
  notes.set_surveys(job.surveys());
  notes.set_plan_settled(job.plan_settled());
  notes.set_other_digest(job.other_digest());
  notes.set_other_default_digest(job.other_default_digest());
  *notes.mutable_claims() = job.claims();
  notes.set_collected_unix_ns(job.collected_unix_ns());
  const std::string spec = job.spec().SerializeAsString(), note = notes.SerializeAsString();
  return Prepared(
             "INSERT INTO jobs VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(id) DO UPDATE "
             "SET "
             "spec=excluded.spec,state=excluded.state,paused=excluded.paused,reason=excluded."
             "reason,"
             "fault_kind=excluded.fault_kind,fault_message=excluded.fault_message,device_key="
             "excluded.device_key,"
             "model_digest=excluded.model_digest,module_digest=excluded.module_digest,"
             "created_ns=excluded.created_ns,finished_ns=excluded.finished_ns,running_ms="
             "excluded.running_ms,"
             "notes=excluded.notes,\"user\"=excluded.\"user\",submit_key=excluded.submit_key")
      .Bind(change.row.id, Blob{spec}, job.state(), change.row.paused, job.reason(),
            job.fault().kind(), job.fault().message(), change.row.device_key, job.model_digest(),
            job.module_digest(), job.created_unix_ns(), job.finished_unix_ns(), job.running_ms(),
            Blob{note}, job.spec().user(),
            change.row.submit_key.empty() ? std::nullopt : std::optional(change.row.submit_key))
      .Run();
}

absl::Status SqlWriter::operator()(const PutTask& change) {
  const TaskRow& row = change.row;
  HEDDLE_ASSIGN_OR_RETURN(int64_t workload, Workload(row.info.key(), row.info.workload(),
                                                     row.info.label(), row.info.flops()));
  return Prepared(
             "INSERT INTO "
             "tasks(job,idx,workload,weight,budget,known,known_valid,done,exhausted,warm_pending,"
             "known_best_ns,known_untuned_ns,estimated_weight,rival_weight) "
             "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?) "
             "ON "
             "CONFLICT(job,idx) DO UPDATE SET "
             "workload=excluded.workload,weight=excluded.weight,budget=excluded.budget,known="
             "excluded.known,"
             "known_valid=excluded.known_valid,done=excluded.done,exhausted=excluded.exhausted,"
             "warm_pending=excluded.warm_pending,known_best_ns=excluded.known_best_ns,"
             "known_untuned_ns=excluded.known_untuned_ns,estimated_weight=excluded.estimated_"
             "weight,rival_weight=excluded.rival_weight")
      .Bind(row.job, row.index, workload, row.info.weight(), row.budget, row.known.total,
            row.known.valid, row.done, row.exhausted, row.warm_pending, row.known.best_ns,
            row.known.untuned_ns, row.estimated_weight, row.rival_weight)
      .Run();
}

absl::Status SqlWriter::operator()(const CheckFence& change) {
  const auto& [slot, token] = change.fence;
  const auto known = fences_.find(slot);
  if (known != fences_.end() && known->second == token) return absl::OkStatus();
  HEDDLE_ASSIGN_OR_RETURN(
      const bool newest,
      Prepared("INSERT INTO fences VALUES(?,?,?) ON CONFLICT(worker,slot) DO UPDATE SET "
               "token=excluded.token WHERE fences.token<=excluded.token")
          .Bind(slot.worker, slot.slot, token)
          .RunIfItChanges());
  if (newest) {
    fences_[slot] = token;
    return absl::OkStatus();
  }
  Statement& query =
      Prepared("SELECT token FROM fences WHERE worker=? AND slot=?").Bind(slot.worker, slot.slot);
  uint64_t seen = 0;
  while (query.Step()) seen = static_cast<uint64_t>(query.Int(0));
  HEDDLE_RETURN_IF_ERROR(query.status());
  return StaleFence(change.fence, seen);
}

absl::Status SqlWriter::operator()(const PutSearchState& change) {
  return Prepared("UPDATE tasks SET state=? WHERE job=? AND idx=?")
      .Bind(Blob{change.state}, change.job, change.task)
      .Run();
}

absl::Status SqlWriter::operator()(const PutLearned& change) {
  const std::string report = change.report.SerializeAsString();
  HEDDLE_RETURN_IF_ERROR(Prepared("UPDATE tasks SET report=? WHERE job=? AND idx=?")
                             .Bind(Blob{report}, change.job, change.task)
                             .Run());
  HEDDLE_RETURN_IF_ERROR(
      Prepared("UPDATE others_models SET since=since+? WHERE device=(SELECT id FROM devices WHERE "
               "key=?)")
          .Bind(change.results, change.workload.device_key)
          .Run());
  if (change.transfer_samples.samples().empty()) return absl::OkStatus();
  HEDDLE_ASSIGN_OR_RETURN(int64_t target, Target(change.workload.target));
  HEDDLE_ASSIGN_OR_RETURN(int64_t device, Device(change.workload.device_key));
  return Prepared(  // the same condition as in Replaces
             "INSERT INTO experience SELECT id,?,?,?,?,?,? FROM workloads WHERE key=? "
             "ON CONFLICT(workload,target,device) DO UPDATE SET made_ns=excluded.made_ns, "
             "samples=excluded.samples, measured=excluded.measured, version=excluded.version "
             "WHERE excluded.version>experience.version OR excluded.measured>experience.measured "
             "OR (excluded.measured=experience.measured AND excluded.version=experience.version)")
      .Bind(target, device, change.made_unix_ns, Blob{change.transfer_samples.samples()},
            change.transfer_samples.measured(), change.transfer_samples.version(),
            change.workload.key)
      .Run();
}

absl::Status SqlWriter::operator()(const PutTransferModel& change) {
  HEDDLE_ASSIGN_OR_RETURN(int64_t target, Target(change.id.target));
  HEDDLE_ASSIGN_OR_RETURN(int64_t device, Device(change.id.device_key));
  HEDDLE_RETURN_IF_ERROR(
      Prepared("DELETE FROM others_models WHERE target=? AND device=? AND strategy=?")
          .Bind(target, device, change.id.strategy)
          .Run());
  if (change.model.model().empty()) return absl::OkStatus();
  const std::string model = change.model.SerializeAsString();
  HEDDLE_RETURN_IF_ERROR(Prepared("INSERT INTO others_models VALUES(?,?,?,?,?,?)")
                             .Bind(target, device, change.id.strategy, change.model.made_unix_ns(),
                                   change.model.since(), Blob{model})
                             .Run());
  return Prepared(
             "DELETE FROM others_models WHERE (target,device,strategy) NOT IN "
             "(SELECT target,device,strategy FROM others_models "
             "ORDER BY made_ns DESC, target DESC, device DESC, strategy DESC LIMIT ?)")
      .Bind(TransferModels::kMost)
      .Run();
}

absl::Status SqlWriter::operator()(const PutMachine& change) {
  HEDDLE_ASSIGN_OR_RETURN(int64_t device, Device(change.device_key));
  return Prepared("UPDATE devices SET machine=? WHERE id=?").Bind(change.machine, device).Run();
}

absl::Status SqlWriter::operator()(const PutExperience& change) {
  HEDDLE_ASSIGN_OR_RETURN(int64_t target, Target(change.target));
  HEDDLE_ASSIGN_OR_RETURN(int64_t device, Device(change.device_key));
  for (const v1::KernelFactor& factor : change.factors) {
    HEDDLE_RETURN_IF_ERROR(Prepared("INSERT INTO kernel_factors "
                                    "SELECT id,?,?,?,?,?,?,?,? FROM workloads WHERE key=? "
                                    "ON CONFLICT(workload,target,device) DO UPDATE SET "
                                    "made_ns=excluded.made_ns,op=excluded.op,"
                                    "layout=excluded.layout,\"window\"=excluded.\"window\","
                                    "log_factor=excluded.log_factor,version=excluded.version")
                               .Bind(target, device, change.made_unix_ns, factor.op(),
                                     factor.layout(), factor.window(), factor.log_factor(),
                                     factor.version(), factor.workload_key())
                               .Run());
  }
  return Prepared(
             "DELETE FROM kernel_factors WHERE device=?1 AND (workload,target) IN "
             "(SELECT k.workload,k.target FROM kernel_factors k JOIN workloads w ON "
             "w.id=k.workload "
             "JOIN targets t ON t.id=k.target WHERE k.device=?1 "
             "ORDER BY k.made_ns DESC, w.key, t.text LIMIT 9223372036854775807 OFFSET ?2)")
      .Bind(device, kMaxExperience)
      .Run();
}

absl::Status SqlWriter::operator()(const InsertCandidate& change) {
  const CandidateRow& row = change.row;
  const v1::Prediction predicted = change.prediction.value_or(v1::Prediction());
  return Prepared("INSERT INTO candidates VALUES(?,?,?,?,?,?,?,?,?,0,0)")
      .Bind(row.job, row.id, row.task, row.trace, row.origin, row.attempts, row.learned,
            change.prediction ? std::optional(predicted.score()) : std::nullopt,
            predicted.samples())
      .Run();
}

absl::Status SqlWriter::operator()(const SetAttempts& change) {
  return Prepared("UPDATE candidates SET attempts=? WHERE job=? AND id=?")
      .Bind(change.attempts, change.job.value, change.candidate.value)
      .Run();
}

absl::Status SqlWriter::operator()(const MarkLearned& change) {
  return Prepared(
             "UPDATE candidates SET learned=1 WHERE job=?1 AND task=?2 AND id<?3 AND learned=0 "
             "AND "
             "EXISTS(SELECT 1 FROM records r WHERE r.job=?1 AND r.candidate=candidates.id)")
      .Bind(change.job.value, change.task.value, change.before.value)
      .Run();
}

absl::Status SqlWriter::operator()(const InsertRecord& change) {
  const v1::Record& record = change.record;
  if (!change.imported) {
    if (auto fence = FenceOf(change)) HEDDLE_RETURN_IF_ERROR((*this)(CheckFence{*fence}));
  }
  HEDDLE_ASSIGN_OR_RETURN(int64_t workload, Workload(record.workload_key(), record.workload(),
                                                     record.label(), record.flops()));
  HEDDLE_ASSIGN_OR_RETURN(int64_t target, Target(record.target()));
  HEDDLE_ASSIGN_OR_RETURN(int64_t device, Device(record.device_key()));
  v1::Measurement measured = record.measurement();
  const std::string digest = RecordDigest(record);
  const double median =
      Median(std::vector<double>(measured.samples_ns().begin(), measured.samples_ns().end()));
  const auto own = [&](int64_t id) { return change.imported ? std::nullopt : std::optional(id); };
  if (!change.imported && !measured.loops().empty())
    HEDDLE_RETURN_IF_ERROR(KeepLoops(change, {workload, target, device}, median, &measured));
  const std::string blob = measured.SerializeAsString();
  // Whether an imported record is there is asked in the same round trip where statements are queued. Elsewhere a
  // statement that also reads the table that it writes costs more: SQLite keeps its rows in a table apart, and a copy of
  // each page that it changes.
  const bool queued = session_->MayQueue();
  if (change.imported && !queued) {
    Statement& there = Prepared(
                           "SELECT 1 FROM records WHERE workload=?1 AND target=?2 AND device=?3 "
                           "AND digest=?4 UNION ALL "
                           "SELECT 1 FROM retracted_digests WHERE digest=?4")
                           .Bind(workload, target, device, Blob{digest});
    const bool found = there.Step();
    HEDDLE_RETURN_IF_ERROR(there.Run());
    if (found) return RecordIsThere();
  }
  // Ids are one more than the largest one. A sequence would leave gaps where a batch is refused, and a
  // copied store would have to set it.
  static constexpr char kInsert[] =
      "INSERT INTO records(id,workload,target,device,trace,outcome,median_ns,created_ns,job,"
      "candidate,attempt,provenance,measurement,digest,worker,imported_by) "
      "VALUES(coalesce((SELECT max(id) FROM records),0)+1,?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,"
      "?13,?14,?15)";
  static constexpr char kInsertUnlessThere[] =
      "INSERT INTO records(id,workload,target,device,trace,outcome,median_ns,created_ns,job,"
      "candidate,attempt,provenance,measurement,digest,worker,imported_by) "
      "SELECT coalesce((SELECT max(id) FROM records),0)+1,?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,"
      "?13,?14,?15 WHERE NOT EXISTS(SELECT 1 FROM records WHERE workload=?1 AND target=?2 "
      "AND device=?3 AND digest=?13) "
      "AND NOT EXISTS(SELECT 1 FROM retracted_digests WHERE digest=?13)";
  HEDDLE_ASSIGN_OR_RETURN(
      const bool inserted,
      Prepared(change.imported && queued ? kInsertUnlessThere : kInsert)
          .Bind(workload, target, device, record.trace(), measured.outcome(), median,
                record.created_unix_ns(), own(ParseJobName(record.job())), own(record.candidate()),
                own(record.attempt()), change.imported ? record.job() : "", Blob{blob},
                Blob{digest}, change.imported ? "" : measured.evidence().worker(),
                change.imported ? record.imported_by() : "")
          .RunIfItChanges());
  if (!inserted) return RecordIsThere();
  const bool valid = measured.outcome() == v1::OUTCOME_OK;
  return Prepared(  // ?6 becomes untuned_ns, too, if the candidate ?8 of job ?7 is a default schedule
             "INSERT INTO record_groups AS g VALUES(?1,?2,?3,1,1,?4,?5,?6,"
             "CASE WHEN EXISTS(SELECT 1 FROM candidates WHERE job=?7 AND id=?8 AND "
             "origin='default') THEN CAST(?6 AS DOUBLE PRECISION) ELSE 0 END) "
             "ON CONFLICT(workload,target,device) DO UPDATE SET "
             "records=g.records+1,known=g.known+excluded.known,valid=g.valid+excluded.valid,"
             "best_ns=CASE WHEN excluded.best_ns>0 AND (g.best_ns=0 OR excluded.best_ns<g.best_ns) "
             "THEN excluded.best_ns ELSE g.best_ns END,"
             "untuned_ns=CASE WHEN excluded.untuned_ns>0 AND (g.untuned_ns=0 OR "
             "excluded.untuned_ns<g.untuned_ns) THEN excluded.untuned_ns ELSE g.untuned_ns END "
             "WHERE g.counted=1")
      .Bind(workload, target, device, measured.outcome() != v1::OUTCOME_LOST, valid,
            valid ? median : 0.0, own(ParseJobName(record.job())), own(record.candidate()))
      .Run();
}

// Records with loops are few: a search finds a faster trial some ten or twenty times. So this costs a look at two indices.
absl::Status SqlWriter::KeepLoops(const InsertRecord& change, const std::array<int64_t, 3>& group,
                                  double median_ns, v1::Measurement* measured) {
  Statement& origin = Prepared("SELECT origin FROM candidates WHERE job=? AND id=?")
                          .Bind(ParseJobName(change.record.job()), change.record.candidate());
  const bool untuned = origin.Step() && origin.Text(0) == "default";
  HEDDLE_RETURN_IF_ERROR(origin.Run());
  if (untuned) return absl::OkStatus();
  Statement& best =
      Prepared(
          "SELECT r.id, r.median_ns, r.measurement FROM records r LEFT JOIN candidates c "
          "ON c.job=r.job AND c.id=r.candidate WHERE r.workload=? AND r.target=? AND r.device=? "
          "AND r.outcome=1 AND r.retracted_ns=0 AND r.job IS NOT NULL "
          "AND coalesce(c.origin,'')<>'default' ORDER BY r.median_ns, r.id LIMIT 1")
          .Bind(group[0], group[1], group[2]);
  int64_t id = 0;
  v1::Measurement slower;
  if (best.Step()) {
    if (best.Real(1) <= median_ns) {
      measured->clear_loops();
    } else if (slower.ParseFromString(best.Text(2))) {
      id = best.Int(0);
    }
  }
  HEDDLE_RETURN_IF_ERROR(best.Run());
  if (slower.loops().empty()) return absl::OkStatus();
  slower.clear_loops();
  const std::string blob = slower.SerializeAsString();
  return Prepared("UPDATE records SET measurement=? WHERE id=?").Bind(Blob{blob}, id).Run();
}

absl::Status SqlWriter::CountGroups(absl::Duration limit) {
  const absl::Time end = MonotonicNow() + limit;
  while (may_be_uncounted_) {
    Statement& next = Prepared(
                          "SELECT workload,target,device FROM record_groups WHERE counted=0 "
                          "ORDER BY workload,target,device LIMIT ?")
                          .Bind(1);
    std::optional<std::array<int64_t, 3>> group;
    if (next.Step()) group = {next.Int(0), next.Int(1), next.Int(2)};
    HEDDLE_RETURN_IF_ERROR(next.Run());
    may_be_uncounted_ = group.has_value();
    if (!group) break;
    HEDDLE_RETURN_IF_ERROR(
        Prepared(  // as ReadKnown counts
            "UPDATE record_groups SET (records,known,valid,best_ns,untuned_ns,counted)=("
            "SELECT count(*),count(CASE WHEN r.outcome<>7 THEN 1 END),"
            "count(CASE WHEN r.outcome=1 THEN 1 END),"
            "coalesce(min(CASE WHEN r.outcome=1 AND r.median_ns>0 THEN r.median_ns END),0),"
            "coalesce(min(CASE WHEN r.outcome=1 AND r.median_ns>0 AND c.origin='default' "
            "THEN r.median_ns END),0),1 "
            "FROM records r LEFT JOIN candidates c ON c.job=r.job AND c.id=r.candidate "
            "WHERE r.workload=?1 AND r.target=?2 AND r.device=?3 AND r.retracted_ns=0) "
            "WHERE workload=?1 AND target=?2 AND device=?3")
            .Bind((*group)[0], (*group)[1], (*group)[2])
            .Run());
    if (MonotonicNow() >= end) break;
  }
  return absl::OkStatus();
}

absl::Status SqlWriter::operator()(const RetractRecords& change) {
  const v1::Retraction& why = change.retraction;
  for (const int64_t id : change.ids) {
    HEDDLE_RETURN_IF_ERROR(LeaveGroup(id));
    HEDDLE_RETURN_IF_ERROR(
        Prepared("UPDATE records SET retracted_ns=?, retracted_by=?, retraction=? "
                 "WHERE id=? AND retracted_ns=0")
            .Bind(why.unix_ns(), why.by(), why.reason(), id)
            .Run());
    for (const char* learned : {"DELETE FROM experience WHERE (workload,target,device)="
                                "(SELECT workload,target,device FROM records WHERE id=?)",
                                "DELETE FROM kernel_factors WHERE (workload,target,device)="
                                "(SELECT workload,target,device FROM records WHERE id=?)",
                                "DELETE FROM others_models WHERE (target,device)="
                                "(SELECT target,device FROM records WHERE id=?)"})
      HEDDLE_RETURN_IF_ERROR(Prepared(learned).Bind(id).Run());
  }
  return absl::OkStatus();
}

absl::Status SqlWriter::operator()(const PutStage& change) {
  const v1::StageSpan& span = change.row.span;
  return Prepared(
             "INSERT INTO stages VALUES(?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(attempt) DO UPDATE "
             "SET "
             "job=excluded.job,task=excluded.task,kind=excluded.kind,worker=excluded.worker,"
             "slot=excluded.slot,lease=excluded.lease,start_ns=excluded.start_ns,"
             "end_ns=excluded.end_ns,fault_kind=excluded.fault_kind,"
             "fault_message=excluded.fault_message,candidates=excluded.candidates")
      .Bind(span.attempt_id(), ParseJobName(span.job()), span.task(), span.kind(), span.worker(),
            span.slot(), change.row.lease_id, span.start_unix_ns(), span.end_unix_ns(),
            span.fault().kind(), span.fault().message(), span.candidates())
      .Run();
}

absl::Status SqlWriter::operator()(const CollectRows& change) {
  Statement& state = Prepared("SELECT state FROM jobs WHERE id=?").Bind(change.job);
  const bool over = state.Step() && IsFinal(static_cast<v1::JobState>(state.Int(0)));
  HEDDLE_RETURN_IF_ERROR(state.Run());
  if (!over) return NotFinished(change.job);
  for (const int64_t candidate : change.candidates)
    HEDDLE_RETURN_IF_ERROR(Prepared("UPDATE candidates SET trace='' WHERE job=? AND id=?")
                               .Bind(change.job, candidate)
                               .Run());
  for (const int64_t id : change.records) {
    Statement& found =
        Prepared("SELECT measurement FROM records WHERE id=? AND job=?").Bind(id, change.job);
    const std::optional<std::string> bytes =
        found.Step() ? std::optional(found.Text(0)) : std::nullopt;
    HEDDLE_RETURN_IF_ERROR(found.Run());
    v1::Measurement measured;
    // One that is not readable stays as it is; whoever reads it is told.
    if (!bytes || !measured.ParseFromString(*bytes)) continue;
    const std::string thin = Thinned(measured).SerializeAsString();
    HEDDLE_RETURN_IF_ERROR(
        Prepared("UPDATE records SET measurement=? WHERE id=?").Bind(Blob{thin}, id).Run());
  }
  for (const int64_t attempt : change.attempts)
    HEDDLE_RETURN_IF_ERROR(Prepared("DELETE FROM stages WHERE attempt=? AND job=? AND end_ns<>0 "
                                    "AND attempt<(SELECT max(attempt) FROM stages)")
                               .Bind(attempt, change.job)
                               .Run());
  return absl::OkStatus();
}

absl::Status SqlWriter::operator()(const RemoveRecords& change) {
  HEDDLE_ASSIGN_OR_RETURN(const OldRecords old,
                          ReadOldRecords(session_, change.rule, change.after, change.limit));
  for (const int64_t id : old.ids) {
    HEDDLE_RETURN_IF_ERROR(LeaveGroup(id));
    for (const char* step :
         {"INSERT INTO retracted_digests SELECT digest FROM records WHERE id=? AND retracted_ns<>0 "
          "ON CONFLICT DO NOTHING",
          // A retracted trial counts as lost (7), as before.
          "UPDATE candidates SET (kept_outcome,kept_ns)=(SELECT "
          "CASE WHEN r.retracted_ns<>0 THEN 7 ELSE r.outcome END,"
          "CASE WHEN r.retracted_ns<>0 THEN 0 ELSE r.median_ns END FROM records r WHERE r.id=?1) "
          "WHERE (job,id)=(SELECT job,candidate FROM records WHERE id=?1)",
          "DELETE FROM records WHERE id=?"})
      HEDDLE_RETURN_IF_ERROR(Prepared(step).Bind(id).Run());
  }
  return absl::OkStatus();
}

absl::Status SqlWriter::operator()(const CollectJob& change) {
  HEDDLE_ASSIGN_OR_RETURN(std::optional<JobRow> row, ReadJob(session_, change.job));
  if (!row || !IsFinal(row->job.state())) return NotFinished(change.job);
  HEDDLE_RETURN_IF_ERROR(Prepared("UPDATE tasks SET state=?1, report=?1 WHERE job=?2 AND "
                                  "(state<>?1 OR report<>?1)")
                             .Bind(Blob{""}, change.job)
                             .Run());
  if (row->job.collected_unix_ns() != 0) return absl::OkStatus();
  MarkCollected(change.unix_ns, &row->job);
  return (*this)(PutJob{*std::move(row)});
}

absl::Status SqlWriter::LeaveGroup(int64_t record) {
  may_be_uncounted_ = true;
  return Prepared(
             "UPDATE record_groups SET records=record_groups.records-1,"
             "known=record_groups.known-CASE WHEN r.outcome<>7 THEN 1 ELSE 0 END,"
             "valid=record_groups.valid-CASE WHEN r.outcome=1 THEN 1 ELSE 0 END,"
             "counted=CASE WHEN r.outcome=1 AND (r.median_ns<=record_groups.best_ns OR "
             "r.median_ns=record_groups.untuned_ns) THEN 0 ELSE record_groups.counted END "
             "FROM records r WHERE r.id=? AND r.retracted_ns=0 AND "
             "record_groups.workload=r.workload AND record_groups.target=r.target AND "
             "record_groups.device=r.device")
      .Bind(record)
      .Run();
}

Statement& SqlWriter::Prepared(const char* sql) {
  std::unique_ptr<Statement>& slot = prepared_[sql];
  if (slot == nullptr) slot = std::make_unique<Statement>(session_, sql);
  return *slot;
}

absl::StatusOr<int64_t> SqlWriter::Select(const char* sql, const std::string& key) {
  Statement& query = Prepared(sql).Bind(key);
  int64_t id = 0;
  while (query.Step()) id = query.Int(0);
  HEDDLE_RETURN_IF_ERROR(query.status());
  return id;
}

absl::StatusOr<int64_t> SqlWriter::Intern(const char* insert, const char* select,
                                          const std::string& key, Ids* known) {
  if (const auto found = known->find(key); found != known->end()) return found->second;
  HEDDLE_ASSIGN_OR_RETURN(int64_t id, Select(select, key));
  if (id == 0) {
    HEDDLE_RETURN_IF_ERROR(Prepared(insert).Bind(key).Run());
    HEDDLE_ASSIGN_OR_RETURN(id, Select(select, key));
  }
  Keep(key, id, known);
  return id;
}

void SqlWriter::Keep(const std::string& key, int64_t id, Ids* known) {
  if (known->size() >= kMostKnown) known->clear();
  known->emplace(key, id);
}

absl::StatusOr<int64_t> SqlWriter::Target(const std::string& text) {
  return Intern(
      "INSERT INTO targets(id,text) SELECT coalesce(max(id),0)+1,? FROM targets WHERE 1=1 "
      "ON CONFLICT DO NOTHING",
      "SELECT id FROM targets WHERE text=?", text, &targets_);
}

absl::StatusOr<int64_t> SqlWriter::Device(const std::string& key) {
  return Intern(
      "INSERT INTO devices(id,key) SELECT coalesce(max(id),0)+1,? FROM devices WHERE 1=1 "
      "ON CONFLICT DO NOTHING",
      "SELECT id FROM devices WHERE key=?", key, &devices_);
}

std::optional<int64_t> SqlWriter::Knows(const std::string& workload,
                                        const std::string& text) const {
  auto found = workloads_.find(workload);
  if (found != workloads_.end()) return found->second;
  found = without_text_.find(workload);
  if (found != without_text_.end() && text.empty()) return found->second;
  return std::nullopt;
}

absl::StatusOr<int64_t> SqlWriter::Workload(const std::string& key, const std::string& text,
                                            const std::string& label, double flops) {
  if (const std::optional<int64_t> known = Knows(key, text)) return *known;
  HEDDLE_RETURN_IF_ERROR(
      Prepared("INSERT INTO workloads(id,key,text,label,flops) "
               "SELECT coalesce(max(id),0)+1,?,?,?,? FROM workloads WHERE 1=1 "
               "ON CONFLICT(key) DO UPDATE "
               "SET text=excluded.text,label=excluded.label,flops=excluded.flops "
               "WHERE workloads.text='' AND excluded.text<>''")
          .Bind(key, text, label, flops)
          .Run());
  HEDDLE_ASSIGN_OR_RETURN(const int64_t id, Select("SELECT id FROM workloads WHERE key=?", key));
  Keep(key, id, text.empty() ? &without_text_ : &workloads_);
  return id;
}

void SqlWriter::Forget() {
  workloads_.clear();
  without_text_.clear();
  targets_.clear();
  devices_.clear();
  fences_.clear();
  may_be_uncounted_ = true;
}

}  // namespace heddle::scheduler
