// The tracker's gRPC service: a lock, a clock and message conversion around DevicePool.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/tracker.grpc.pb.h"
#include "tracker/device_pool.h"
#include "tracker/fencing_tokens.h"

namespace heddle::tracker {

struct ServiceOptions {
  PoolOptions pool;
  // Short enough that the stage of a lost lease stops soon, and long enough that a thousand workers
  // make only a thousand calls a second.
  absl::Duration sync_interval = absl::Seconds(1);
};

class TrackerServiceImpl final : public v1::TrackerService::Service {
 public:
  TrackerServiceImpl(const ServiceOptions& options, std::unique_ptr<FencingTokens> tokens);
  // Ends the watches and the expiry thread. The server must be shut down after Stop and before the
  // destructor.
  ~TrackerServiceImpl() override;
  void Stop();
  // Grows several times a second, as long as the service can take its lock.
  int64_t Progress() const { return turns_; }

  grpc::Status Synchronize(grpc::ServerContext*, const v1::SynchronizeRequest*,
                           v1::SynchronizeResponse*) override;
  grpc::Status Acquire(grpc::ServerContext*, const v1::AcquireRequest*, v1::Lease*) override;
  grpc::Status Renew(grpc::ServerContext*, const v1::RenewRequest*, v1::Lease*) override;
  grpc::Status Release(grpc::ServerContext*, const v1::ReleaseRequest*,
                       v1::ReleaseResponse*) override;
  grpc::Status ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                           v1::ListWorkersResponse*) override;
  grpc::Status WatchWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                            grpc::ServerWriter<v1::ListWorkersResponse>*) override;

 private:
  void ExpireLoop();
  void FillList(v1::ListWorkersResponse* response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ServiceOptions options_;
  absl::Mutex mutex_;
  DevicePool pool_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<FencingTokens> tokens_ ABSL_GUARDED_BY(mutex_);
  int watches_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<int64_t> turns_{0};  // of the expiry thread
  std::thread expirer_;
};

}  // namespace heddle::tracker
