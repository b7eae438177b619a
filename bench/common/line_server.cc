#include "bench/common/line_server.h"

#include <sched.h>

#include <iostream>

namespace heddle::bench {
namespace {

using nlohmann::json;

json Answer(const std::map<std::string, Handler>& handlers, const std::string& line) {
  const json request = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!request.is_object()) return {{"error", "not a JSON object"}};
  try {
    const auto handler = handlers.find(request.at("do"));
    if (handler == handlers.end()) return {{"error", "no such request"}};
    const absl::StatusOr<json> answer = handler->second(request);
    if (answer.ok()) return *answer;
    return {{"error", std::string(answer.status().message())}};
  } catch (const std::exception& wrong_field_or_library_error) {
    return {{"error", wrong_field_or_library_error.what()}};
  }
}

}  // namespace

void ServeLines(const std::map<std::string, Handler>& handlers) {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << Answer(handlers, line).dump() << std::endl;
  }
}

std::vector<int> AllowedCpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void ConfineTo(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof(set), &set);  // a core outside the cpuset: unpinned
}

runtime::TimingOptions RoundTiming() {
  runtime::TimingOptions timing;
  timing.repeats = 6;
  timing.min_repeat = absl::Milliseconds(10);
  return timing;
}

json RoundAnswer(const runtime::Timing& timing) {
  const auto& samples = timing.samples_ns;
  const size_t first = samples.size() > 1 ? 1 : 0;
  return {{"samples_ns", std::vector<double>(samples.begin() + first, samples.end())}};
}

}  // namespace heddle::bench
