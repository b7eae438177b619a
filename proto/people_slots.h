// Slots that people hold, so that nothing of a service runs there: `heddle device` and the scheduler's
// page take and give back the same ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/tracker.pb.h"

namespace heddle {

// How the holders of leases begin that are people (AcquireRequest.holder): "person:ann@host".
inline constexpr std::string_view kPersonHolder = "person:";

// The slots of the worker that still have to be held so that it is drained, or only `slot` if that is not
// empty. Not among them: what a person holds, what a person's lease keeps blocked, and what gets no lease
// anyway (quarantined, draining). A worker that does not have `slot` gives none.
std::vector<std::string> SlotsToDrain(const v1::WorkerStatus& worker, const std::string& slot);

// The slots of the worker that people hold, or only `slot` if that is not empty.
std::vector<v1::SlotStatus> SlotsOfPeople(const v1::WorkerStatus& worker, const std::string& slot);

}  // namespace heddle
