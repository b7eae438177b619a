#include "worker/confine/policy.h"

#include <glob.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker/confine/loader_folders.h"

namespace heddle::worker::confine {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
constexpr int64_t kFileBytesPerPart = 4;
constexpr int kOpenFiles = 128;
constexpr int kOpenFilesOnGpus = 1024;
constexpr int kThreads = 1024;
constexpr int kThreadsPerCore = 8;

// Variables that name files of libraries; their folders are read.
constexpr const char* kLibraryVariables[] = {"HEDDLE_NVRTC", "HEDDLE_CUDA_DRIVER", "HEDDLE_NVML"};

constexpr const char* kLibraries[] = {"/usr/lib",         "/lib",           "/lib64",
                                      "/usr/lib64",       "/usr/local/lib", "/etc/ld.so.cache",
                                      "/etc/alternatives"};
// /proc/self names the process itself, since the rules are looked up by it.
constexpr const char* kHostFacts[] = {"/proc/self",
                                      "/proc/stat",
                                      "/proc/cpuinfo",
                                      "/proc/meminfo",
                                      "/proc/loadavg",
                                      "/sys/devices/system/cpu",
                                      "/sys/devices/system/node",
                                      "/sys/devices/virtual/thermal",
                                      "/sys/class/thermal"};
constexpr const char* kDevices[] = {"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"};
constexpr const char* kGpuFacts[] = {
    "/proc/driver", "/proc/devices",  "/proc/modules", "/proc/sys/vm", "/sys/devices",
    "/sys/bus/pci", "/sys/class/drm", "/sys/module",   "/etc/nvidia",  "/usr/share/nvidia"};
constexpr char kGpuDevices[] = "/dev/nvidia*";
// The driver gives names to its threads, and does not start if it cannot. This lies in /proc/self, which
// the view shows before it.
constexpr char kOwnThreads[] = "/proc/self/task";
constexpr char kDriver[] = "libcuda.so.1";
// Where container hosts put the driver, whether or not the loader is told.
constexpr const char* kDriverFolders[] = {"/usr/local/nvidia/lib64", "/usr/local/nvidia/lib"};
constexpr char kLoaderConfiguration[] = "/etc/ld.so.conf";

// Such as HOME; empty if it is not set.
std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class Paths {
 public:
  void Add(const std::string& path, Access access) { rules_.push_back({path, access}); }
  // A folder of libraries that the environment names, and where it really is if it is a link: its own
  // links may say that. A path that is not absolute, or is the root, would give more than is meant.
  void AddLibraries(const std::string& path) {
    if (path.empty() || path.front() != '/') return;
    std::error_code error;
    const std::string real = std::filesystem::canonical(path, error).string();
    if (error || real == "/") return;
    Add(path, Access::kRead);
    if (real != path) Add(real, Access::kRead);
  }
  // The folder, and the one in which the driver's file really lies, if the folder has the driver.
  void AddDriver(const std::string& folder) {
    if (folder.empty() || folder.front() != '/') return;
    std::error_code error;
    const std::filesystem::path real =
        std::filesystem::canonical(std::filesystem::path(folder) / kDriver, error);
    if (error) return;
    AddLibraries(folder);
    AddLibraries(real.parent_path().string());
  }
  template <size_t kCount>
  void Add(const char* const (&paths)[kCount], Access access) {
    for (const char* path : paths) Add(std::string(path), access);
  }
  std::vector<PathRule> Take() { return std::move(rules_); }

 private:
  std::vector<PathRule> rules_;
};

bool Measures(v1::StageKind kind) { return kind == v1::STAGE_PROFILE || kind == v1::STAGE_COMPARE; }

void AddGpu(Paths* paths) {
  paths->Add(kGpuFacts, Access::kRead);
  paths->Add(std::string(kOwnThreads), Access::kWrite);
  glob_t found{};
  if (glob(kGpuDevices, 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) paths->Add(found.gl_pathv[i], Access::kDevice);
  }
  globfree(&found);
}

}  // namespace

std::string DeviceOf(const v1::StageStart& start) {
  return start.kind() == v1::STAGE_COMPARE ? start.compare().device() : start.profile().device();
}

Policy PolicyOf(const v1::StageStart& start, const std::string& folder) {
  Policy policy{.folder = folder, .paths = {}, .gpu = !DeviceOf(start).empty()};
  Paths paths;
  paths.Add(kLibraries, Access::kRead);
  paths.Add(kHostFacts, Access::kRead);
  paths.Add(kDevices, Access::kDevice);
  for (const absl::string_view library : absl::StrSplit(Variable("LD_LIBRARY_PATH"), ':')) {
    paths.AddLibraries(std::string(library));
    paths.AddDriver(std::string(library));
  }
  // Stages that compile ask the driver which CUDA it knows.
  for (const std::string& folder : LoaderFolders(kLoaderConfiguration)) paths.AddDriver(folder);
  for (const char* folder : kDriverFolders) paths.AddDriver(folder);
  for (const char* variable : kLibraryVariables)
    paths.AddLibraries(std::filesystem::path(Variable(variable)).parent_path().string());
  if (policy.gpu) AddGpu(&paths);
  if (!Measures(start.kind())) {
    paths.AddLibraries("/usr/local/cuda");
    paths.AddLibraries(Variable("CUDA_HOME"));
    if (const std::string python = Variable("VIRTUAL_ENV"); !python.empty())
      paths.AddLibraries(absl::StrCat(python, "/lib"));
    if (const std::string code = Variable("HEDDLE_CODE_CACHE"); !code.empty())
      paths.Add(code, Access::kPrivate);
  }
  paths.Add(absl::StrCat(folder, "/", kBlobFolder), Access::kRead);
  paths.Add(absl::StrCat(folder, "/", kPrivateFolder), Access::kPrivate);
  policy.paths = paths.Take();
  return policy;
}

int64_t MaxFileBytes(const v1::StageStart& start) {
  int64_t part_bytes = 0;
  for (const v1::BlobRef& blob : start.blobs()) part_bytes += blob.bytes();
  return std::max(kMaxFileBytes, kFileBytesPerPart * part_bytes);
}

int MaxOpenFiles(bool gpu) { return gpu ? kOpenFilesOnGpus : kOpenFiles; }

int MaxThreads(int cores) { return std::max(kThreads, kThreadsPerCore * cores); }

const std::vector<std::string>& PassedVariables() {
  static const auto* const names =
      new std::vector<std::string>{// Where libraries are.
                                   "LD_LIBRARY_PATH", "CUDA_HOME", "VIRTUAL_ENV", "HEDDLE_NVRTC",
                                   "HEDDLE_CUDA_DRIVER", "HEDDLE_NVML",
                                   // Which GPU is which.
                                   "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
                                   // For builds with sanitizers.
                                   "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS",
                                   // For tests whose driver is none (tests/runtime/fake_cuda.h).
                                   "HEDDLE_FAKE_CUDA_FAIL", "HEDDLE_FAKE_CUDA_VERSION"};
  return *names;
}

std::vector<std::string> StageVariables(const std::string& code_folder) {
  std::vector<std::string> variables = {
      // A relative path: the stage starts in its own folder, and its user may have no right to enter the folders above it.
      absl::StrCat("TMPDIR=", kPrivateFolder),
      // The driver's own cache would keep code of one job for others.
      "CUDA_CACHE_DISABLE=1"};
  if (!code_folder.empty()) variables.push_back(absl::StrCat("HEDDLE_CODE_CACHE=", code_folder));
  return variables;
}

}  // namespace heddle::worker::confine
