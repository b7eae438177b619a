// The gRPC services of the scheduler. proto/jobs.proto documents what the calls promise.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/files/blob_store.h"
#include "proto/access/call_limits.h"
#include "proto/access/tokens.h"
#include "proto/jobs.grpc.pb.h"
#include "scheduler/service/answer_pace.h"
#include "scheduler/service/job_intake.h"
#include "scheduler/service/reads/caller_reads.h"
#include "scheduler/service/record_reader.h"
#include "scheduler/service/scheduler_loop.h"
#include "scheduler/service/storage/daily_quota.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

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
        tokens_(tokens),
        intake_(loop, store, blobs, limits) {}
  // Through which the page submits, too.
  JobIntake* intake() { return &intake_; }
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
  grpc::Status PrioritizeJob(grpc::ServerContext* context, const v1::PrioritizeJobRequest* request,
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
  const TokenFile* const tokens_;
  JobIntake intake_;
  std::atomic<bool> stopping_{false};
};

class RecordServiceImpl final : public v1::RecordService::Service {
 public:
  RecordServiceImpl(SchedulerLoop* loop, RecordStore* store, CallLimits* calls,
                    const ServiceLimits& limits, const TokenFile* tokens = nullptr)
      : loop_(loop),
        store_(store),
        calls_(calls),
        tokens_(tokens),
        imports_a_day_(limits.max_import_bytes_a_day),
        pace_(limits.answers),
        later_pages_(store, RecordReader::Priority::kLess) {}
  grpc::Status QueryRecords(grpc::ServerContext* context, const v1::RecordQuery* request,
                            grpc::ServerWriter<v1::Record>* writer) override;
  grpc::Status ImportRecords(grpc::ServerContext* context, grpc::ServerReader<v1::Record>* reader,
                             v1::ImportRecordsResponse* response) override;
  grpc::Status RetractRecords(grpc::ServerContext* context,
                              const v1::RetractRecordsRequest* request,
                              v1::RetractRecordsResponse* response) override;

 private:
  // A page that is not the first one. Long answers are most of what users cost the scheduler, so one thread reads such pages
  // for all calls, with a small share of the cores. Their calls only wait for it: the threads of gRPC serve others, too, and
  // must not have less.
  absl::StatusOr<RecordPage> ReadLater(const v1::RecordQuery& query,
                                       const std::optional<RecordPlace>& after, int64_t limit);

  SchedulerLoop* const loop_;
  RecordStore* const store_;
  CallLimits* const calls_;
  const TokenFile* const tokens_;
  DailyQuota imports_a_day_;  // bytes
  AnswerPace pace_;
  RecordReader later_pages_;
};

}  // namespace heddle::scheduler
