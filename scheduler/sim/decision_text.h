// Decisions as one canonical line each, for fingerprints of what a dispatcher decided.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/core/dispatcher.h"

namespace heddle::sim {

// Durable changes first, then orders, each kind in the order it was decided in; one line a
// decision, with every field.
std::string ToText(const std::vector<scheduler::Decision>& decisions);

// FNV-1a of `text`, begun with `hash`: the same in every process and on every machine.
uint64_t HashText(std::string_view text, uint64_t hash);

}  // namespace heddle::sim
