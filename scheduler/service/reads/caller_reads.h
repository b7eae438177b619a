// What a caller may read of jobs, stages and records, as the access table says. The gRPC services and
// the page answer from the same functions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/access/identity.h"
#include "scheduler/service/reads/job_snapshots.h"
#include "scheduler/service/scheduler_loop.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// Most spans in one timeline answer, which must stay under the 4 MiB of a message.
inline constexpr int64_t kMaxSpans = 20'000;

// For one call: it remembers which jobs the caller may see. Not thread-safe. A job that the caller may
// not see is NotFound, as one that never was.
class CallerReads {
 public:
  // `name` is what the service keeps of the caller (Record.imported_by).
  CallerReads(SchedulerLoop* loop, RecordStore* store, Identity caller, std::string name)
      : loop_(loop), store_(store), caller_(std::move(caller)), name_(std::move(name)) {}

  // Whether the caller may see the job at all. `method` is the row of the access table that decides:
  // "heddle.v1.JobService/GetJob".
  absl::Status CheckJob(std::string_view method, const std::string& job) const;
  absl::StatusOr<JobSnapshots::Snapshot> GetJob(std::string_view method,
                                                const std::string& job) const;
  // Sets `shown` of the options.
  absl::StatusOr<JobSnapshots::Page> ListJobs(JobSnapshots::ListOptions options) const;
  // The latest kMaxSpans stages of the job.
  absl::StatusOr<v1::Timeline> GetTimeline(const std::string& job) const;
  // A task of the job and where it is measured, without what is known of its search. `task` as in
  // ExplainTaskRequest.
  absl::StatusOr<v1::TaskExplanation> FindTask(const std::string& job,
                                               const std::string& task) const;
  // The device key of FindTask, for a task by its number from 1; found without reading all its records
  // where they are of one device.
  absl::StatusOr<std::string> DeviceOf(const std::string& job, int task) const;
  absl::StatusOr<v1::TaskExplanation> ExplainTask(const std::string& job,
                                                  const std::string& task) const;
  // RecordStore.QueryPage without what the caller may not know: which job of another tenant made a
  // record, and who of another tenant brought it or took it back.
  // `read`, if given, reads the page in place of the store.
  absl::StatusOr<RecordPage> QueryRecords(const v1::RecordQuery& query,
                                          const std::optional<RecordPlace>& after, int64_t limit,
                                          const ReadPage& read = nullptr);
  // RecordStore.SampleTrials; jobs of others have no name.
  absl::StatusOr<TrialSample> SampleTrials(const WorkloadId& id, int64_t most);
  // The stages without the names of others' jobs, and what would tell of these.
  std::vector<v1::StageSpan> NoOthers(std::vector<v1::StageSpan> spans);
  // The workers that the tracker knows. Unavailable or DeadlineExceeded: it does not answer,
  // and the message names it.
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers(absl::Duration limit) const;

 private:
  struct FoundTask {
    v1::TaskExplanation explanation;
    JobSnapshots::Snapshot snapshot;  // of its job
    int index = 0;
  };
  // FindTask, which see. `snapshot`: of the job.
  absl::StatusOr<FoundTask> FindTask(JobSnapshots::Snapshot snapshot,
                                     const std::string& task) const;
  bool MaySee(const std::string& job, std::string_view method);
  bool SeesAllRecords() const;

  SchedulerLoop* const loop_;
  RecordStore* const store_;
  const Identity caller_;
  const std::string name_;
  std::map<std::string, bool> may_see_;  // by job
};

}  // namespace heddle::scheduler
