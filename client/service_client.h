// The C++ client library: what the `heddle` command does over gRPC, without any printing.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/jobs.pb.h"

namespace heddle::client {

// RecordQuery.limit for all that the service gives, which is no more than kMaxQueryLimit.
inline constexpr int64_t kAllRecords = std::numeric_limits<int64_t>::max();

// Every call ends within a limit: unary calls after 30 s, transfers when nothing moves for that
// long. A service that cannot be reached is Unavailable, with the address and the way out in the
// message.
class ServiceClient {
 public:
  explicit ServiceClient(std::string address);
  ~ServiceClient();

  const std::string& address() const { return address_; }

  // OK as soon as the service answers its health check.
  absl::Status WaitUntilServing(absl::Duration timeout) const;

  // Uploads the model in chunks; returns the job's id.
  absl::StatusOr<std::string> Submit(const v1::JobSpec& spec, std::string_view model) const;
  absl::StatusOr<std::vector<v1::Job>> ListJobs(bool all) const;
  absl::StatusOr<v1::Job> GetJob(const std::string& job) const;
  absl::StatusOr<v1::Job> CancelJob(const std::string& job, const std::string& reason) const;
  absl::StatusOr<v1::Job> PauseJob(const std::string& job) const;
  absl::StatusOr<v1::Job> ResumeJob(const std::string& job) const;
  absl::StatusOr<v1::Timeline> GetTimeline(const std::string& job) const;
  absl::StatusOr<v1::TaskExplanation> ExplainTask(const std::string& job,
                                                  const std::string& task) const;
  absl::StatusOr<v1::ListWorkersResponse> ListDevices() const;

  // Calls `on_job` with every new state; returns OK after a final one. `on_job` is also called with
  // null about ten times a second when nothing new came; returning false ends the watch with
  // Cancelled. Survives a restart of the service: reconnects for up to `patience` before it gives
  // up with Unavailable.
  absl::Status WatchJob(const std::string& job, absl::Duration patience,
                        const std::function<bool(const v1::Job*)>& on_job) const;

  // The module's bytes, digest checked. `on_bytes` (optional) gets the running total.
  absl::StatusOr<std::string> FetchModule(
      const std::string& job, v1::ScheduleChoice choice,
      const std::function<void(int64_t)>& on_bytes = nullptr) const;

  absl::Status QueryRecords(const v1::RecordQuery& query,
                            const std::function<bool(const v1::Record&)>& on_record) const;
  // `next` returns false when there are no more; its error cancels the import.
  absl::StatusOr<v1::ImportRecordsResponse> ImportRecords(
      const std::function<absl::StatusOr<bool>(v1::Record*)>& next) const;

 private:
  struct Stubs;
  std::string address_;
  std::unique_ptr<Stubs> stubs_;
};

}  // namespace heddle::client
