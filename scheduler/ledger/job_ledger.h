// What the scheduler knows of jobs beyond what the dispatcher needs to decide: texts, search
// states, artifacts, measured times. Absorb turns an event, what came with it and what was decided
// into the changes that make it durable; Load does the reverse after a restart. Not thread-safe:
// belongs to whoever drives the dispatcher.
#pragma once

#include <algorithm>
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

// The smaller of two times; 0 is unknown.
inline double Faster(double a, double b) { return a == 0 ? b : b == 0 ? a : std::min(a, b); }

// Never JOB_PAUSED: that is beside the phase.
v1::JobState StateOf(const Job& job);

class JobLedger {
 public:
  struct CandidateData {
    int task = 0;
    std::string trace, origin;
    bool learned = false;
    std::optional<v1::Outcome> outcome;  // of the final record
    double median_ns = 0;
    std::shared_ptr<const v1::Artifact> artifact;  // until the final record
    int64_t build_ns = 0;
  };
  struct TaskData {
    v1::TaskInfo info;
    std::string search_state;
    KnownRecords known;
    double best_ns = 0;
    double untuned_ns = 0;
  };
  struct JobData {
    JobRow row;
    std::vector<TaskData> tasks;
    std::map<CandidateId, CandidateData> candidates;  // dropped when the job ends
    // Made before the job had a device (of builds that failed), until it has one: a record belongs
    // to a device key. A restart forgets them, and the candidates are built again.
    std::vector<InsertRecord> held;
    absl::Time tuning_since;  // of this process, for the estimate
    int trials_before = 0;    // trials made before that
    absl::Duration busy;      // with at least one running stage
    std::optional<absl::Time> busy_since;
  };

  // `now` is of the dispatcher's clock, `wall` is what is stored and shown as a date.
  Batch Absorb(const Dispatcher& dispatcher, const Event& event, const std::vector<Change>& changes,
               absl::Time now, absl::Time wall);

  // A stored job, for Dispatcher::Restore.
  Job Load(const StoredJob& stored, absl::Time now, absl::Time wall);

  const JobData& data(JobId id) const { return jobs_.at(id); }
  // What was learned of late.
  const RecentTransferSamples& transfer_samples() const { return transfer_samples_; }
  // All that the store has, and newer ones.
  const TransferModels& transfer_models() const { return transfer_models_; }
  void LoadTransferModels(const std::map<TransferModelId, v1::TransferModel>& stored);
  bool Has(JobId id) const { return jobs_.count(id) > 0; }
  const std::map<JobId, JobData>& jobs() const { return jobs_; }
  // Keeps the time the job spends with running stages.
  void CountBusy(JobId id, bool busy, absl::Time now);

  // Shown with the job; durable with its next change.
  void AddWarnings(JobId id, const std::vector<std::string>& warnings);
  // The one warning about the deadline, as things stand now; empty: none. A job that has ended has
  // none: it met its deadline or did not.
  void SetDeadlineWarning(JobId id, const std::string& warning);

  // Params from what the user asked; its instants are turned from `wall` to the dispatcher's clock.
  // InvalidArgument names the field.
  static absl::StatusOr<JobParams> ParamsFrom(const v1::JobSpec& spec, absl::Time now,
                                              absl::Time wall);
  // The whole job, as users see it.
  v1::Job View(const Dispatcher& dispatcher, JobId id, absl::Time now) const;

 private:
  static void Forget(JobData* job, Batch* batch);
  static void ReleaseHeld(JobData* job, Batch* batch);
  void TakeIn(const Dispatcher& dispatcher, const Event& event);
  void KeepFitted(const FittedModel& fitted, absl::Time wall, Batch* batch);
  // `measured` is null where nothing was measured: the candidate is lost.
  InsertRecord MakeRecord(const Dispatcher& dispatcher, const FinishCandidate& done,
                          const Measured* measured, absl::Time wall);
  void ShareUntuned(const FinishCandidate& done);
  TaskRow MakeTaskRow(const Dispatcher& dispatcher, JobId job, TaskIndex task) const;
  void UpdateJobRow(const Dispatcher& dispatcher, JobId job, absl::Time now, absl::Time wall);
  void FillTask(const Dispatcher& dispatcher, const Job& job, int index, absl::Time now,
                v1::TaskStatus* out) const;

  std::map<JobId, JobData> jobs_;
  RecentTransferSamples transfer_samples_;
  TransferModels transfer_models_;
};

}  // namespace heddle::scheduler
