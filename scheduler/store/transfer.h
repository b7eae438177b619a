// What searches learned that others begin with, bounded. Not thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// Transfer samples of workloads, the latest of each: a store that writes behind need not have it yet.
class RecentTransferSamples {
 public:
  static constexpr size_t kMost = 32;  // of no more than 64 KiB each

  // One that does not replace what is there of its workload changes nothing; the one kept longest
  // goes when there are too many.
  void Keep(const WorkloadId& id, const v1::TransferSamples& learned);
  // What is related to a search of the workload, the latest first.
  std::vector<TransferSamples> Of(const WorkloadId& id) const;

 private:
  std::deque<std::pair<WorkloadId, v1::TransferSamples>> transfer_samples_;  // the latest first
};

// The models that new searches begin with (TransferModel in worker.proto).
class TransferModels {
 public:
  static constexpr size_t kMost = 16;  // of no more than 512 KiB each

  // Replaces the one of the same id; an empty one drops it. The oldest goes when there are too
  // many.
  void Put(const TransferModelId& id, const v1::TransferModel& model);
  // Searches on the device key learned so many trials.
  void Count(const std::string& device_key, int64_t trials);
  // Trials counted in this process on the device key.
  int64_t counted(const std::string& device_key) const;
  // Null if there is none.
  const v1::TransferModel* Find(const TransferModelId& id) const;
  const std::map<TransferModelId, v1::TransferModel>& all() const { return models_; }

 private:
  std::map<TransferModelId, v1::TransferModel> models_;
  std::map<std::string, int64_t> counted_;  // by device key
};

// Whether a new search should rather fit one of its own: since it was made a quarter was learned of
// what it knew, at least a batch and at most kRefresh trials. (Fitting takes longer the more
// is known, and the next quarter then teaches as much.)
inline constexpr int64_t kRefresh = 512;
bool IsStale(const v1::TransferModel& model);

// Whether the model learned from transfer samples of the workload on the target and device key.
bool Taught(const v1::TransferModel& model, const WorkloadId& id);

// Whether a search of the workload may begin with the model. Not if the workload itself taught it,
// on the same target and device key: its records teach the search once more, and a model that has
// seen them cannot be judged by them. Nor if the workload taught elsewhere and the model does not
// know: that is worth more than what others taught. `nearest` are the transfer samples nearest to
// the search, null if there is none.
bool Suits(const v1::TransferModel& model, const WorkloadId& search,
           const TransferSamples* nearest);

}  // namespace heddle::scheduler
