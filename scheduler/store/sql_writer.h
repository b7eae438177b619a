// The writing half of SqlRecordStore.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "absl/time/time.h"
#include "scheduler/store/record_store.h"
#include "scheduler/store/sql_session.h"

namespace heddle::scheduler {

// Applies changes within a transaction that the caller opened. Where the session queues statements,
// OK means no more than that they are queued. It remembers ids and fences, so that most changes read
// nothing; only one writer may write to the database.
class SqlWriter {
 public:
  explicit SqlWriter(SqlSession* session) : session_(session) {}

  // Forgets what it remembers. Necessary after changes were rolled back.
  void Forget();

  // Whether a refusal of this batch (AlreadyExists) leaves nothing to undo. This is so for a batch of one imported record
  // whose workload, target and device key are remembered, since nothing is written before the record is.
  bool IsRefusedWhole(const Batch& batch) const;

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

  // Counts groups of records (record_groups) whose statistics are unknown, for about this long; one group at
  // least, if there is one. Once it has found none, it does not look again before a change may have made one.
  absl::Status CountGroups(absl::Duration limit);

 private:
  // Takes a record that was not retracted out of its group's statistics, before it goes or is retracted. The
  // group is counted anew if the record was the fastest.
  absl::Status LeaveGroup(int64_t record);
  // Before a record comes (InsertRecord): drops its loops if it is slower than the fastest of its workload, target and device, or
  // else those of that one. `group`: the ids of the three.
  absl::Status KeepLoops(const InsertRecord& change, const std::array<int64_t, 3>& group,
                         double median_ns, v1::Measurement* measured);
  // Statements are prepared once per connection.
  Statement& Prepared(const char* sql);
  absl::StatusOr<int64_t> Select(const char* sql, const std::string& key);
  using Ids = std::unordered_map<std::string, int64_t>;
  static constexpr size_t kMostKnown = 100'000;  // of each kind; then it begins anew
  static void Keep(const std::string& key, int64_t id, Ids* known);
  absl::StatusOr<int64_t> Intern(const char* insert, const char* select, const std::string& key,
                                 Ids* known);
  absl::StatusOr<int64_t> Target(const std::string& text);
  absl::StatusOr<int64_t> Device(const std::string& key);
  // The id of a workload that is remembered and whose text cannot fill a gap.
  std::optional<int64_t> Knows(const std::string& workload, const std::string& text) const;
  // Returns the workload's id. An imported record may have a workload without its text; the first
  // record that has the text fills it in.
  absl::StatusOr<int64_t> Workload(const std::string& key, const std::string& text,
                                   const std::string& label, double flops);

  SqlSession* const session_;
  std::map<const char*, std::unique_ptr<Statement>> prepared_;
  Ids workloads_;     // those whose text is stored
  Ids without_text_;  // those that came without; perhaps their text is stored
  Ids targets_, devices_;
  std::map<SlotId, uint64_t> fences_;
  bool may_be_uncounted_ = true;  // some group
};

}  // namespace heddle::scheduler
