// A record store that takes writes only while its gate is open. Reads pass.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

class GatedStore : public RecordStore {
 public:
  explicit GatedStore(std::unique_ptr<RecordStore> store) : store_(std::move(store)) {}

  // Closed: Apply waits, as on a slow disk.
  void SetOpen(bool open) {
    absl::MutexLock lock(&mutex_);
    open_ = open;
  }
  // What Apply answers instead of applying; OK: it applies.
  void SetProblem(const absl::Status& problem) {
    absl::MutexLock lock(&mutex_);
    problem_ = problem;
  }
  // The same of Lead, which answers after `delay`.
  void SetLeadProblem(const absl::Status& problem, absl::Duration delay = absl::ZeroDuration()) {
    absl::MutexLock lock(&mutex_);
    lead_problem_ = problem;
    lead_delay_ = delay;
  }

  absl::StatusOr<std::vector<absl::Status>> Apply(absl::Span<const Batch> batches) override {
    {
      absl::MutexLock lock(&mutex_, absl::Condition(&open_));
      if (!problem_.ok()) return problem_;
    }
    return store_->Apply(batches);
  }
  absl::StatusOr<Leader> Lead(const LeaderClaim& claim) override {
    absl::Status problem;
    absl::Duration delay;
    {
      absl::MutexLock lock(&mutex_);
      problem = lead_problem_;
      delay = lead_delay_;
    }
    absl::SleepFor(delay);
    if (!problem.ok()) return problem;
    return store_->Lead(claim);
  }
  absl::Status EndLead(const std::string& pool, int64_t epoch) override {
    return store_->EndLead(pool, epoch);
  }
  absl::StatusOr<Leader> LeaderOf(const std::string& pool) override {
    return store_->LeaderOf(pool);
  }
  void SetEpoch(const std::string& pool, int64_t epoch) override { store_->SetEpoch(pool, epoch); }
  absl::StatusOr<std::string> Identity() override { return store_->Identity(); }

  absl::StatusOr<std::vector<StoredJob>> LoadJobs(const JobSelection& selection) override {
    return store_->LoadJobs(selection);
  }
  absl::StatusOr<std::vector<JobOwner>> Owners(const JobSelection& selection) override {
    return store_->Owners(selection);
  }
  absl::StatusOr<int64_t> LastJob() override { return store_->LastJob(); }
  absl::StatusOr<std::optional<JobRow>> FindSubmitted(const std::string& user,
                                                      const std::string& submit_key) override {
    return store_->FindSubmitted(user, submit_key);
  }
  absl::StatusOr<std::vector<JobBlobs>> BlobsOfJobs() override { return store_->BlobsOfJobs(); }
  absl::StatusOr<std::vector<FinishedJob>> Collectable() override { return store_->Collectable(); }
  absl::StatusOr<Collection> CollectionOf(int64_t job, const CollectionPlace& after,
                                          int64_t limit) override {
    return store_->CollectionOf(job, after, limit);
  }
  absl::StatusOr<OldRecords> FindOldRecords(const OldRecordRule& rule,
                                            const std::optional<OldRecordPlace>& after,
                                            int64_t limit) override {
    return store_->FindOldRecords(rule, after, limit);
  }
  absl::StatusOr<std::vector<StageRow>> UnfinishedStages() override {
    return store_->UnfinishedStages();
  }
  absl::StatusOr<int64_t> LastAttempt() override { return store_->LastAttempt(); }
  absl::StatusOr<std::map<SlotId, uint64_t>> Fences() override { return store_->Fences(); }
  absl::StatusOr<std::vector<v1::StageSpan>> Timeline(int64_t job, int64_t since_unix_ns,
                                                      int64_t limit) override {
    return store_->Timeline(job, since_unix_ns, limit);
  }
  absl::StatusOr<std::vector<v1::Record>> Query(const v1::RecordQuery& query) override {
    return store_->Query(query);
  }
  absl::StatusOr<RecordPage> QueryPage(const v1::RecordQuery& query,
                                       const std::optional<RecordPlace>& after,
                                       int64_t limit) override {
    return store_->QueryPage(query, after, limit);
  }
  absl::StatusOr<TrialSample> SampleTrials(const WorkloadId& id, int64_t most) override {
    return store_->SampleTrials(id, most);
  }
  absl::StatusOr<std::vector<v1::StageSpan>> LatestStages(int64_t first_attempt,
                                                          int64_t limit) override {
    return store_->LatestStages(first_attempt, limit);
  }
  absl::StatusOr<std::vector<WorkloadName>> FindWorkloads(const std::string& text,
                                                          const std::string& after,
                                                          int64_t limit) override {
    return store_->FindWorkloads(text, after, limit);
  }
  absl::StatusOr<std::vector<DevicePair>> CompareDevices(const std::string& device_a,
                                                         const std::string& device_b,
                                                         int64_t limit) override {
    return store_->CompareDevices(device_a, device_b, limit);
  }
  absl::StatusOr<KnownRecords> Known(const WorkloadId& id) override { return store_->Known(id); }
  absl::StatusOr<std::optional<v1::Record>> BestMeasured(const WorkloadId& id) override {
    return store_->BestMeasured(id);
  }
  absl::StatusOr<std::optional<v1::SearchReport>> Report(int64_t job, int32_t task) override {
    return store_->Report(job, task);
  }
  absl::StatusOr<std::vector<TransferSamples>> SamplesAfter(const std::string& kind,
                                                            const std::optional<WorkloadId>& after,
                                                            int64_t limit) override {
    return store_->SamplesAfter(kind, after, limit);
  }
  absl::StatusOr<std::vector<TransferSamples>> FindRelatedSamples(const WorkloadId& id,
                                                                  int64_t limit) override {
    return store_->FindRelatedSamples(id, limit);
  }
  absl::StatusOr<std::map<TransferModelId, v1::TransferModel>> AllTransferModels() override {
    return store_->AllTransferModels();
  }
  absl::StatusOr<std::map<std::string, std::string>> Machines() override {
    return store_->Machines();
  }
  absl::StatusOr<Experience> FindExperience(const std::string& target,
                                            const std::string& device_key, int64_t limit) override {
    return store_->FindExperience(target, device_key, limit);
  }
  absl::StatusOr<std::vector<std::string>> DeviceKeys(const std::string& target) override {
    return store_->DeviceKeys(target);
  }

 private:
  const std::unique_ptr<RecordStore> store_;
  absl::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  absl::Status problem_ ABSL_GUARDED_BY(mutex_);
  absl::Status lead_problem_ ABSL_GUARDED_BY(mutex_);
  absl::Duration lead_delay_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace heddle::scheduler
