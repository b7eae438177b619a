// A record store in memory: for simulations, and as the simple reference for the SQLite store.
#pragma once

#include <memory>

#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

std::unique_ptr<RecordStore> MakeMemoryRecordStore();

}  // namespace heddle::scheduler
