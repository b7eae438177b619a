// Takes jobs in, by gRPC and by the page: whose they are, how large a model may be, and how many
// unfinished jobs there may be.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/files/blob_store.h"
#include "proto/access/identity.h"
#include "proto/jobs.pb.h"
#include "scheduler/service/answer_pace.h"
#include "scheduler/service/scheduler_loop.h"
#include "scheduler/service/storage/daily_quota.h"
#include "scheduler/service/storage/stored_parts.h"
#include "scheduler/service/storage/upload_quota.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

struct ServiceLimits {
  int64_t max_model_bytes = int64_t{1} << 34;  // of a file and its parts together
  // Unfinished jobs, in all and of one user. Each costs memory, and time of every decision.
  int max_jobs = 10'000;
  int max_jobs_of_user = 2'000;
  // Jobs that callers of one tenant may submit within a day (daily_quota.h); 0: any number. Each keeps rows, and memory
  // until the scheduler's next start, however soon it is cancelled.
  int64_t max_jobs_a_day = 20'000;
  // Records that callers of one tenant may import within a day. They stay for ever. Operators have no limit.
  int64_t max_import_bytes_a_day = int64_t{16} << 30;
  AnswerPace::Options answers{};  // to long queries of records
};

inline constexpr int64_t kDiskReserveFiles =
    1000;  // kept free for the database, as kDiskReserveBytes

// Thread-safe.
class JobIntake {
 public:
  // All outlive this.
  JobIntake(SchedulerLoop* loop, RecordStore* store, BlobStore* blobs, ServiceLimits limits)
      : loop_(loop),
        store_(store),
        blobs_(blobs),
        limits_(limits),
        uploads_(blobs,
                 {.bytes = 2 * limits.max_model_bytes, .bytes_a_day = 8 * limits.max_model_bytes}),
        jobs_a_day_(limits.max_jobs_a_day) {}

  // ResourceExhausted if a model of so many bytes is over the limit, or the disk is full.
  absl::Status CheckRoom(int64_t model_bytes) const;

  // What tenants have uploaded and no job refers to.
  UploadQuota* uploads() { return &uploads_; }

  // Looks at a job before its model is taken, and fills in whose it is. The result counts as one more
  // unfinished job of the user until it is let go; by then the job that was submitted counts itself. A
  // submission that is sent again (SchedulerLoop::Submit) counts for nothing. InvalidArgument: the spec.
  // ResourceExhausted: the service or the user has as many jobs as it may have, or the caller's tenant has
  // submitted as many as it may within a day.
  absl::StatusOr<std::shared_ptr<void>> Admit(const Identity& caller, const std::string& submit_key,
                                              v1::JobSpec* spec);
  // The caller's submission has become a job of this model. `fresh`: not one that was sent again, for which Admit
  // returns null.
  void Submitted(const Identity& caller, bool fresh, const ModelDigests& model,
                 const v1::BlobList& parts);

 private:
  absl::StatusOr<std::shared_ptr<void>> ClaimPlace(const std::string& user);

  SchedulerLoop* const loop_;
  RecordStore* const store_;
  BlobStore* const blobs_;
  const ServiceLimits limits_;
  UploadQuota uploads_;
  DailyQuota jobs_a_day_;
  absl::Mutex mutex_;
  std::map<std::string, int> claimed_ ABSL_GUARDED_BY(mutex_);  // places of ClaimPlace, by user
};

}  // namespace heddle::scheduler
