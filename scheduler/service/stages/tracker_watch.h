// Follows the tracker's list of workers and turns it into SlotsChanged events.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/tracker.grpc.pb.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/service/stages/lease_keeper.h"

namespace heddle::scheduler {

// `ours` tells whether a lease belongs to this process.
SlotsChanged SlotsFrom(const v1::ListWorkersResponse& list,
                       const std::function<bool(const std::string&)>& ours);

class TrackerWatch {
 public:
  TrackerWatch(std::shared_ptr<v1::TrackerService::StubInterface> tracker, std::string address,
               LeaseKeeper* leases, std::function<void(SlotsChanged)> changed);
  ~TrackerWatch();

 private:
  void Loop();

  const std::shared_ptr<v1::TrackerService::StubInterface> tracker_;
  const std::string address_;
  LeaseKeeper* const leases_;
  const std::function<void(SlotsChanged)> changed_;
  absl::Mutex mutex_;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace heddle::scheduler
