// What the scheduler knows of jobs beyond what the dispatcher needs to decide: texts, search
// states, artifacts, measured times.
//
// Absorb turns an event and the dispatcher's decisions into the store changes that make them
// durable. Load does the reverse after a restart. Not thread-safe: it belongs to whoever drives the
// dispatcher.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/core/dispatcher.h"
#include "scheduler/store/record_store.h"
#include "scheduler/store/transfer.h"

namespace heddle::scheduler {

// The state of the phase. Never JOB_PAUSED: a job is paused beside its phase.
v1::JobState StateOf(const Job& job);

class JobLedger {
 public:
  // Device keys whose machine is kept. Workers choose their keys, so this bounds memory and database. Jobs on further
  // ones go by the table of machines.
  static constexpr size_t kMostMachines = 1000;

  struct TaskData {
    TaskRow row{};  // as of the latest TaskChanged, but known.untuned_ns is always up to date
    std::string search_state{};
    // Of this job's own trials; 0: none.
    double best_ns = 0;
    double untuned_ns = 0;
  };
  struct BuiltCandidate {
    std::shared_ptr<const v1::Artifact> artifact;  // null if the build failed
    int64_t build_ns = 0;
  };
  struct JobData {
    JobRow row;
    std::vector<TaskData> tasks;
    std::map<CandidateId, CandidateRow> candidates;  // dropped when the job ends
    std::map<CandidateId, BuiltCandidate> built;     // no final record, and not dropped
    // Records made before the job had a device (of builds that failed). A record belongs to a
    // device key, so they wait until the job has one. A restart forgets them, and the candidates
    // are built again.
    std::vector<InsertRecord> held;
    absl::Time tuning_since;  // in this process; the estimate of the end uses the pace since then
    int trials_before = 0;    // trials made before that
    absl::Duration busy;      // time with at least one running stage, until busy_since
    std::optional<absl::Time> busy_since;  // nullopt: no stage is running

    // Null: the candidate is not built, or has its final record.
    const v1::Artifact* ArtifactOf(CandidateId id) const {
      const auto found = built.find(id);
      return found == built.end() ? nullptr : found->second.artifact.get();
    }
    absl::Duration Busy(absl::Time now) const {
      return busy_since ? busy + (now - *busy_since) : busy;
    }
  };

  // `now` is the dispatcher's clock. `wall` is the same moment as a date, which is stored and shown.
  Batch Absorb(const Dispatcher& dispatcher, const Event& event, const std::vector<Change>& changes,
               absl::Time now, absl::Time wall);

  // Takes in a stored job and returns it for Dispatcher::Restore.
  Job Load(StoredJob stored, absl::Time now, absl::Time wall);

  const JobData& data(JobId id) const { return jobs_.at(id); }
  // The latest transfer samples of this process.
  const RecentTransferSamples& transfer_samples() const { return transfer_samples_; }
  // The store's transfer models and newer ones.
  const TransferModels& transfer_models() const { return transfer_models_; }
  void LoadTransferModels(const std::map<TransferModelId, v1::TransferModel>& stored);
  // What was measured of the devices of a key; empty: nothing.
  const std::string& MachineOf(const std::string& device_key) const;
  void LoadMachines(std::map<std::string, std::string> stored) { machines_ = std::move(stored); }
  bool Has(JobId id) const { return jobs_.count(id) > 0; }
  const std::map<JobId, JobData>& jobs() const { return jobs_; }
  // Forgets a job of which all changes are stored. It comes back by Load.
  void Drop(JobId id) { jobs_.erase(id); }
  // Starts or stops the clock that measures how long the job has running stages.
  void CountBusy(JobId id, bool busy, absl::Time now);

  // Adds warnings that are shown with the job. They become durable with its next change.
  void AddWarnings(JobId id, const std::vector<std::string>& warnings);
  // Replaces the job's one warning about its deadline; empty: there is none. A job that has ended
  // has none, because it met its deadline or did not.
  void SetDeadlineWarning(JobId id, const std::string& warning);

  // The parameters of a job that the user asked for. Instants are converted from `wall` to the
  // dispatcher's clock. InvalidArgument names the field.
  static absl::StatusOr<JobParams> ParamsFrom(const v1::JobSpec& spec, absl::Time now,
                                              absl::Time wall);
  // The whole job as users see it.
  v1::Job View(const Dispatcher& dispatcher, JobId id, absl::Time now) const;

 private:
  static void Forget(JobData* job, Batch* batch);
  static void ReleaseHeld(JobData* job, Batch* batch);
  TaskData& TaskOf(JobId job, TaskIndex task) {
    return jobs_.at(job).tasks[static_cast<size_t>(task.value)];
  }
  void TakeIn(const Dispatcher& dispatcher, const Event& event);
  // Marks the records, and forgets what was learned from them. A job's own trial counts as lost.
  void Retract(const RecordsRetracted& event, Batch* batch);
  void KeepFitted(const FittedModel& fitted, absl::Time wall, Batch* batch);
  void KeepMachines(const std::vector<SlotInfo>& slots, Batch* batch);
  // `measured` is null if nothing was measured, because the candidate is lost.
  InsertRecord MakeRecord(const Dispatcher& dispatcher, const FinishCandidate& done,
                          const Measured* measured, absl::Time wall);
  void KeepPlannedTasks(const Planned& planned, const Dispatcher& dispatcher, JobId id);
  static void KeepPlan(const v1::PlanResult& planned, v1::Job* row);
  static void KeepExperience(const v1::PlanResult& planned, const JobData& job, absl::Time wall,
                             Batch* batch);
  static void KeepModules(const Compiled& compiled, v1::Job* row);
  static void KeepComparison(const Compared& compared, const Job& job, v1::Job* row);
  // Retracts imported records that did not hold, and warns of them.
  void RetractBroken(const Compared& compared, JobId id, const std::string& device_key,
                     absl::Time wall, Batch* batch);
  void ShareUntuned(const FinishCandidate& done);
  static void UpdateTaskRow(const Task& task, TaskRow* row);
  void UpdateJobRow(const Dispatcher& dispatcher, JobId job, absl::Time now, absl::Time wall);
  void FillTask(const Dispatcher& dispatcher, const Job& job, int index, absl::Time now,
                v1::TaskStatus* out) const;

  std::map<JobId, JobData> jobs_;
  RecentTransferSamples transfer_samples_;
  TransferModels transfer_models_;
  std::map<std::string, std::string> machines_;  // by device key
};

}  // namespace heddle::scheduler
