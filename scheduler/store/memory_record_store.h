// The record store in memory: for simulations, and as the plain statement of what the SQLite store
// must do.
#pragma once

#include <memory>

#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

std::unique_ptr<RecordStore> MakeMemoryRecordStore();

}  // namespace heddle::scheduler
