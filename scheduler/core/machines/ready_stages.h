// The stages of a job that could start now if there were slots for them. A pure function of the
// job's state.
#pragma once

#include <map>
#include <vector>

#include "scheduler/core/job_state.h"
#include "scheduler/core/machines/artifact_room.h"
#include "scheduler/core/machines/effects.h"
#include "scheduler/core/machines/fetches.h"
#include "scheduler/core/ready_index.h"

namespace heddle::scheduler {

// `fetches` are the job's. In the job's own order: first modules that users wait for, then profile, build, update and
// propose stages. Stages of one kind are in the order in which their tasks began their rounds. If a
// stage backs off, the job is woken when the backoff ends. `room` says what may be built.
std::vector<ReadyIndex::Item> ReadyStages(const Job& job, const std::map<FetchId, Fetch>& fetches,
                                          BuildRoom room, Effects* effects);

}  // namespace heddle::scheduler
