// Bounded caches of transfer samples and transfer models, from which other searches may start. Not
// thread-safe.
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

// The latest transfer samples of each workload. They are kept in memory because the store is
// written with a delay and may not have them yet.
class RecentTransferSamples {
 public:
  static constexpr size_t kMost = 32;  // each has at most 64 KiB

  // Keeps the samples if they replace those of the same workload (see Replaces). If there are too
  // many, the oldest entry is dropped.
  void Keep(const WorkloadId& id, const v1::TransferSamples& learned);
  void Forget(const WorkloadId& id);
  // The samples that are related to a search of the workload, latest first.
  std::vector<TransferSamples> Of(const WorkloadId& id) const;

 private:
  std::deque<std::pair<WorkloadId, v1::TransferSamples>> transfer_samples_;  // latest first
};

// The transfer models from which new searches may start (TransferModel in worker.proto).
class TransferModels {
 public:
  static constexpr size_t kMost = 16;  // each has at most 512 KiB

  // Replaces the model of the same id; an empty model removes it. If there are too many, the oldest
  // is dropped.
  void Put(const TransferModelId& id, const v1::TransferModel& model);
  // Removes the models of the target and device key, of any strategy.
  void Forget(const std::string& target, const std::string& device_key);
  // Searches on the device key have learned this many more trials.
  void Count(const std::string& device_key, int64_t trials);
  // Trials that Count has added for the device key in this process.
  int64_t counted(const std::string& device_key) const;
  // Null if there is none.
  const v1::TransferModel* Find(const TransferModelId& id) const;
  const std::map<TransferModelId, v1::TransferModel>& all() const { return models_; }

 private:
  std::map<TransferModelId, v1::TransferModel> models_;
  std::map<std::string, int64_t> counted_;  // by device key
};

// Whether the model learned from all tasks (TransferModel.measured).
bool LearnedFromAll(const v1::TransferModel& model);

// Whether the model is stale, so that a new search should fit its own. It is stale once searches on
// the device key have learned a quarter as many trials as the model knew, but at least a batch and
// at most kRefresh, or kRefreshOfAll if it learned from all tasks. The threshold grows with what the
// model knew: fitting then takes longer, and it takes a further quarter to teach as much.
inline constexpr int64_t kRefresh = 512;
inline constexpr int64_t kRefreshOfAll = 16384;
bool IsStale(const v1::TransferModel& model);

// Whether the model names the workload on the target and device key as a teacher. One that learned
// from all tasks names none.
bool Taught(const v1::TransferModel& model, const WorkloadId& id);

// Whether a search of the workload may start from the model. It may not in two cases. First, if the
// workload itself taught the model on the same target and device key: the search would learn these
// records twice, and could not use them to validate the model. Second, if `nearest`, the transfer
// samples nearest to the search (null if there are none), are of the same workload but unknown to
// the model: they are worth more than other workloads' samples.
// A model that learned from all tasks has learned from the workload if that has known records on the
// target and device key, as `measured` says; it counts as knowing the same workload elsewhere.
bool MayStartFrom(const v1::TransferModel& model, const WorkloadId& search, bool measured,
                  const TransferSamples* nearest);

}  // namespace heddle::scheduler
