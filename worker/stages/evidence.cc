#include "worker/stages/evidence.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace heddle::worker {
namespace {

double ReadNumber(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  file >> value;
  return file.fail() ? 0 : value;
}

// /proc/cpuinfo has blocks of "key : value" lines, one block per processor.
double MhzFromCpuInfo(int core) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  bool mine = false;
  while (std::getline(file, line)) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (parts.size() != 2) continue;
    if (absl::StartsWith(parts[0], "processor")) {
      int number = -1;
      mine = absl::SimpleAtoi(parts[1], &number) && number == core;
    }
    double mhz = 0;
    if (mine && absl::StartsWith(parts[0], "cpu MHz") && absl::SimpleAtod(parts[1], &mhz))
      return mhz;
  }
  return 0;
}

double CpuMhz(int core) {
  const double khz =
      ReadNumber(absl::StrCat("/sys/devices/system/cpu/cpu", core, "/cpufreq/scaling_cur_freq"));
  return khz > 0 ? khz / 1000 : MhzFromCpuInfo(core);
}

double HottestCelsius() {
  double hottest = 0;
  std::error_code error;
  for (const auto& zone : std::filesystem::directory_iterator("/sys/class/thermal", error)) {
    if (!absl::StartsWith(zone.path().filename().string(), "thermal_zone")) continue;
    hottest = std::max(hottest, ReadNumber(zone.path().string() + "/temp") / 1000);
  }
  return hottest;
}

}  // namespace

v1::Evidence CollectEvidence(const std::vector<int>& cores) {
  v1::Evidence evidence;
  evidence.set_toolchain(HEDDLE_TOOLCHAIN);
  if (!cores.empty()) evidence.set_cpu_mhz(CpuMhz(cores.front()));
  evidence.set_temperature_celsius(HottestCelsius());
  double load = 0;
  if (getloadavg(&load, 1) == 1) evidence.set_load_average(load);
  return evidence;
}

}  // namespace heddle::worker
