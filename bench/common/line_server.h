// How bench/run.sh talks to the sides of a comparison: each is a long-lived process that answers
// one JSON object per line of stdin with one on stdout, {"error": ".."} when it cannot.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/timing.h"

namespace heddle::bench {

using Handler = std::function<absl::StatusOr<nlohmann::json>(const nlohmann::json& request)>;

// The field "do" of a request names its handler; a missing or wrong field is an error answer.
// Returns when stdin ends.
void ServeLines(const std::map<std::string, Handler>& handlers);

// The cores the calling thread may use; none if they cannot be told.
std::vector<int> AllowedCpus();
// Pins the calling thread to `cpus` (and with it what it starts later), unless empty.
void ConfineTo(const std::vector<int>& cpus);

// One round of a side, warm: samples of at least 10 ms each, of which the first warms up.
runtime::TimingOptions RoundTiming();
// The samples of a round without the first, as {"samples_ns": [..]}.
nlohmann::json RoundAnswer(const runtime::Timing& timing);

}  // namespace heddle::bench
