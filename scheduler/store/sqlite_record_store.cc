#include "scheduler/store/sqlite_record_store.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "scheduler/store/sqlite_read.h"
#include "scheduler/store/sqlite_schema.h"
#include "scheduler/store/sqlite_util.h"
#include "scheduler/store/sqlite_writer.h"

namespace heddle::scheduler {
namespace {

constexpr size_t kJobsAtATime = 200;               // of reads of all jobs
constexpr size_t kMaxPageBytes = size_t{8} << 20;  // of records, so that large ones fill no memory
constexpr int64_t kMaxPageRows = 10'000;  // that a page looks at, so that nobody waits for long
// Of a transaction, for statistics that an older program did not keep, or that a retraction made wrong.
constexpr absl::Duration kCountLimit = absl::Milliseconds(20);

class SqliteRecordStore : public RecordStore {
 public:
  SqliteRecordStore(Connection write, Connection read, Connection users)
      : write_db_(std::move(write)),
        read_db_(std::move(read)),
        users_db_(std::move(users)),
        writer_(write_db_.get()) {}

  absl::StatusOr<std::vector<absl::Status>> Apply(absl::Span<const Batch> batches) override {
    absl::MutexLock lock(&write_mutex_);
    sqlite3* db = write_db_.get();
    errno = 0;  // see SqliteStatus
    HEDDLE_RETURN_IF_ERROR(Execute(db, "BEGIN IMMEDIATE"));
    std::vector<absl::Status> results;
    for (const Batch& batch : batches) {
      absl::Status status = ApplyOne(batch);
      // A full disk may have rolled back the whole transaction; nothing of this call may remain.
      const bool fatal = status.code() == absl::StatusCode::kResourceExhausted ||
                         status.code() == absl::StatusCode::kInternal ||
                         status.code() == absl::StatusCode::kDataLoss ||
                         sqlite3_get_autocommit(db) != 0;
      if (fatal) {
        if (sqlite3_get_autocommit(db) == 0) (void)Execute(db, "ROLLBACK");
        return status.ok() ? absl::InternalError("the transaction ended by itself") : status;
      }
      results.push_back(std::move(status));
    }
    absl::Status status = writer_.CountGroups(kCountLimit);
    if (status.ok()) status = Execute(db, "COMMIT");
    if (!status.ok()) {
      if (sqlite3_get_autocommit(db) == 0) (void)Execute(db, "ROLLBACK");
      return status;
    }
    return results;
  }

