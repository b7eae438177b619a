// Where the page gets what it shows. The scheduler's service implements it by the functions that answer
// gRPC calls, so the page shows nobody more than those do. A job that the caller may not see is
// NotFound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/access/identity.h"
#include "proto/jobs.pb.h"
#include "proto/tracker.pb.h"
#include "scheduler/store/record_store.h"
#include "views/what_if.h"

namespace heddle::scheduler {

// What a simulation of the queue begins from.
struct WhatIfQuestion {
  std::vector<std::shared_ptr<const v1::Job>> unfinished;  // the oldest first
  std::vector<v1::StageSpan>
      stages;  // the latest of all jobs; those that ended tell how long stages take
  std::vector<v1::Record>
      records;  // the latest of the unfinished jobs, for times of builds and trials
  v1::ListWorkersResponse machines;
  std::string policy;
  int64_t now_unix_ns = 0;
};
// Simulates the queue as it is and with each change. It may take seconds. FailedPrecondition says why
// there is nothing to simulate.
// Cancelled once `go_on` is false, which is asked between two simulations.
using WhatIfSimulator = std::function<absl::StatusOr<views::WhatIf>(
    const WhatIfQuestion&, const std::function<bool()>& go_on)>;

// What people do to a job on the page.
enum class JobAction { kCancel, kPause, kResume, kPrioritize };
struct JobActionRow {
  JobAction action;
  const char* name;         // in addresses and on buttons
  std::string_view method;  // whose row of the access table says who may
};
inline constexpr JobActionRow kJobActions[] = {
    {JobAction::kPause, "pause", "heddle.v1.JobService/PauseJob"},
    {JobAction::kResume, "resume", "heddle.v1.JobService/ResumeJob"},
    {JobAction::kPrioritize, "priority", "heddle.v1.JobService/PrioritizeJob"},
    {JobAction::kCancel, "cancel", "heddle.v1.JobService/CancelJob"},
};

// Thread-safe. Every method is called for a caller whom the access table allows the call.
class PageSource {
 public:
  using JobList = std::vector<std::shared_ptr<const v1::Job>>;
  struct JobPart {
    JobList jobs;  // the newest first
    bool more = false;
  };
  struct Order {
    JobActionRow what;
    std::string reason{};  // of kCancel and kPause, for others to see
    int priority = 0;      // of kPrioritize: JobSpec.priority
  };
  // A model that comes in with a form. Destroyed without Finish, nothing is submitted.
  class Submission {
   public:
    virtual ~Submission() = default;
    // ResourceExhausted: the model is too large, or the disk is full.
    virtual absl::Status Append(std::string_view bytes) = 0;
    // The name of the job, which is durable then. As JobService.Submit.
    virtual absl::StatusOr<std::string> Finish() = 0;
  };

  virtual ~PageSource() = default;

  // Grows whenever a job changes.
  virtual int64_t changes() = 0;
  // Grows whenever this job changes; with a task, by number from 1, whenever that does. 0: the job had ended
  // before the scheduler began, or there is no such job or task.
  virtual int64_t ChangesOf(const std::string& job, int task) = 0;
  // Name of the policy that decides whose turn it is.
  virtual std::string policy() = 0;
  // All unfinished jobs, the oldest first.
  virtual JobList Unfinished(const Identity& caller) = 0;
  // Also finished jobs; only those submitted before the job `before`, or all if it is empty.
  // InvalidArgument: `before` is no job's name.
  virtual absl::StatusOr<JobPart> ListJobs(const Identity& caller, const std::string& before,
                                           size_t limit) = 0;
  virtual absl::StatusOr<std::shared_ptr<const v1::Job>> GetJob(const Identity& caller,
                                                                const std::string& job) = 0;
  virtual absl::StatusOr<v1::Timeline> GetTimeline(const Identity& caller,
                                                   const std::string& job) = 0;
  // The device key on which the task, by number from 1, is measured.
  virtual absl::StatusOr<std::string> DeviceOf(const Identity& caller, const std::string& job,
                                               int task) = 0;
  virtual absl::StatusOr<TrialSample> SampleTrials(const Identity& caller, const WorkloadId& id,
                                                   int64_t most) = 0;
  static constexpr int64_t kLatestStages = 6000;  // as many are looked at
  // The latest stages of all jobs that ended after that time, or still run; by attempt.
  virtual absl::StatusOr<std::vector<v1::StageSpan>> LatestStages(const Identity& caller,
                                                                  int64_t since_unix_ns) = 0;
  virtual absl::StatusOr<RecordPage> QueryRecords(const Identity& caller,
                                                  const v1::RecordQuery& query,
                                                  const std::optional<RecordPlace>& after,
                                                  int64_t limit) = 0;
  virtual absl::StatusOr<std::vector<WorkloadName>> FindWorkloads(const std::string& text,
                                                                  const std::string& after,
                                                                  int64_t limit) = 0;
  // What two devices have of the same tasks. Kept for half a minute, so that the pages of a long comparison
  // are read from one answer.
  struct DeviceTable {
    std::vector<DevicePair> pairs;  // by key
    int64_t looked_at = 0;          // tasks, where there are more than were looked at; 0: all were
  };
  virtual absl::StatusOr<std::shared_ptr<const DeviceTable>> CompareDevices(
      const Identity& caller, const std::string& device_a, const std::string& device_b) = 0;
  // The latest simulation of the queue, without rows of jobs that the caller may not see. The call does
  // not wait: it asks for a newer one where that is due. Null: the first is not ready yet. Unimplemented:
  // this scheduler cannot simulate.
  virtual absl::StatusOr<std::shared_ptr<const views::WhatIf>> WhatIf(const Identity& caller) = 0;
  // Answers within a second.
  virtual absl::StatusOr<v1::ListWorkersResponse> ListWorkers() = 0;

  // What follows changes something. What was done, and what was refused, is kept in the audit log; the
  // access table is asked here.
  // As JobService.CancelJob and so on.
  virtual absl::Status Act(const Identity& caller, const std::string& job, const Order& order) = 0;
  // As JobService.Submit, with a model in one file.
  virtual absl::StatusOr<std::unique_ptr<Submission>> BeginSubmit(
      const Identity& caller, const v1::JobSpec& spec, const std::string& submit_key) = 0;
  // Takes a machine out of use for a time (1 s to 1 hour), its slots as their stages end; and gives it
  // back before that. For those who may acquire slots of the tracker.
  virtual absl::Status Drain(const Identity& caller, const std::string& machine,
                             absl::Duration duration) = 0;
  virtual absl::Status Resume(const Identity& caller, const std::string& machine) = 0;
};

}  // namespace heddle::scheduler
