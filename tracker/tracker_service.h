// The tracker's gRPC service: a lock, a clock and message conversion around DevicePool.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/access/audit_log.h"
#include "proto/access/call_limits.h"
#include "proto/tracker.grpc.pb.h"
#include "tracker/appointment.h"
#include "tracker/device_pool.h"
#include "tracker/fencing_tokens.h"

namespace heddle::tracker {

struct ServiceOptions {
  PoolOptions pool;
  // The service has several trackers: this one serves only while a scheduler appoints it. Meanwhile it forgets nothing; what
  // its workers do not tell it while it does not serve is no silence.
  bool appointed = false;
  CallLimits::Options calls;  // of watches: each uses a thread of the server
  // Gets a line for each slot that a person takes or gives back. Outlives the service; null: nobody keeps that.
  AuditLog* audit = nullptr;
};

class TrackerServiceImpl final : public v1::TrackerService::Service {
 public:
  TrackerServiceImpl(const ServiceOptions& options, std::unique_ptr<FencingTokens> tokens);
  // Ends the watches and the expiry thread. The server must be shut down after Stop and before the
  // destructor.
  ~TrackerServiceImpl() override;
  void Stop();

  // WatchWorkers. `write` hands an answer to the caller, and waits until there is room for it; false: the caller
  // is gone. One that lets it wait for too long (ServiceOptions.calls) is cut off: its context is cancelled.
  using Write = std::function<bool(const v1::ListWorkersResponse&)>;
  grpc::Status Watch(grpc::ServerContext* context, const v1::ListWorkersRequest& request,
                     const Write& write);

  // What is there now, and what happened so far.
  struct Summary {
    std::vector<WorkerView> workers;
    int watches = 0;
    int64_t leases_granted = 0, leases_refused = 0, leases_expired = 0;
    int64_t workers_lost = 0;  // dropped for their silence
    bool serves = true;        // false: it is not appointed now, and lists no workers
  };
  Summary Summarize();
  // Not OK: leases and workers have not been looked at for much longer than ever happens.
  absl::Status Live();
  // Unavailable: this tracker is not appointed now.
  absl::Status Ready();

  grpc::Status Synchronize(grpc::ServerContext*, const v1::SynchronizeRequest*,
                           v1::SynchronizeResponse*) override;
  grpc::Status Acquire(grpc::ServerContext*, const v1::AcquireRequest*, v1::Lease*) override;
  grpc::Status RenewAll(grpc::ServerContext*, const v1::RenewAllRequest*,
                        v1::RenewAllResponse*) override;
  grpc::Status Release(grpc::ServerContext*, const v1::ReleaseRequest*,
                       v1::ReleaseResponse*) override;
  grpc::Status ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                           v1::ListWorkersResponse*) override;
  grpc::Status WatchWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                            grpc::ServerWriter<v1::ListWorkersResponse>*) override;
  grpc::Status Appoint(grpc::ServerContext*, const v1::AppointRequest*,
                       v1::AppointResponse*) override;

 private:
  void ExpireLoop();
  // Unavailable, with what to do: it does not serve.
  absl::Status Serving() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Keeps what a person did; calls of schedulers are no news.
  void Audit(const grpc::ServerContext& context, const std::string& method,
             const std::string& holder, const grpc::Status& result, const std::string& detail);

  const ServiceOptions options_;
  CallLimits calls_;
  absl::Mutex mutex_;
  DevicePool pool_ ABSL_GUARDED_BY(mutex_);
  Appointment appointment_ ABSL_GUARDED_BY(mutex_){ClockOfAppointments()};
  std::unique_ptr<FencingTokens> tokens_ ABSL_GUARDED_BY(mutex_);
  int watches_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t granted_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t lost_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time last_turn_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // of expirer_
  std::thread expirer_;
};

}  // namespace heddle::tracker
