// What the database knows of the tasks of a job, as the dispatcher is told.
#pragma once

#include <optional>
#include <string>

#include "absl/types/span.h"
#include "scheduler/core/events.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// Begins the warning of a job whose records could not be read.
inline constexpr char kUnreadRecords[] = "what is on record could not be read: ";

// The task before anything is known of it.
TaskPlan PlanOf(const v1::TaskInfo& task);

// Adds to each task what the database has of it.
absl::Status AddKnown(RecordStore* store, const std::string& target, const std::string& device_key,
                      absl::Span<TaskPlan> tasks);

// Plans the tasks that an import found. `device_key` is that of the device the job will measure on;
// nullopt: no such device is here. Then the job is planned for the device that has the most records
// if those suffice, else it waits for whichever device comes. What could not be read is a warning.
void PlanImport(RecordStore* store, const JobParams& params,
                const std::optional<std::string>& device_key, StageFinished* end);

}  // namespace heddle::scheduler
