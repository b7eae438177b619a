// The C++ client library: the gRPC calls of the `heddle` command, without printing.
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

// RecordQuery.limit for everything, of which the service returns at most kMaxQueryLimit records.
inline constexpr int64_t kAllRecords = std::numeric_limits<int64_t>::max();

// Every call is limited in time: unary calls to 30 s, transfers to 30 s without progress. If the
// service cannot be reached, the error is Unavailable with the address and a remedy.
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

  // Calls `on_job` with every new state, and returns OK after a final one. Without news `on_job` is
  // called with null about ten times a second. If it returns false, the watch ends with Cancelled.
  // After a restart of the service it reconnects; after `patience` without success it ends with
  // Unavailable.
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
