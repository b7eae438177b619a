// What a process of this machine uses, as Linux tells it. For benchmarks and load tests.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace heddle::bench {

// A size in /proc/PID/status in MiB: "VmRSS" is the memory that is resident, "VmHWM" its largest size so far. 0: the process
// has ended.
inline double MemoryMib(pid_t pid, const std::string& field) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::atof(line.c_str() + field.size() + 1) / 1024;
  }
  return 0;
}

// From now on "VmHWM" is the largest size since this moment.
inline void ForgetPeak(pid_t pid) {
  std::ofstream("/proc/" + std::to_string(pid) + "/clear_refs") << "5";
}

// CPU time since the process began, in seconds, of all its threads. 0: the process has ended.
inline double CpuSeconds(pid_t pid) {
  clockid_t clock = 0;
  timespec time = {};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace heddle::bench
