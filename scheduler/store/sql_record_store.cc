#include "scheduler/store/sql_record_store.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "scheduler/store/sql_read.h"
#include "scheduler/store/sql_writer.h"
#include "scheduler/store/sqlite_schema.h"

namespace heddle::scheduler {
namespace {

constexpr int kMostRepeats = 10;                   // of a read
constexpr size_t kJobsAtATime = 200;               // of reads of all jobs
constexpr size_t kMaxPageBytes = size_t{8} << 20;  // of records, so that large ones fill no memory
constexpr int64_t kMaxPageRows = 10'000;  // that a page looks at, so that nobody waits for long
// Of a transaction, for statistics that an older program did not keep, or that a retraction made wrong.
constexpr absl::Duration kCountLimit = absl::Milliseconds(20);

class SqlRecordStore : public RecordStore {
  // A read whose connection was lost is repeated on a new one.
  template <typename Read>
  static auto Repeated(const Read& read, SqlSession* session) {
    auto result = read(session);
    for (int repeats = 0; repeats < kMostRepeats && session->Lost(); ++repeats)
      result = read(session);
    return result;
  }
  template <typename Read>
  auto ForScheduler(const Read& read) {
    absl::MutexLock lock(&read_mutex_);
    return Repeated(read, read_.get());
  }
  template <typename Read>
  auto ForLaterPages(const Read& read) {
    absl::MutexLock lock(&later_mutex_);
    return Repeated(read, later_.get());
  }
  template <typename Read>
  auto ForUsers(const Read& read) {
    absl::MutexLock lock(&users_mutex_);
    return Repeated(read, users_.get());
  }

 public:
  explicit SqlRecordStore(SqlSessions sessions)
      : write_(std::move(sessions.write)),
        read_(std::move(sessions.read)),
        users_(std::move(sessions.users)),
        later_(std::move(sessions.later)),
        writer_(write_.get()) {}

  absl::StatusOr<std::vector<absl::Status>> Apply(absl::Span<const Batch> batches) override {
    // A claim goes before what waits to be written, so that it waits for one transaction at most.
    const auto nobody_claims = [this] { return claims_ == 0; };
    absl::MutexLock lock(&write_mutex_, absl::Condition(&nobody_claims));
    HEDDLE_RETURN_IF_ERROR(ResolveDoubt());
    if (unknown_) {  // the caller repeats that call
      const InDoubt call = *std::exchange(unknown_, std::nullopt);
      if (*call.committed && call.results.size() == batches.size()) return call.results;
      if (*call.committed)
        return absl::InternalError("another call came while a commit was in doubt");
    }
    if (write_->MayQueue()) {
      // Few batches are ever refused, so all are tried in few round trips, without parts that can be
      // undone.
      HEDDLE_ASSIGN_OR_RETURN(const bool taken, ApplyAtOnce(batches));
      if (taken) return std::vector<absl::Status>(batches.size());
    }
    return ApplyOneByOne(batches);
  }

  absl::StatusOr<Leader> Lead(const LeaderClaim& claim) override {
    ++claims_;
    absl::MutexLock lock(&write_mutex_);
    --claims_;
    const absl::Status resolved = ResolveDoubt();
    absl::StatusOr<Leader> leader = resolved.ok() ? TryLead(claim) : resolved;
    if (absl::IsUnavailable(leader.status()) && write_->UnavailableToAll())
      return absl::ResourceExhaustedError(leader.status().message());
    return leader;
  }
  absl::Status EndLead(const std::string& pool, int64_t epoch) override {
    absl::MutexLock lock(&write_mutex_);
    HEDDLE_RETURN_IF_ERROR(ResolveDoubt());
    return InTransaction([&]() -> absl::Status {
      Statement end(write_.get(),
                    "UPDATE leaders SET lease_ns=0, address='' WHERE pool=? AND epoch=?");
      return end.Bind(pool, epoch).Run();
    });
  }
  absl::StatusOr<Leader> LeaderOf(const std::string& pool) override {
    // Whoever stands by wants to hear soon if the store is away, and has no users.
    return ForUsers([&](SqlSession* session) -> absl::StatusOr<Leader> {
      HEDDLE_ASSIGN_OR_RETURN(const LeaderRow row, ReadLeader(session, pool));
      HEDDLE_ASSIGN_OR_RETURN(const int64_t now, session->ClockNs());
      return LeaderAt(row, absl::FromUnixNanos(now));
    });
  }
  void SetEpoch(const std::string& pool, int64_t epoch) override {
    absl::MutexLock lock(&write_mutex_);
    pool_ = pool;
    epoch_ = epoch;
    leads_ = std::make_unique<Statement>(write_.get(),
                                         "UPDATE leaders SET epoch=epoch WHERE pool=? AND epoch=?");
  }
  absl::StatusOr<std::string> Identity() override {
    return ForScheduler([&](SqlSession* session) -> absl::StatusOr<std::string> {
      Statement query(session, "SELECT identity FROM store");
      std::string identity = query.Step() ? query.Text(0) : "";
      HEDDLE_RETURN_IF_ERROR(query.status());
      return identity;
    });
  }

