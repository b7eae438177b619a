// NVIDIA's management library without a GPU, for tests: loaded in place of libnvidia-ml.so.1
// (HEDDLE_NVML). One GPU at 1500 and 2600 MHz, 61 degrees, 350 watts, held down by its power cap.
// Each lock of the clock and each end of one is a line of the file that HEDDLE_FAKE_NVML_LOG names.
#include <cstdio>
#include <cstdlib>

namespace {

int device = 0;

void Write(const char* line) {
  const char* name = std::getenv("HEDDLE_FAKE_NVML_LOG");
  std::FILE* file = name != nullptr ? std::fopen(name, "a") : nullptr;
  if (file == nullptr) return;
  std::fprintf(file, "%s\n", line);
  std::fclose(file);
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** found) {
  *found = &device;
  return 0;
}
int nvmlDeviceGetClockInfo(void*, int which, unsigned* mhz) {
  *mhz = which == 1 ? 1500 : 2600;
  return 0;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  *celsius = 61;
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 350000;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = 0x4;
  return 0;
}
int nvmlDeviceSetGpuLockedClocks(void*, unsigned low, unsigned high) {
  char line[64];
  std::snprintf(line, sizeof line, "lock %u %u", low, high);
  Write(line);
  return 0;
}
int nvmlDeviceResetGpuLockedClocks(void*) {
  Write("unlock");
  return 0;
}
const char* nvmlErrorString(int) { return "made up by a test"; }

}  // extern "C"
