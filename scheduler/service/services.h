// The gRPC services of the scheduler. proto/jobs.proto documents what the calls promise.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/blob_store.h"
#include "proto/access/tokens.h"
#include "proto/jobs.grpc.pb.h"
#include "scheduler/service/call_limits.h"
#include "scheduler/service/reads/caller_reads.h"
#include "scheduler/service/scheduler_loop.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

struct ServiceLimits {
  int64_t max_model_bytes = int64_t{1} << 34;  // of a file and its parts together
  // Unfinished jobs, in all and of one user. Each costs memory, and time of every decision.
  int max_jobs = 10'000;
  int max_jobs_of_user = 2'000;
};

// Both services live as long as the server they are registered with. Stop must be called before the
// server is shut down.
class JobServiceImpl final : public v1::JobService::Service {
 public:
  // `tokens` are those of the listener that the calls come by; null: it takes none.
  JobServiceImpl(SchedulerLoop* loop, RecordStore* store, BlobStore* blobs, CallLimits* calls,
                 ServiceLimits limits, const TokenFile* tokens = nullptr)
      : loop_(loop),
        store_(store),
        blobs_(blobs),
        calls_(calls),
        limits_(limits),
        tokens_(tokens) {}
  // Ends long-running calls.
  void Stop() { stopping_ = true; }

  grpc::Status Submit(grpc::ServerContext* context, grpc::ServerReader<v1::SubmitRequest>* reader,
                      v1::SubmitResponse* response) override;
  grpc::Status FindMissingBlobs(grpc::ServerContext* context, const v1::BlobList* request,
                                v1::BlobList* response) override;
  grpc::Status UploadBlobs(grpc::ServerContext* context, grpc::ServerReader<v1::Chunk>* reader,
                           v1::BlobList* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::Job* response) override;
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::Job>* writer) override;
  grpc::Status CancelJob(grpc::ServerContext* context, const v1::JobActionRequest* request,
                         v1::Job* response) override;
  grpc::Status PauseJob(grpc::ServerContext* context, const v1::JobActionRequest* request,
                        v1::Job* response) override;
  grpc::Status ResumeJob(grpc::ServerContext* context, const v1::JobActionRequest* request,
                         v1::Job* response) override;
  grpc::Status FetchModule(grpc::ServerContext* context, const v1::FetchModuleRequest* request,
                           grpc::ServerWriter<v1::Chunk>* writer) override;
  grpc::Status GetTimeline(grpc::ServerContext* context, const v1::GetJobRequest* request,
                           v1::Timeline* response) override;
  grpc::Status ExplainTask(grpc::ServerContext* context, const v1::ExplainTaskRequest* request,
                           v1::TaskExplanation* response) override;
  grpc::Status ListDevices(grpc::ServerContext* context, const v1::ListWorkersRequest* request,
                           v1::ListWorkersResponse* response) override;

 private:
  // RESOURCE_EXHAUSTED if a model of so many bytes is over the limit, or the disk is full.
  grpc::Status CheckRoom(int64_t model_bytes) const;
  CallerReads ReadsOf(const grpc::ServerContext& context) const;
  // Counts one more unfinished job of the user until the result is let go; by then the job that was
  // submitted counts itself. ResourceExhausted: the service or the user has as many as it may have.
  absl::StatusOr<std::shared_ptr<void>> ClaimPlace(const std::string& user);
  // NOT_FOUND if there is no such job, or if the caller may not know of it. `method` is that of this
  // service which is called. Every method whose request names a job begins with this.
  grpc::Status CheckOwner(const grpc::ServerContext& context, std::string_view method,
                          const std::string& job) const;
  grpc::Status Act(SchedulerLoop::Action action, const v1::JobActionRequest& request,
                   v1::Job* response);

  SchedulerLoop* const loop_;
  RecordStore* const store_;
  BlobStore* const blobs_;
  CallLimits* const calls_;
  const ServiceLimits limits_;
  const TokenFile* const tokens_;
  std::atomic<bool> stopping_{false};
  absl::Mutex mutex_;
  std::map<std::string, int> claimed_ ABSL_GUARDED_BY(mutex_);  // places of ClaimPlace, by user
};

class RecordServiceImpl final : public v1::RecordService::Service {
 public:
  RecordServiceImpl(SchedulerLoop* loop, RecordStore* store, CallLimits* calls,
                    const TokenFile* tokens = nullptr)
      : loop_(loop), store_(store), calls_(calls), tokens_(tokens) {}
  grpc::Status QueryRecords(grpc::ServerContext* context, const v1::RecordQuery* request,
                            grpc::ServerWriter<v1::Record>* writer) override;
  grpc::Status ImportRecords(grpc::ServerContext* context, grpc::ServerReader<v1::Record>* reader,
                             v1::ImportRecordsResponse* response) override;
  grpc::Status RetractRecords(grpc::ServerContext* context,
                              const v1::RetractRecordsRequest* request,
                              v1::RetractRecordsResponse* response) override;

 private:
  SchedulerLoop* const loop_;
  RecordStore* const store_;
  CallLimits* const calls_;
  const TokenFile* const tokens_;
};

}  // namespace heddle::scheduler
