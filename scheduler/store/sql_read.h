// The reading half of SqlRecordStore. Each function reads in the given session; where it takes several
// statements, each sees what was committed before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/store/record_store.h"
#include "scheduler/store/sql_session.h"

namespace heddle::scheduler {

// Who leads the pool, as it is stored.
absl::StatusOr<LeaderRow> ReadLeader(SqlSession* db, const std::string& pool);
absl::StatusOr<std::vector<StoredJob>> ReadJobs(SqlSession* db, const JobSelection& selection);
absl::StatusOr<std::vector<JobOwner>> ReadOwners(SqlSession* db, const JobSelection& selection);
absl::StatusOr<int64_t> ReadLastJob(SqlSession* db);
// The job without its tasks; nullopt: there is none.
absl::StatusOr<std::optional<JobRow>> ReadJob(SqlSession* db, int64_t id);
absl::StatusOr<std::optional<JobRow>> ReadSubmitted(SqlSession* db, const std::string& user,
                                                    const std::string& submit_key);
// Of at most `limit` jobs with ids after this one, by id.
absl::StatusOr<std::vector<JobBlobs>> ReadBlobsOfJobs(SqlSession* db, int64_t after, int64_t limit);
// The finished jobs, those that ended first before the others; left out are those without a model,
// which are collected.
absl::StatusOr<std::vector<int64_t>> ReadFinished(SqlSession* db);
// Those of the jobs that are not collected. It reads each job by itself.
absl::StatusOr<std::vector<FinishedJob>> ReadCollectable(SqlSession* db,
                                                         absl::Span<const int64_t> jobs);
absl::StatusOr<Collection> ReadCollection(SqlSession* db, int64_t job, const CollectionPlace& after,
                                          int64_t limit);
absl::StatusOr<OldRecords> ReadOldRecords(SqlSession* db, const OldRecordRule& rule,
                                          const std::optional<OldRecordPlace>& after,
                                          int64_t limit);
absl::StatusOr<std::vector<StageRow>> ReadUnfinishedStages(SqlSession* db);
absl::StatusOr<int64_t> ReadLastAttempt(SqlSession* db);
absl::StatusOr<std::map<SlotId, uint64_t>> ReadFences(SqlSession* db);
absl::StatusOr<std::vector<v1::StageSpan>> ReadTimeline(SqlSession* db, int64_t job,
                                                        int64_t since_unix_ns, int64_t limit);
// What a page of records may cost besides its number of records.
struct PageCost {
  bool loops = true;  // whether it has Measurement.loops, which are for people and long
  size_t bytes = std::numeric_limits<size_t>::max();
  // Records that it looks at, where no index leads to those that match; it may have none then, and
  // RecordPage.last tells where the next page goes on.
  int64_t rows = std::numeric_limits<int64_t>::max();
};
absl::StatusOr<RecordPage> ReadRecords(SqlSession* db, const v1::RecordQuery& query,
                                       const std::optional<RecordPlace>& after, int64_t limit,
                                       const PageCost& most);
absl::StatusOr<TrialSample> ReadTrialSample(SqlSession* db, const WorkloadId& id, int64_t most);
absl::StatusOr<std::vector<v1::StageSpan>> ReadLatestStages(SqlSession* db, int64_t first_attempt,
                                                            int64_t limit);
absl::StatusOr<std::vector<WorkloadName>> ReadWorkloads(SqlSession* db, const std::string& text,
                                                        const std::string& after, int64_t limit);
absl::StatusOr<std::vector<DevicePair>> ReadDevicePairs(SqlSession* db, const std::string& device_a,
                                                        const std::string& device_b, int64_t limit);
absl::StatusOr<KnownRecords> ReadKnown(SqlSession* db, const WorkloadId& id);
absl::StatusOr<std::optional<v1::Record>> ReadBestMeasured(SqlSession* db, const WorkloadId& id);
absl::StatusOr<std::optional<v1::SearchReport>> ReadReport(SqlSession* db, int64_t job,
                                                           int32_t task);
absl::StatusOr<std::vector<TransferSamples>> ReadRelatedSamples(SqlSession* db,
                                                                const WorkloadId& id,
                                                                int64_t limit);
absl::StatusOr<std::vector<TransferSamples>> ReadSamplesAfter(
    SqlSession* db, const std::string& kind, const std::optional<WorkloadId>& after, int64_t limit);
absl::StatusOr<std::map<TransferModelId, v1::TransferModel>> ReadTransferModels(SqlSession* db);
absl::StatusOr<std::map<std::string, std::string>> ReadMachines(SqlSession* db);
absl::StatusOr<Experience> ReadExperience(SqlSession* db, const std::string& target,
                                          const std::string& device_key, int64_t limit);
absl::StatusOr<std::vector<std::string>> ReadDeviceKeys(SqlSession* db, const std::string& target);

}  // namespace heddle::scheduler
