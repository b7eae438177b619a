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
#include "base/files/blob_store.h"
#include "proto/jobs.pb.h"
#include "proto/store.pb.h"

namespace grpc {
class ClientContext;
class Status;
}  // namespace grpc

namespace heddle::client {

// RecordQuery.limit for everything, of which the service returns at most kMaxQueryLimit records.
inline constexpr int64_t kAllRecords = std::numeric_limits<int64_t>::max();

inline constexpr size_t kMaxListedJobs = 100'000;

// A part of a model: bytes of a file, with their digest.
struct FilePart {
  std::string digest;
  std::string path;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// What a submission has sent of the model's parts.
struct Upload {
  int parts = 0;           // that the service lacked
  int64_t bytes = 0;       // of these
  int64_t sent_bytes = 0;  // so far
};

// Where the scheduler is, and what to show it (proto/access/credentials.h). Without the last two, it
// must be on this machine.
struct ServerAccess {
  // "HOST:PORT" or "unix:PATH"; or several of them with commas between, of schedulers of one service, of which
  // one leads and the others stand by.
  std::string address;
  std::string tls_directory;  // empty: none
  std::string token_file;     // empty: none
};

// What a backup has brought.
struct Backup {
  int64_t database_bytes = 0;
  int64_t blobs = 0;    // that the jobs of the database refer to
  int64_t fetched = 0;  // of these, the ones that the directory did not have yet
  int64_t fetched_bytes = 0;
  int64_t missing = 0;  // that the service has lost
};

// Every call is limited in time: unary calls to 30 s, transfers to 20 minutes and more for what is large,
// a check to 5 minutes without a word from the service; a watch has `patience`. If the service cannot be reached, the error is Unavailable with the address and a remedy. If the
// certificate or the token cannot be used, every call says so and sends nothing: InvalidArgument.
//
// Of several schedulers, calls go to the one that leads. It is found by trying the addresses in turn and by
// what a scheduler that stands by tells, also of an address that was not given. While none leads, a call
// tries again for twenty seconds, if it has not begun to pass on what it gets. If no address answers at
// all, and none ever did, it ends at once.
class ServiceClient {
 public:
  explicit ServiceClient(const ServerAccess& server);
  explicit ServiceClient(const std::string& address);
  ~ServiceClient();

  const std::string& address() const { return address_; }

  // OK as soon as the service answers its health check.
  absl::Status WaitUntilServing(absl::Duration timeout) const;

  // Sends those of the model's parts that the service lacks, then the model, and returns the job's id.
  // The parts are read in pieces. `progress` is called when it is known what has to be sent, and then
  // with every piece. A service that was there and becomes unavailable is asked again for half a
  // minute, under the same key, so that there is one job whatever was lost on the way. DataLoss: a
  // file changed while it was sent. ResourceExhausted: the service has a limit or a full disk; the
  // message says which.
  absl::StatusOr<std::string> Submit(
      const v1::JobSpec& spec, std::string_view model, const std::vector<FilePart>& parts = {},
      const std::function<void(const Upload&)>& progress = nullptr) const;
  // Oldest first; the newest kMaxListedJobs of them, or a page more. `more` (optional) tells whether there are others.
  absl::StatusOr<std::vector<v1::Job>> ListJobs(bool all, bool* more = nullptr) const;
  absl::StatusOr<v1::Job> GetJob(const std::string& job) const;
  absl::StatusOr<v1::Job> CancelJob(const std::string& job, const std::string& reason) const;
  absl::StatusOr<v1::Job> PauseJob(const std::string& job) const;
  absl::StatusOr<v1::Job> ResumeJob(const std::string& job) const;
  // -10 to 10; among jobs of one user, larger ones go first.
  absl::StatusOr<v1::Job> PrioritizeJob(const std::string& job, int priority) const;
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

  // Passes the module's bytes to `take` as they arrive, and returns their number. DataLoss: the digest
  // differs, so what was taken must not be used. An error of `take` ends the call.
  absl::StatusOr<int64_t> FetchModule(
      const std::string& job, v1::ScheduleChoice choice,
      const std::function<absl::Status(std::string_view)>& take) const;
  // The same as one string.
  absl::StatusOr<std::string> FetchModule(const std::string& job, v1::ScheduleChoice choice) const;

  absl::Status QueryRecords(const v1::RecordQuery& query,
                            const std::function<bool(const v1::Record&)>& on_record) const;
  // `next` returns false when there are no more; its error cancels the import.
  absl::StatusOr<v1::ImportRecordsResponse> ImportRecords(
      const std::function<absl::StatusOr<bool>(v1::Record*)>& next) const;
  // Returns the number of records that were retracted (RecordService.RetractRecords).
  absl::StatusOr<int64_t> RetractRecords(const v1::RecordQuery& query,
                                         const std::string& reason) const;

  // Writes what the service stores into the directory, which can then serve as the data directory of a
  // scheduler. Blobs that it has from an earlier backup are not fetched again. The database comes last
  // and as a whole, so an interrupted backup leaves an earlier one as it was. `progress` is called
  // with every piece. FailedPrecondition: a scheduler uses the directory. Cancelled: `progress`
  // returned false.
  absl::StatusOr<Backup> BackUp(const std::string& directory,
                                const std::function<bool(const Backup&)>& progress) const;
  // Checks what the service stores, and passes on what it tells. Cancelled: `on_progress` returned
  // false. DeadlineExceeded: the service has told nothing for `silence`.
  absl::Status CheckStore(bool read_blobs,
                          const std::function<bool(const v1::CheckProgress&)>& on_progress,
                          absl::Duration silence = absl::Minutes(5)) const;
  // Collects finished jobs (StoreService.Collect), and passes on each. Cancelled: `on_job` returned
  // false. DeadlineExceeded: the service has told nothing for `silence`.
  absl::StatusOr<v1::CollectProgress::Total> Collect(
      const v1::CollectRequest& request,
      const std::function<bool(const v1::CollectProgress::Job&)>& on_job,
      absl::Duration silence = absl::Minutes(5)) const;

 private:
  // Stores the database of a backup as a blob, and tells which blobs its jobs refer to. Returns its
  // digest.
  absl::StatusOr<std::string> FetchDatabase(
      BlobStore* blobs, v1::BlobList* needed, Backup* backup,
      const std::function<bool(const Backup&)>& progress) const;
  absl::Status FetchBlobs(const v1::BlobList& wanted, BlobStore* blobs, Backup* backup,
                          const std::function<bool(const Backup&)>& progress) const;
  absl::Status SendParts(const std::vector<FilePart>& parts,
                         const std::function<void(const Upload&)>& progress) const;
  absl::StatusOr<std::string> SubmitOnce(const v1::JobSpec& spec, std::string_view model,
                                         const std::vector<FilePart>& parts,
                                         const std::string& submit_key,
                                         const std::function<void(const Upload&)>& progress) const;

  // The error of a call for people.
  absl::Status Told(const grpc::Status& status) const;

  struct Stubs;
  struct Schedulers;
  // A call of one scheduler. It sets `*begun` when it must not be made again, also when it cancels itself.
  using OneCall =
      std::function<grpc::Status(const Stubs& stubs, grpc::ClientContext& context, bool* begun)>;
  // Makes the call of the scheduler that leads, as said above. `limit_ms` is of each try; 0: none.
  grpc::Status OfLeader(int64_t limit_ms, const OneCall& call) const;

  std::string address_;
  absl::Status unusable_;  // why nothing can be sent
  std::unique_ptr<Schedulers> schedulers_;
};

}  // namespace heddle::client
