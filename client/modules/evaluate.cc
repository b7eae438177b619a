#include "client/modules/evaluate.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "client/views/terminal.h"

namespace heddle::client {
namespace {

double MedianOf(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

double ModuleTiming::Median() const { return MedianOf(samples_ns); }

double ModuleTiming::Percentile(double p) const {
  if (samples_ns.empty()) return 0;
  std::vector<double> sorted = samples_ns;
  std::sort(sorted.begin(), sorted.end());
  const double rank = p / 100 * static_cast<double>(sorted.size());
  const size_t index = static_cast<size_t>(std::max(1.0, std::ceil(rank))) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

std::vector<ModuleTiming> TimeInTurns(const std::vector<runtime::Executor*>& executors,
                                      int rounds) {
  std::vector<ModuleTiming> timings(executors.size());
  std::vector<std::vector<std::vector<double>>> calls(executors.size());  // [module][call][round]
  for (size_t m = 0; m < executors.size(); ++m) {
    calls[m].resize(executors[m]->manifest().calls.size());
    executors[m]->Run().IgnoreError();  // status() keeps it
  }
  runtime::TimingOptions options;
  options.repeats = 1;
  options.warmup_calls = 0;
  options.min_repeat = absl::Milliseconds(50);
  for (int round = 0; round < rounds && !Interrupted(); ++round) {
    for (size_t m = 0; m < executors.size(); ++m) {
      const runtime::Timing timing =
          runtime::TimeCalls([&] { executors[m]->Run().IgnoreError(); }, options);
      timings[m].samples_ns.push_back(timing.samples_ns.front());
      const std::vector<double> profile = executors[m]->ProfileNs(1);
      for (size_t c = 0; c < profile.size(); ++c) calls[m][c].push_back(profile[c]);
    }
  }
  for (size_t m = 0; m < executors.size(); ++m) {
    for (const std::vector<double>& samples : calls[m])
      timings[m].call_ns.push_back(MedianOf(samples));
  }
  return timings;
}

std::vector<TaskTiming> TimeByTask(const std::vector<runtime::Executor*>& executors,
                                   const std::vector<ModuleTiming>& timings) {
  std::vector<TaskTiming> tasks;
  std::map<std::string, size_t> index;
  for (size_t m = 0; m < executors.size(); ++m) {
    const runtime::Manifest& manifest = executors[m]->manifest();
    std::map<std::string, int> uses;
    for (size_t c = 0; c < manifest.calls.size(); ++c) {
      const runtime::KernelSpec& kernel = manifest.kernels[manifest.calls[c].kernel];
      const auto [place, fresh] = index.try_emplace(kernel.task, tasks.size());
      if (fresh) {
        tasks.push_back(
            {kernel.task, kernel.label, 0, kernel.flops, std::vector<double>(executors.size(), 0)});
      }
      tasks[place->second].ns[m] += timings[m].call_ns[c];
      ++uses[kernel.task];
    }
    for (const auto& [task, count] : uses) {
      TaskTiming& timing = tasks[index[task]];
      timing.uses = std::max(timing.uses, count);
      timing.ns[m] /= count;
    }
  }
  return tasks;
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0 && line.find(':') != std::string::npos)
      return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

}  // namespace heddle::client