  absl::StatusOr<std::vector<StoredJob>> LoadJobs(const JobSelection& selection) override {
    // Only users ask for finished jobs.
    if (selection.which == JobSelection::kFinished)
      return ForUsers([&](SqlSession* session) { return ReadJobs(session, selection); });
    return ForScheduler([&](SqlSession* session) { return ReadJobs(session, selection); });
  }
  absl::StatusOr<std::vector<JobOwner>> Owners(const JobSelection& selection) override {
    return ForUsers([&](SqlSession* session) { return ReadOwners(session, selection); });
  }
  absl::StatusOr<int64_t> LastJob() override {
    return ForScheduler([&](SqlSession* session) { return ReadLastJob(session); });
  }
  absl::StatusOr<std::optional<JobRow>> FindSubmitted(const std::string& user,
                                                      const std::string& submit_key) override {
    return ForScheduler(
        [&](SqlSession* session) { return ReadSubmitted(session, user, submit_key); });
  }
  absl::StatusOr<std::vector<JobBlobs>> BlobsOfJobs() override {
    // In pages, so that users who ask meanwhile wait for no more than one. A job that is submitted
    // meanwhile comes last, if at all; its blobs are new.
    std::vector<JobBlobs> all;
    while (true) {
      const int64_t after = all.empty() ? 0 : all.back().job;
      HEDDLE_ASSIGN_OR_RETURN(std::vector<JobBlobs> page, ForUsers([&](SqlSession* session) {
                                return ReadBlobsOfJobs(session, after, kJobsAtATime);
                              }));
      std::move(page.begin(), page.end(), std::back_inserter(all));
      if (page.size() < kJobsAtATime) return all;
    }
  }
  absl::StatusOr<std::vector<FinishedJob>> Collectable() override {
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<int64_t> jobs, ForUsers(ReadFinished));
    // In pages, so that users who ask meanwhile wait for no more than one.
    std::vector<FinishedJob> found;
    for (absl::Span<const int64_t> left = jobs; !left.empty();
         left.remove_prefix(std::min(kJobsAtATime, left.size()))) {
      const auto some = left.first(std::min(kJobsAtATime, left.size()));
      HEDDLE_ASSIGN_OR_RETURN(std::vector<FinishedJob> page, ForUsers([&](SqlSession* session) {
                                return ReadCollectable(session, some);
                              }));
      std::move(page.begin(), page.end(), std::back_inserter(found));
    }
    return found;
  }
  absl::StatusOr<Collection> CollectionOf(int64_t job, const CollectionPlace& after,
                                          int64_t limit) override {
    return ForUsers(
        [&](SqlSession* session) { return ReadCollection(session, job, after, limit); });
  }
  absl::StatusOr<OldRecords> FindOldRecords(const OldRecordRule& rule,
                                            const std::optional<OldRecordPlace>& after,
                                            int64_t limit) override {
    return ForUsers(
        [&](SqlSession* session) { return ReadOldRecords(session, rule, after, limit); });
  }
  absl::StatusOr<std::vector<StageRow>> UnfinishedStages() override {
    return ForScheduler([&](SqlSession* session) { return ReadUnfinishedStages(session); });
  }
  absl::StatusOr<int64_t> LastAttempt() override {
    return ForScheduler([&](SqlSession* session) { return ReadLastAttempt(session); });
  }
  absl::StatusOr<std::map<SlotId, uint64_t>> Fences() override {
    return ForScheduler([&](SqlSession* session) { return ReadFences(session); });
  }
  absl::StatusOr<std::vector<v1::StageSpan>> Timeline(int64_t job, int64_t since_unix_ns,
                                                      int64_t limit) override {
    return ForUsers(
        [&](SqlSession* session) { return ReadTimeline(session, job, since_unix_ns, limit); });
  }
  absl::StatusOr<std::vector<v1::Record>> Query(const v1::RecordQuery& query) override {
    HEDDLE_ASSIGN_OR_RETURN(RecordPage page, ForScheduler([&](SqlSession* session) {
                              return ReadRecords(session, query, std::nullopt, QueryLimit(query),
                                                 {.loops = false});
                            }));
    return std::move(page.records);
  }
  absl::StatusOr<RecordPage> QueryPage(const v1::RecordQuery& query,
                                       const std::optional<RecordPlace>& after,
                                       int64_t limit) override {
    const auto read = [&](SqlSession* session) {
      return ReadRecords(session, query, after, limit,
                         {.bytes = kMaxPageBytes, .rows = kMaxPageRows});
    };
    // A query for the best records of one worker reads all records, which takes minutes for many millions. It uses the connection of
    // later pages, so that short reads of other users do not wait for it.
    const bool long_read = query.best_only() && query.workload_key().empty() &&
                           (!query.worker().empty() || !query.imported_by().empty());
    return after || long_read ? ForLaterPages(read) : ForUsers(read);
  }
  absl::StatusOr<TrialSample> SampleTrials(const WorkloadId& id, int64_t most) override {
    return ForUsers([&](SqlSession* session) { return ReadTrialSample(session, id, most); });
  }
  absl::StatusOr<std::vector<v1::StageSpan>> LatestStages(int64_t first_attempt,
                                                          int64_t limit) override {
    return ForUsers(
        [&](SqlSession* session) { return ReadLatestStages(session, first_attempt, limit); });
  }
  absl::StatusOr<std::vector<WorkloadName>> FindWorkloads(const std::string& text,
                                                          const std::string& after,
                                                          int64_t limit) override {
    return ForUsers(
        [&](SqlSession* session) { return ReadWorkloads(session, text, after, limit); });
  }
  absl::StatusOr<std::vector<DevicePair>> CompareDevices(const std::string& device_a,
                                                         const std::string& device_b,
                                                         int64_t limit) override {
    return ForUsers(
        [&](SqlSession* session) { return ReadDevicePairs(session, device_a, device_b, limit); });
  }
  absl::StatusOr<KnownRecords> Known(const WorkloadId& id) override {
    return ForScheduler([&](SqlSession* session) { return ReadKnown(session, id); });
  }
  absl::StatusOr<std::optional<v1::Record>> BestMeasured(const WorkloadId& id) override {
    return ForScheduler([&](SqlSession* session) { return ReadBestMeasured(session, id); });
  }
  absl::StatusOr<std::optional<v1::SearchReport>> Report(int64_t job, int32_t task) override {
    return ForUsers([&](SqlSession* session) { return ReadReport(session, job, task); });
  }
  absl::StatusOr<std::vector<TransferSamples>> FindRelatedSamples(const WorkloadId& id,
                                                                  int64_t limit) override {
    return ForScheduler(
        [&](SqlSession* session) { return ReadRelatedSamples(session, id, limit); });
  }
  absl::StatusOr<std::vector<TransferSamples>> SamplesAfter(const std::string& kind,
                                                            const std::optional<WorkloadId>& after,
                                                            int64_t limit) override {
    return ForScheduler(
        [&](SqlSession* session) { return ReadSamplesAfter(session, kind, after, limit); });
  }
  absl::StatusOr<std::map<TransferModelId, v1::TransferModel>> AllTransferModels() override {
    return ForScheduler([&](SqlSession* session) { return ReadTransferModels(session); });
  }
  absl::StatusOr<std::map<std::string, std::string>> Machines() override {
    return ForScheduler([&](SqlSession* session) { return ReadMachines(session); });
  }
  absl::StatusOr<Experience> FindExperience(const std::string& target,
                                            const std::string& device_key, int64_t limit) override {
    return ForScheduler(
        [&](SqlSession* session) { return ReadExperience(session, target, device_key, limit); });
  }
  absl::StatusOr<std::vector<std::string>> DeviceKeys(const std::string& target) override {
    return ForScheduler([&](SqlSession* session) { return ReadDeviceKeys(session, target); });
  }

