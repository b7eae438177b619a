// Decisions as canonical text, one line each, for fingerprints of what a dispatcher decided.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "scheduler/core/dispatcher.h"

namespace heddle::sim {

// Changes first, then orders; one line each, with every field.
std::string ToText(const scheduler::Decisions& decisions);

// FNV-1a of `text`, starting from `hash`. The result is the same in every process and on every
// machine.
uint64_t HashText(std::string_view text, uint64_t hash);

}  // namespace heddle::sim
