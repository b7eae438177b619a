// What the page shows, by the same functions that answer gRPC calls.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/files/blob_store.h"
#include "proto/access/audit_log.h"
#include "scheduler/page/source.h"
#include "scheduler/service/job_intake.h"
#include "scheduler/service/reads/caller_reads.h"
#include "scheduler/service/reads/device_comparisons.h"
#include "scheduler/service/reads/kept_stages.h"
#include "scheduler/service/reads/what_if_keeper.h"
#include "scheduler/service/scheduler_loop.h"
#include "scheduler/service/stages/machine_drains.h"

namespace heddle::scheduler {

class PageData final : public PageSource {
 public:
  // What the actions of the page use.
  struct Actions {
    JobIntake* intake = nullptr;
    BlobStore* blobs = nullptr;
    MachineDrains* drains = nullptr;
    AuditLog* audit = nullptr;  // may be null
  };
  // All outlive this. Without a simulator, WhatIf is Unimplemented.
  PageData(SchedulerLoop* loop, RecordStore* store, const Actions& actions,
           WhatIfSimulator simulator = nullptr);
  ~PageData() override;
  // Begins to read the newest finished jobs, so that they are there when somebody looks: one of many trials
  // takes longer than a page should. Call it once.
  void ReadAhead();

  int64_t changes() override { return loop_->jobs().changes(); }
  int64_t ChangesOf(const std::string& job, int task) override {
    return loop_->jobs().VersionOf(job, task);
  }
  std::string policy() override { return loop_->policy(); }
  JobList Unfinished(const Identity& caller) override;
  absl::StatusOr<JobPart> ListJobs(const Identity& caller, const std::string& before,
                                   size_t limit) override;
  absl::StatusOr<std::shared_ptr<const v1::Job>> GetJob(const Identity& caller,
                                                        const std::string& job) override;
  absl::StatusOr<v1::Timeline> GetTimeline(const Identity& caller, const std::string& job) override;
  absl::StatusOr<std::string> DeviceOf(const Identity& caller, const std::string& job,
                                       int task) override;
  absl::StatusOr<TrialSample> SampleTrials(const Identity& caller, const WorkloadId& id,
                                           int64_t most) override;
  absl::StatusOr<std::vector<v1::StageSpan>> LatestStages(const Identity& caller,
                                                          int64_t since_unix_ns) override;
  absl::StatusOr<RecordPage> QueryRecords(const Identity& caller, const v1::RecordQuery& query,
                                          const std::optional<RecordPlace>& after,
                                          int64_t limit) override;
  absl::StatusOr<std::vector<WorkloadName>> FindWorkloads(const std::string& text,
                                                          const std::string& after,
                                                          int64_t limit) override;
  absl::StatusOr<std::shared_ptr<const DeviceTable>> CompareDevices(
      const Identity& caller, const std::string& device_a, const std::string& device_b) override;
  absl::StatusOr<std::shared_ptr<const views::WhatIf>> WhatIf(const Identity& caller) override;
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers() override;
  absl::Status Act(const Identity& caller, const std::string& job, const Order& order) override;
  absl::StatusOr<std::unique_ptr<Submission>> BeginSubmit(const Identity& caller,
                                                          const v1::JobSpec& spec,
                                                          const std::string& submit_key) override;
  absl::Status Drain(const Identity& caller, const std::string& machine,
                     absl::Duration duration) override;
  absl::Status Resume(const Identity& caller, const std::string& machine) override;

 private:
  class FormSubmission;

  CallerReads ReadsOf(const Identity& caller) const;
  // Whether the table lets the caller use the method at all; a refusal is noted.
  absl::Status Allow(const Identity& caller, std::string_view method) const;
  // Notes what became of a call, and returns that.
  absl::Status Tell(const Identity& caller, std::string_view method, const std::string& job,
                    const absl::Status& status, const std::string& detail = "") const;

  absl::StatusOr<WhatIfQuestion> Question();

  DeviceComparisons::Answer Compare(const std::string& device_a, const std::string& device_b);

  SchedulerLoop* const loop_;
  RecordStore* const store_;
  const Actions actions_;
  std::unique_ptr<WhatIfKeeper> what_if_;  // null: there is no simulator
  DeviceComparisons comparisons_;
  KeptStages job_stages_;     // by job
  KeptStages latest_stages_;  // one list: of all jobs
  std::atomic<bool> stop_ = false;
  std::thread read_ahead_;
};

}  // namespace heddle::scheduler
