#include "worker/process/child_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace heddle::worker {
namespace {

// Most descriptors that are looked at; a child may have at most 1024 (confine/policy.h).
constexpr int kMaxDescriptors = 4096;

// Calls `visit` with each name in the folder that is a number, until it returns false.
template <typename Visit>
void ForEachNumber(DIR* folder, const Visit& visit) {
  while (const dirent* entry = readdir(folder)) {
    char* end = nullptr;
    const long number = std::strtol(entry->d_name, &end, 10);
    if (end == entry->d_name || *end != '\0') continue;
    if (!visit(static_cast<int>(number))) return;
  }
}

bool IsSubset(const cpu_set_t& some, const cpu_set_t& all) {
  cpu_set_t both;
  CPU_AND(&both, &some, &all);
  return CPU_EQUAL(&both, &some);
}

}  // namespace

ThreadsInUse WatchThreads(pid_t pid, const cpu_set_t& allowed, int limit) {
  ThreadsInUse result;
  DIR* folder = opendir(absl::StrCat("/proc/", pid, "/task").c_str());
  if (folder == nullptr) return result;
  ForEachNumber(folder, [&](int thread) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    // A thread that has ended meanwhile has no cores.
    if (sched_getaffinity(thread, sizeof(cores), &cores) == 0 && !IsSubset(cores, allowed))
      result.elsewhere = true;
    return ++result.count <= limit;
  });
  closedir(folder);
  return result;
}

int64_t UnnamedFileBytes(pid_t pid) {
  DIR* folder = opendir(absl::StrCat("/proc/", pid, "/fd").c_str());
  if (folder == nullptr) return 0;
  int64_t bytes = 0;
  int looked_at = 0;
  std::set<std::pair<dev_t, ino_t>> seen;  // descriptors of the same file count once
  ForEachNumber(folder, [&](int descriptor) {
    struct stat info;
    if (fstatat(dirfd(folder), absl::StrCat(descriptor).c_str(), &info, 0) == 0 &&
        S_ISREG(info.st_mode) && info.st_nlink == 0 &&
        seen.insert({info.st_dev, info.st_ino}).second) {
      constexpr int64_t kBlock = 512;
      bytes += info.st_blocks * kBlock;
    }
    return ++looked_at < kMaxDescriptors;
  });
  closedir(folder);
  return bytes;
}

}  // namespace heddle::worker