 private:
  // Nothing of the whole call may remain after such an error.
  static bool IsFatal(const absl::Status& status) {
    return status.code() == absl::StatusCode::kResourceExhausted ||
           status.code() == absl::StatusCode::kInternal ||
           status.code() == absl::StatusCode::kDataLoss ||
           status.code() == absl::StatusCode::kUnavailable;
  }
  void Rollback() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) {
    write_->Rollback();
    writer_.Forget();
  }
  absl::Status Commit(const std::vector<absl::Status>& results)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) {
    absl::Status status = write_->Commit();
    if (status.ok()) return status;
    writer_.Forget();
    if (absl::IsUnavailable(status)) unknown_ = InDoubt{results, std::nullopt};
    return status;
  }
  // Finds out whether the last call was taken if its commit was not answered.
  absl::Status ResolveDoubt() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) {
    if (!unknown_ || unknown_->committed) return absl::OkStatus();
    HEDDLE_ASSIGN_OR_RETURN(unknown_->committed, write_->LastCommitted());
    return absl::OkStatus();
  }

  // A transaction that may be made again if its answer is lost.
  template <typename Write>
  absl::Status InTransaction(const Write& write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) {
    HEDDLE_RETURN_IF_ERROR(write_->Begin(SqlSession::Running::kAtOnce));
    if (absl::Status status = write(); !status.ok()) {
      Rollback();
      return status;
    }
    return write_->CommitRepeatable();
  }

  // Changes the row only if it is as it was read, since others may claim it meanwhile.
  absl::StatusOr<Leader> TryLead(const LeaderClaim& claim)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) {
    Leader leader;
    HEDDLE_RETURN_IF_ERROR(InTransaction([&]() -> absl::Status {
      HEDDLE_ASSIGN_OR_RETURN(const LeaderRow before, ReadLeader(write_.get(), claim.pool));
      HEDDLE_ASSIGN_OR_RETURN(const int64_t now, write_->ClockNs());
      LeaderRow row = AfterClaim(before, claim, absl::FromUnixNanos(now));
      leader = LeaderAt(row, absl::FromUnixNanos(now));
      if (row.scheduler != claim.scheduler) return absl::OkStatus();
      if (row.epoch != before.epoch) {
        // Whoever led may have been stopped or cut off in the middle of a transaction, which has the row locked.
        HEDDLE_RETURN_IF_ERROR(write_->EndOtherWriters("leaders"));
        Statement locked(write_.get(), "UPDATE leaders SET epoch=epoch WHERE pool=?");
        HEDDLE_RETURN_IF_ERROR(locked.Bind(claim.pool).Run());
        // The lease begins after the wait for the lock.
        HEDDLE_ASSIGN_OR_RETURN(const int64_t after, write_->ClockNs());
        row = AfterClaim(before, claim, absl::FromUnixNanos(after));
        leader = LeaderAt(row, absl::FromUnixNanos(after));
      }
      const int64_t renewed = absl::ToUnixNanos(row.renewed);
      const int64_t lease = absl::ToInt64Nanoseconds(row.lease);
      Statement claimed(
          write_.get(),
          "INSERT INTO leaders(pool, scheduler, address, epoch, renewed_ns, lease_ns) "
          "VALUES(?, ?, ?, ?, ?, ?) ON CONFLICT(pool) DO UPDATE SET scheduler=excluded.scheduler, "
          "address=excluded.address, epoch=excluded.epoch, renewed_ns=excluded.renewed_ns, "
          "lease_ns=excluded.lease_ns WHERE leaders.epoch=? AND leaders.renewed_ns=?");
      HEDDLE_ASSIGN_OR_RETURN(const bool changed,
                              claimed
                                  .Bind(claim.pool, row.scheduler, row.address, row.epoch, renewed,
                                        lease, before.epoch, absl::ToUnixNanos(before.renewed))
                                  .RunIfItChanges());
      if (!changed) return absl::AbortedError("another scheduler claims the leadership just now");
      return CheckVersion();
    }));
    return leader;
  }

  // FailedPrecondition: a newer program has migrated the tables since the store was opened. Whoever migrates first
  // waits for open transactions that have changed the table of leaders, so this holds until the transaction ends.
  absl::Status CheckVersion() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) {
    Statement query(write_.get(), "SELECT user_version FROM pragma_user_version");
    const int64_t version = query.Step() ? query.Int(0) : 0;
    HEDDLE_RETURN_IF_ERROR(query.status());
    if (version == kSchemaVersion) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("its tables are of version ", version,
                                                      " by now, and this program knows ",
                                                      kSchemaVersion, ": use the newer program"));
  }

  // The first change of each transaction: nobody else leads, and nobody has migrated the tables (kEndEpochs). It
  // locks the row, so that no other scheduler takes the leadership before the transaction has ended.
  absl::Status CheckEpoch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) {
    if (epoch_ == 0) return absl::OkStatus();
    HEDDLE_ASSIGN_OR_RETURN(const bool leads, leads_->Bind(pool_, epoch_).RunIfItChanges());
    if (leads) return absl::OkStatus();
    HEDDLE_RETURN_IF_ERROR(CheckVersion());
    HEDDLE_ASSIGN_OR_RETURN(const LeaderRow row, ReadLeader(write_.get(), pool_));
    HEDDLE_ASSIGN_OR_RETURN(const int64_t now, write_->ClockNs());
    return NotLeading(LeaderAt(row, absl::FromUnixNanos(now)), epoch_);
  }

  // False: some batch was refused, and nothing is changed.
  absl::StatusOr<bool> ApplyAtOnce(absl::Span<const Batch> batches)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) {
    HEDDLE_RETURN_IF_ERROR(write_->Begin(SqlSession::Running::kQueued));
    const absl::Status status = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) -> absl::Status {
      HEDDLE_RETURN_IF_ERROR(CheckEpoch());
      for (const Batch& batch : batches) {
        for (const StoreChange& change : batch) HEDDLE_RETURN_IF_ERROR(std::visit(writer_, change));
      }
      HEDDLE_RETURN_IF_ERROR(writer_.CountGroups(kCountLimit));
      return write_->Settle();
    }();
    if (!status.ok()) {
      Rollback();
      if (IsFatal(status)) return status;
      return false;
    }
    HEDDLE_RETURN_IF_ERROR(Commit(std::vector<absl::Status>(batches.size())));
    return true;
  }

  absl::StatusOr<std::vector<absl::Status>> ApplyOneByOne(absl::Span<const Batch> batches)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) {
    HEDDLE_RETURN_IF_ERROR(write_->Begin(SqlSession::Running::kAtOnce));
    if (absl::Status leading = CheckEpoch(); !leading.ok()) {
      Rollback();
      return leading;
    }
    std::vector<absl::Status> results;
    for (const Batch& batch : batches) {
      absl::Status status = ApplyOne(batch);
      // A full disk may have rolled back the whole transaction.
      if (IsFatal(status) || !write_->InTransaction()) {
        Rollback();
        return status.ok() ? absl::InternalError("the transaction ended by itself") : status;
      }
      results.push_back(std::move(status));
    }
    if (absl::Status counted = writer_.CountGroups(kCountLimit); !counted.ok()) {
      Rollback();
      return counted;
    }
    HEDDLE_RETURN_IF_ERROR(Commit(results));
    return results;
  }

  absl::Status ApplyOne(const Batch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) {
    if (writer_.IsRefusedWhole(batch)) {
      absl::Status status = std::visit(writer_, batch[0]);
      if (status.ok() || IsFatal(status) || absl::IsAlreadyExists(status)) return status;
      return absl::InternalError(status.message());
    }
    HEDDLE_RETURN_IF_ERROR(write_->Savepoint());
    for (const StoreChange& change : batch) {
      absl::Status status = std::visit(writer_, change);
      if (status.ok()) continue;
      writer_.Forget();
      if (IsFatal(status) || !write_->InTransaction()) return status;
      if (const absl::Status undone = write_->Undo(); !undone.ok()) return undone;
      return status;
    }
    return write_->Release();
  }

  absl::Mutex write_mutex_;
  absl::Mutex read_mutex_;
  absl::Mutex users_mutex_;
  absl::Mutex later_mutex_;
  const std::unique_ptr<SqlSession> write_;
  const std::unique_ptr<SqlSession> read_;
  const std::unique_ptr<SqlSession> users_;
  const std::unique_ptr<SqlSession> later_;
  SqlWriter writer_ ABSL_GUARDED_BY(write_mutex_);
  // A call whose commit was not answered: its results, if it was committed.
  struct InDoubt {
    std::vector<absl::Status> results;
    std::optional<bool> committed;  // nullopt: not known yet
  };
  std::optional<InDoubt> unknown_ ABSL_GUARDED_BY(write_mutex_);
  std::atomic<int> claims_ = 0;  // calls of Lead that wait for write_mutex_
  std::string pool_ ABSL_GUARDED_BY(write_mutex_);
  int64_t epoch_ ABSL_GUARDED_BY(write_mutex_) = 0;  // 0: Apply checks none
  std::unique_ptr<Statement> leads_ ABSL_GUARDED_BY(write_mutex_);
};

}  // namespace

std::unique_ptr<RecordStore> MakeSqlRecordStore(SqlSessions sessions) {
  return std::make_unique<SqlRecordStore>(std::move(sessions));
}

}  // namespace heddle::scheduler
