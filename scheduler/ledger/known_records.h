// Asks the database what it knows of the tasks of a job, for the dispatcher.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/core/events.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// The device key that the job measures on: the pinned one, else that of a slot that suits, usable
// ones first. nullopt if there is none.
std::optional<std::string> DeviceKeyFor(const Dispatcher& dispatcher, JobId job);

// How the warning of a job whose records could not be read begins.
inline constexpr char kUnreadRecords[] = "what is on record could not be read: ";

// Appends what the database knows of each task. After an error that of the remaining tasks is
// missing.
absl::Status FindKnown(RecordStore* store, absl::Span<const WorkloadId> tasks,
                       std::vector<KnownRecords>* known);

// Adds what is known of the tasks to the end of an import.
//
// `device_key` is that of the device the job will measure on; nullopt: there is no such device yet.
// Without one, the job is pinned to the device key with the most records if these suffice;
// otherwise it waits for whichever device comes. A failure to read becomes a warning.
void PlanImport(RecordStore* store, const JobParams& params,
                const std::optional<std::string>& device_key, StageFinished* end);

// Adds what is known of the plan's tasks to the end of a plan stage.
void PlanPlanned(RecordStore* store, const JobParams& params, StageFinished* end);

}  // namespace heddle::scheduler
