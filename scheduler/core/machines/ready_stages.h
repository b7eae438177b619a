// Which stages of a job could start now if there were slots for them. A pure function of the job's
// state.
#pragma once

#include <map>
#include <vector>

#include "scheduler/core/job_state.h"
#include "scheduler/core/machines/effects.h"
#include "scheduler/core/machines/fetches.h"
#include "scheduler/core/ready_index.h"

namespace heddle::scheduler {

// In the job's own order: modules that users wait for, then profile, build, update, propose, each
// in the order the tasks began their rounds. The job is woken when a backoff ends.
std::vector<ReadyIndex::Item> ReadyStages(const Job& job, const std::map<FetchId, Fetch>& fetches,
                                          Effects* effects);

}  // namespace heddle::scheduler
