// A tracker and a scheduler as processes of their own, on loopback, for load tests with hollow workers.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/jobs.grpc.pb.h"

namespace heddle::hollow {

// A child process that gets SIGTERM at the end, and is waited for.
class Process {
 public:
  // Unavailable: it cannot be started. `output`: where its standard output goes; -1: to this one's.
  static absl::StatusOr<std::unique_ptr<Process>> Start(std::vector<std::string> command,
                                                        int output = -1);
  ~Process();
  bool Alive() const;
  double CpuSeconds() const;  // since it began; 0 if it has ended
  double ResidentMib() const;
  double PeakMib() const;

 private:
  explicit Process(pid_t pid) : pid_(pid) {}
  const pid_t pid_;
};

class Farm {
 public:
  // `programs` has heddle-tracker and heddle-scheduler; `data` is a new folder, removed at the end.
  static absl::StatusOr<std::unique_ptr<Farm>> Start(const std::string& programs,
                                                     const std::string& data);
  ~Farm();
  const std::string& tracker_address() const { return tracker_address_; }
  Process& tracker() { return *tracker_; }
  Process& scheduler() { return *scheduler_; }
  v1::JobService::Stub* jobs() { return jobs_.get(); }

  // A job of that number for the hollow workers' target. Returns its id.
  absl::StatusOr<std::string> Submit(int number, int trials_per_task);
  absl::StatusOr<v1::Job> Get(const std::string& job);

 private:
  Farm() = default;
  std::string data_, tracker_address_;
  std::unique_ptr<Process> tracker_, scheduler_;  // the scheduler ends first
  std::unique_ptr<v1::JobService::Stub> jobs_;
};

}  // namespace heddle::hollow