  absl::StatusOr<std::vector<StoredJob>> LoadJobs(const JobSelection& selection) override {
    // Only users ask for finished jobs.
    if (selection.which == JobSelection::kFinished) {
      absl::MutexLock lock(&users_mutex_);
      return ReadJobs(users_db_.get(), selection);
    }
    absl::MutexLock lock(&read_mutex_);
    return ReadJobs(read_db_.get(), selection);
  }
  absl::StatusOr<std::vector<JobOwner>> Owners(const JobSelection& selection) override {
    absl::MutexLock lock(&users_mutex_);
    return ReadOwners(users_db_.get(), selection);
  }
  absl::StatusOr<int64_t> LastJob() override {
    absl::MutexLock lock(&read_mutex_);
    return ReadLastJob(read_db_.get());
  }
  absl::StatusOr<std::optional<JobRow>> FindSubmitted(const std::string& user,
                                                      const std::string& submit_key) override {
    absl::MutexLock lock(&read_mutex_);
    return ReadSubmitted(read_db_.get(), user, submit_key);
  }
  absl::StatusOr<std::vector<JobBlobs>> BlobsOfJobs() override {
    // In pages, so that users who ask meanwhile wait for no more than one. A job that is submitted
    // meanwhile comes last, if at all; its blobs are new.
    std::vector<JobBlobs> all;
    while (true) {
      absl::MutexLock lock(&users_mutex_);
      HEDDLE_ASSIGN_OR_RETURN(
          std::vector<JobBlobs> page,
          ReadBlobsOfJobs(users_db_.get(), all.empty() ? 0 : all.back().job, kJobsAtATime));
      std::move(page.begin(), page.end(), std::back_inserter(all));
      if (page.size() < kJobsAtATime) return all;
    }
  }
  absl::StatusOr<std::vector<FinishedJob>> Collectable() override {
    std::vector<int64_t> jobs;
    {
      absl::MutexLock lock(&users_mutex_);
      HEDDLE_ASSIGN_OR_RETURN(jobs, ReadFinished(users_db_.get()));
    }
    // In pages, so that users who ask meanwhile wait for no more than one.
    std::vector<FinishedJob> found;
    for (absl::Span<const int64_t> left = jobs; !left.empty();
         left.remove_prefix(std::min(kJobsAtATime, left.size()))) {
      absl::MutexLock lock(&users_mutex_);
      HEDDLE_RETURN_IF_ERROR(ReadCollectable(
          users_db_.get(), left.first(std::min(kJobsAtATime, left.size())), &found));
    }
    return found;
  }
  absl::StatusOr<Collection> CollectionOf(int64_t job, const CollectionPlace& after,
                                          int64_t limit) override {
    absl::MutexLock lock(&users_mutex_);
    return ReadCollection(users_db_.get(), job, after, limit);
  }
  absl::StatusOr<OldRecords> FindOldRecords(const OldRecordRule& rule, int64_t after,
                                            int64_t limit) override {
    absl::MutexLock lock(&users_mutex_);
    return ReadOldRecords(users_db_.get(), rule, after, limit);
  }
  absl::StatusOr<std::vector<StageRow>> UnfinishedStages() override {
    absl::MutexLock lock(&read_mutex_);
    return ReadUnfinishedStages(read_db_.get());
  }
  absl::StatusOr<int64_t> LastAttempt() override {
    absl::MutexLock lock(&read_mutex_);
    return ReadLastAttempt(read_db_.get());
  }
  absl::StatusOr<std::map<SlotId, uint64_t>> Fences() override {
    absl::MutexLock lock(&read_mutex_);
    return ReadFences(read_db_.get());
  }
  absl::StatusOr<std::vector<v1::StageSpan>> Timeline(int64_t job, int64_t limit) override {
    absl::MutexLock lock(&users_mutex_);
    return ReadTimeline(users_db_.get(), job, limit);
  }
  absl::StatusOr<std::vector<v1::Record>> Query(const v1::RecordQuery& query) override {
    absl::MutexLock lock(&read_mutex_);
    HEDDLE_ASSIGN_OR_RETURN(
        RecordPage page, ReadRecords(read_db_.get(), query, std::nullopt, QueryLimit(query), {}));
    return std::move(page.records);
  }
  absl::StatusOr<RecordPage> QueryPage(const v1::RecordQuery& query,
                                       const std::optional<RecordPlace>& after,
                                       int64_t limit) override {
    absl::MutexLock lock(&users_mutex_);
    return ReadRecords(users_db_.get(), query, after, limit, {kMaxPageBytes, kMaxPageRows});
  }
  absl::StatusOr<TrialSample> SampleTrials(const WorkloadId& id, int64_t most) override {
    absl::MutexLock lock(&users_mutex_);
    return ReadTrialSample(users_db_.get(), id, most);
  }
  absl::StatusOr<std::vector<v1::StageSpan>> LatestStages(int64_t since_unix_ns,
                                                          int64_t limit) override {
    absl::MutexLock lock(&users_mutex_);
    return ReadLatestStages(users_db_.get(), since_unix_ns, limit);
  }
  absl::StatusOr<std::vector<WorkloadName>> FindWorkloads(const std::string& text,
                                                          const std::string& after,
                                                          int64_t limit) override {
    absl::MutexLock lock(&users_mutex_);
    return ReadWorkloads(users_db_.get(), text, after, limit);
  }
  absl::StatusOr<std::vector<DevicePair>> CompareDevices(const std::string& device_a,
                                                         const std::string& device_b,
                                                         int64_t limit) override {
    absl::MutexLock lock(&users_mutex_);
    return ReadDevicePairs(users_db_.get(), device_a, device_b, limit);
  }
  absl::StatusOr<KnownRecords> Known(const WorkloadId& id) override {
    absl::MutexLock lock(&read_mutex_);
    return ReadKnown(read_db_.get(), id);
  }
  absl::StatusOr<std::optional<v1::Record>> BestMeasured(const WorkloadId& id) override {
    absl::MutexLock lock(&read_mutex_);
    return ReadBestMeasured(read_db_.get(), id);
  }
  absl::StatusOr<std::optional<v1::SearchReport>> Report(int64_t job, int32_t task) override {
    absl::MutexLock lock(&users_mutex_);
    return ReadReport(users_db_.get(), job, task);
  }
  absl::StatusOr<std::vector<TransferSamples>> FindRelatedSamples(const WorkloadId& id,
                                                                  int64_t limit) override {
    absl::MutexLock lock(&read_mutex_);
    return ReadRelatedSamples(read_db_.get(), id, limit);
  }
  absl::StatusOr<std::map<TransferModelId, v1::TransferModel>> AllTransferModels() override {
    absl::MutexLock lock(&read_mutex_);
    return ReadTransferModels(read_db_.get());
  }
  absl::StatusOr<std::map<std::string, std::string>> Machines() override {
    absl::MutexLock lock(&read_mutex_);
    return ReadMachines(read_db_.get());
  }
  absl::StatusOr<Experience> FindExperience(const std::string& target,
                                            const std::string& device_key, int64_t limit) override {
    absl::MutexLock lock(&read_mutex_);
    return ReadExperience(read_db_.get(), target, device_key, limit);
  }
  absl::StatusOr<std::vector<std::string>> DeviceKeys(const std::string& target) override {
    absl::MutexLock lock(&read_mutex_);
    return ReadDeviceKeys(read_db_.get(), target);
  }

