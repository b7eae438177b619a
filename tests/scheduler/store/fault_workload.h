// What a scheduler writes in its life, in small, and how a store is compared with what an observer
// was told.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// Every kind of change, in groups that are applied together. Some batches are refused, and so leave
// nothing behind. `state_bytes`: of a search state; large ones make SQLite move its log into the
// database while the workload runs.
std::vector<std::vector<Batch>> FaultWorkload(int jobs, size_t state_bytes);

// All that the store has, as text. Equal texts: equal stores.
std::string Dump(RecordStore* store);

// What a store has before the first group and after each of them, by the store in memory.
std::vector<std::string> StatesOf(const std::vector<std::vector<Batch>>& groups);

}  // namespace heddle::scheduler
