// The reading half of SqliteRecordStore. Each function is one read transaction on the given
// connection.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/store/record_store.h"

struct sqlite3;

namespace heddle::scheduler {

absl::StatusOr<std::vector<StoredJob>> ReadJobs(sqlite3* db, const JobSelection& selection);
absl::StatusOr<std::vector<JobOwner>> ReadOwners(sqlite3* db, const JobSelection& selection);
absl::StatusOr<int64_t> ReadLastJob(sqlite3* db);
// The job without its tasks; nullopt: there is none.
absl::StatusOr<std::optional<JobRow>> ReadJob(sqlite3* db, int64_t id);
absl::StatusOr<std::optional<JobRow>> ReadSubmitted(sqlite3* db, const std::string& user,
                                                    const std::string& submit_key);
// Of at most `limit` jobs with ids after this one, by id.
absl::StatusOr<std::vector<JobBlobs>> ReadBlobsOfJobs(sqlite3* db, int64_t after, int64_t limit);
// The finished jobs, those that ended first before the others; left out are those without a model,
// which are collected.
absl::StatusOr<std::vector<int64_t>> ReadFinished(sqlite3* db);
// Adds those of the jobs that are not collected to `found`. It reads each job by itself.
absl::Status ReadCollectable(sqlite3* db, absl::Span<const int64_t> jobs,
                             std::vector<FinishedJob>* found);
absl::StatusOr<Collection> ReadCollection(sqlite3* db, int64_t job, const CollectionPlace& after,
                                          int64_t limit);
absl::StatusOr<OldRecords> ReadOldRecords(sqlite3* db, const OldRecordRule& rule, int64_t after,
                                          int64_t limit);
absl::StatusOr<std::vector<StageRow>> ReadUnfinishedStages(sqlite3* db);
absl::StatusOr<int64_t> ReadLastAttempt(sqlite3* db);
absl::StatusOr<std::map<SlotId, uint64_t>> ReadFences(sqlite3* db);
absl::StatusOr<std::vector<v1::StageSpan>> ReadTimeline(sqlite3* db, int64_t job, int64_t limit);
// What a page of records may cost besides its number of records.
struct PageCost {
  size_t bytes = std::numeric_limits<size_t>::max();
  // Records that it looks at, where no index leads to those that match; it may have none then, and
  // RecordPage.last tells where the next page goes on.
  int64_t rows = std::numeric_limits<int64_t>::max();
};
absl::StatusOr<RecordPage> ReadRecords(sqlite3* db, const v1::RecordQuery& query,
                                       const std::optional<RecordPlace>& after, int64_t limit,
                                       const PageCost& most);
absl::StatusOr<TrialSample> ReadTrialSample(sqlite3* db, const WorkloadId& id, int64_t most);
absl::StatusOr<std::vector<v1::StageSpan>> ReadLatestStages(sqlite3* db, int64_t since_unix_ns,
                                                            int64_t limit);
absl::StatusOr<std::vector<WorkloadName>> ReadWorkloads(sqlite3* db, const std::string& text,
                                                        const std::string& after, int64_t limit);
absl::StatusOr<std::vector<DevicePair>> ReadDevicePairs(sqlite3* db, const std::string& device_a,
                                                        const std::string& device_b, int64_t limit);
absl::StatusOr<KnownRecords> ReadKnown(sqlite3* db, const WorkloadId& id);
absl::StatusOr<std::optional<v1::Record>> ReadBestMeasured(sqlite3* db, const WorkloadId& id);
absl::StatusOr<std::optional<v1::SearchReport>> ReadReport(sqlite3* db, int64_t job, int32_t task);
absl::StatusOr<std::vector<TransferSamples>> ReadRelatedSamples(sqlite3* db, const WorkloadId& id,
                                                                int64_t limit);
absl::StatusOr<std::map<TransferModelId, v1::TransferModel>> ReadTransferModels(sqlite3* db);
absl::StatusOr<std::map<std::string, std::string>> ReadMachines(sqlite3* db);
absl::StatusOr<Experience> ReadExperience(sqlite3* db, const std::string& target,
                                          const std::string& device_key, int64_t limit);
absl::StatusOr<std::vector<std::string>> ReadDeviceKeys(sqlite3* db, const std::string& target);

}  // namespace heddle::scheduler