 private:
  absl::Status ApplyOne(const Batch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) {
    sqlite3* db = write_db_.get();
    HEDDLE_RETURN_IF_ERROR(Execute(db, "SAVEPOINT batch"));
    for (const StoreChange& change : batch) {
      absl::Status status = std::visit(writer_, change);
      if (status.ok()) continue;
      if (sqlite3_get_autocommit(db) == 0) (void)Execute(db, "ROLLBACK TO batch; RELEASE batch");
      return status;
    }
    return Execute(db, "RELEASE batch");
  }

  absl::Mutex write_mutex_;
  absl::Mutex read_mutex_;
  absl::Mutex users_mutex_;
  const Connection write_db_;
  const Connection read_db_;   // for the scheduler
  const Connection users_db_;  // for what users ask, which may take long
  SqliteWriter writer_ ABSL_GUARDED_BY(write_mutex_);
};

// A larger database is not checked when it is opened, so that a start does not take the longer the
// more there is. CheckDatabase (sqlite_maintenance.h) checks it while it is in use.
constexpr int64_t kMostCheckedBytes = int64_t{32} << 20;

absl::StatusOr<int64_t> SizeOf(sqlite3* db) {
  Statement size(db, "SELECT page_count*page_size FROM pragma_page_count, pragma_page_size");
  const int64_t bytes = size.Step() ? size.Int(0) : 0;
  HEDDLE_RETURN_IF_ERROR(size.status());
  return bytes;
}

absl::StatusOr<std::unique_ptr<RecordStore>> Open(const std::string& path) {
  errno = 0;  // see SqliteStatus
  HEDDLE_ASSIGN_OR_RETURN(Connection write,
                          Connect(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  sqlite3* db = write.get();
  {
    // It answers with the mode that it leaves behind, which need not be the one that was asked for.
    Statement mode(db, "PRAGMA journal_mode=WAL");
    const std::string now = mode.Step() ? mode.Text(0) : "";
    HEDDLE_RETURN_IF_ERROR(mode.status());
    if (now != "wal")
      return absl::InternalError(absl::StrCat("its journal mode stays ", now, ", it must be WAL"));
  }
  for (const char* sql : {"PRAGMA synchronous=FULL", "PRAGMA foreign_keys=ON"})
    HEDDLE_RETURN_IF_ERROR(Execute(db, sql));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t bytes, SizeOf(db));
  if (bytes <= kMostCheckedBytes) {
    Statement check(db, "PRAGMA quick_check(1)");
    const std::string verdict = check.Step() ? check.Text(0) : "";
    HEDDLE_RETURN_IF_ERROR(check.status());
    if (verdict != "ok") return absl::DataLossError(verdict);
  }
  HEDDLE_RETURN_IF_ERROR(Migrate(db));
  HEDDLE_ASSIGN_OR_RETURN(Connection read, ConnectReader(path));
  HEDDLE_ASSIGN_OR_RETURN(Connection users, ConnectReader(path));
  return std::make_unique<SqliteRecordStore>(std::move(write), std::move(read), std::move(users));
}

std::string WayOut(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
      return "; close the program that holds it, then start again";
    case absl::StatusCode::kDataLoss:
      return "; move the file away to begin anew, or bring a copy back (sqlite3's .recover saves "
             "what is readable)";
    case absl::StatusCode::kResourceExhausted:
      return "; free disk space, then start again";
    default:
      return "";
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordStore>> OpenSqliteRecordStore(const std::string& path) {
  absl::StatusOr<std::unique_ptr<RecordStore>> store = Open(path);
  if (store.ok()) return store;
  const absl::Status& status = store.status();
  return absl::Status(status.code(), absl::StrCat("database ", path, ": ", status.message(),
                                                  WayOut(status.code())));
}

}  // namespace heddle::scheduler
