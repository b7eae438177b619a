// The protocol between bench/run.sh and the sides of a comparison. A side is a long-lived process.
// It answers each JSON object on a line of stdin with one on stdout, {"error": ".."} on failure.
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

// The field "do" of a request names its handler. A missing or wrong field gives an error answer.
// Returns when stdin ends.
void ServeLines(const std::map<std::string, Handler>& handlers);

// The cores that the calling thread may use; empty if unknown.
std::vector<int> AllowedCpus();
// Unless empty, pins the calling thread, and everything it starts later, to `cpus`.
void ConfineTo(const std::vector<int>& cpus);

// One round of a side on warm caches: samples of at least 10 ms each. The first is the warm-up.
runtime::TimingOptions RoundTiming();
// The samples of a round without the first, as {"samples_ns": [..]}.
nlohmann::json RoundAnswer(const runtime::Timing& timing);

}  // namespace heddle::bench
