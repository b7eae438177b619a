// The one small task whose searches the target search_state.cc restores, and for which write_seeds.cc makes states.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cost_model/model/model.h"
#include "cost_model/search.h"

namespace heddle::fuzz {

// A new search, always of the same seed. `strategy` is one of base/vocabulary/strategies.h.
std::unique_ptr<cost_model::Search> MakeFuzzSearch(const std::string& strategy);

// Two transfer samples.
std::vector<cost_model::Sample> FuzzSamples();

}  // namespace heddle::fuzz
