// What a search leaves to searches of other tasks: a bounded number of its samples, sealed with the
// version of the features. A service keeps the latest of each task, so that a new task's first
// batch comes from a model of what the device's other tasks taught.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cost_model/model/model.h"
#include "cost_model/search.h"
#include "cost_model/search/candidate_space.h"

namespace heddle::cost_model {

// Well under 64 KiB.
inline constexpr size_t kMaxTransferSamples = 128;

// Of samples of one task with features of the whole table and scores in steps of kScoreLevels, in
// order of arrival: all of them, or so many spread evenly over them. Empty of fewer than two.
std::string PackTransferSamples(const std::vector<Sample>& samples);

// Of what PackTransferSamples makes; JoinTransferSamples takes no other.
int TransferSamplesVersion();

// One group of samples for each, from 1 on, with its weight. What is damaged, has no proper weight
// or features of another version is left out.
OtherTasks JoinTransferSamples(std::span<const RelatedSamples> transfer_samples);

}  // namespace heddle::cost_model
