// The tables of MemoryRecordStore, and how changes are applied to them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/store/record_store.h"
#include "scheduler/store/transfer.h"

namespace heddle::scheduler {

struct MemoryTables {
  struct StoredRecord {
    v1::Record record;
    bool imported = false;
  };
  struct Workload {
    std::string text, label;
    double flops = 0;
  };

  std::map<int64_t, JobRow> jobs;
  std::map<std::pair<int64_t, int32_t>, TaskRow> tasks;
  std::map<std::pair<int64_t, int32_t>, std::string> states;
  std::map<std::pair<int64_t, int32_t>, v1::SearchReport> reports;
  std::map<WorkloadId, std::pair<int64_t, v1::TransferSamples>>
      transfer_samples;  // with the time when each was made
  // Keys of the transfer samples by target and device key, the newest first: (-time, key).
  std::map<std::pair<std::string, std::string>, std::set<std::pair<int64_t, std::string>>>
      newest_samples;
  TransferModels transfer_models;
  std::map<std::string, std::string> machines;  // by device key
  std::map<WorkloadId, std::pair<int64_t, v1::KernelFactor>>
      factors;  // with the time when each was made
  std::map<std::pair<int64_t, int64_t>, InsertCandidate> candidates;
  std::map<std::string, Workload> workloads;
  std::map<int64_t, StoredRecord> records;         // by id
  std::map<WorkloadId, std::set<int64_t>> ids_of;  // of the records
  std::map<WorkloadId, int64_t> groups;            // numbers from 1, of all that ever had a record
  std::map<std::pair<int64_t, int64_t>, int64_t> record_of;  // by job and candidate
  std::set<std::string> digests;  // of the records, and of retracted ones that were removed
  std::map<int64_t, StageRow> stages;
  std::map<SlotId, uint64_t> fences;
  std::map<std::string, LeaderRow> leaders;  // by pool
};

// As RecordStore::FindOldRecords.
OldRecords OldRecordsOf(const MemoryTables& tables, const OldRecordRule& rule,
                        const std::optional<OldRecordPlace>& after, int64_t limit);

// Applies the changes of one batch and notes how to undo them.
class MemoryWriter {
 public:
  explicit MemoryWriter(MemoryTables* tables) : t_(*tables) {}

  absl::Status operator()(const PutJob& change);
  absl::Status operator()(const PutTask& change);
  absl::Status operator()(const CheckFence& change);
  absl::Status operator()(const PutSearchState& change);
  absl::Status operator()(const PutLearned& change);
  absl::Status operator()(const PutTransferModel& change);
  absl::Status operator()(const PutMachine& change);
  absl::Status operator()(const PutExperience& change);
  absl::Status operator()(const InsertCandidate& change);
  absl::Status operator()(const SetAttempts& change);
  absl::Status operator()(const MarkLearned& change);
  absl::Status operator()(const InsertRecord& change);
  absl::Status operator()(const RetractRecords& change);
  absl::Status operator()(const PutStage& change);
  absl::Status operator()(const CollectRows& change);
  absl::Status operator()(const RemoveRecords& change);
  absl::Status operator()(const CollectJob& change);
  // Undoes what it applied.
  void Undo();

 private:
  void ChangeModels(const std::function<void(TransferModels&)>& change);

  template <typename Map>
  absl::Status Put(Map* map, typename Map::key_type key, typename Map::mapped_type value) {
    auto it = map->find(key);
    if (it == map->end()) {
      undo_.push_back([map, key] { map->erase(key); });
      map->emplace(std::move(key), std::move(value));
    } else {
      undo_.push_back([map, key, before = std::move(it->second)] { (*map)[key] = before; });
      it->second = std::move(value);
    }
    return absl::OkStatus();
  }

  template <typename Map>
  void Erase(Map* map, typename Map::iterator it) {
    undo_.push_back([map, entry = *it] { map->insert(entry); });
    map->erase(it);
  }

  void PutSamples(const WorkloadId& id, int64_t made_unix_ns, const v1::TransferSamples& samples);
  void EraseSamples(const WorkloadId& id);
  // Drops the loops of the record that was the fastest until this one came.
  void KeepLoops(v1::Record* record);
  void AddWorkload(const std::string& key, MemoryTables::Workload workload);
  int64_t NextRecord() const;  // id

  MemoryTables& t_;
  std::vector<std::function<void()>> undo_;
};

}  // namespace heddle::scheduler
