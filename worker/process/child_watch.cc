#include "worker/process/child_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace heddle::worker {
namespace {

// Most descriptors that are looked at; a child may have at most 1024 (confine/policy.h).
constexpr int kMaxDescriptors = 4096;
// A thread may end while it is looked at. Then another one is asked, so many times.
constexpr int kLooks = 3;
// ThreadSanitizer itself maps a file that it has removed.
#if defined(__SANITIZE_THREAD__)
constexpr bool kMapsUnseenFiles = true;
#else
constexpr bool kMapsUnseenFiles = false;
#endif

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

// What came of a look at a thread.
enum class Look { kSeen, kGone, kRefused };

Look WhyNot() { return errno == ENOENT || errno == ESRCH ? Look::kGone : Look::kRefused; }

// Calls `visit` with each line of a file of /proc, without its end, until it returns false.
template <typename Visit>
Look ForEachLine(const std::string& path, const Visit& visit) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "re"), fclose);
  if (file == nullptr) return WhyNot();
  char* line = nullptr;
  size_t size = 0;
  for (ssize_t length; (length = getline(&line, &size, file.get())) > 0;) {
    if (line[length - 1] == '\n') --length;
    if (!visit(absl::string_view(line, static_cast<size_t>(length)))) break;
  }
  std::free(line);
  return Look::kSeen;
}

// Adds up the resident memory. kGone: the thread has none any more.
Look AddMemory(pid_t thread, int64_t* bytes) {
  bool any = false;
  const Look look =
      ForEachLine(absl::StrCat("/proc/", thread, "/status"), [&](absl::string_view line) {
        // Shared memory counts, since it is in no file on disk.
        for (const absl::string_view field : {"RssAnon:", "RssShmem:"}) {
          if (line.substr(0, field.size()) != field) continue;
          *bytes += std::atoll(line.data() + field.size()) << 10;
          any = true;
        }
        return true;
      });
  return look == Look::kSeen && !any ? Look::kGone : look;
}

using FileId = std::pair<dev_t, ino_t>;

// The files without a name that a thread holds.
struct Unnamed {
  int64_t bytes = 0;
  std::set<FileId> seen;    // each file counts once
  std::set<FileId> unseen;  // mapped ones whose size is not told

  void Add(const struct stat& info) {
    constexpr int64_t kBlock = 512;
    if (S_ISREG(info.st_mode) && info.st_nlink == 0 &&
        seen.insert({info.st_dev, info.st_ino}).second)
      bytes += info.st_blocks * kBlock;
  }
};

Look AddOpen(pid_t thread, Unnamed* files) {
  DIR* folder = opendir(absl::StrCat("/proc/", thread, "/fd").c_str());
  if (folder == nullptr) return WhyNot();
  Look look = Look::kSeen;
  int looked_at = 0;
  ForEachNumber(folder, [&](int descriptor) {
    struct stat info;
    if (fstatat(dirfd(folder), absl::StrCat(descriptor).c_str(), &info, 0) == 0) {
      files->Add(info);
    } else if (WhyNot() == Look::kRefused) {
      look = Look::kRefused;
    }
    return look == Look::kSeen && ++looked_at < kMaxDescriptors;
  });
  closedir(folder);
  return look;
}

// Lines are "START-END RIGHTS OFFSET MAJOR:MINOR INODE PATH (deleted)". Files that have names are
// counted where they lie.
Look AddMapped(pid_t thread, Unnamed* files) {
  constexpr absl::string_view kNoName = " (deleted)";
  return ForEachLine(absl::StrCat("/proc/", thread, "/maps"), [&](absl::string_view line) {
    if (line.size() < kNoName.size() || line.substr(line.size() - kNoName.size()) != kNoName)
      return true;
    unsigned long start = 0, end = 0, inode = 0;
    unsigned major_number = 0, minor_number = 0;
    if (std::sscanf(line.data(), "%lx-%lx %*s %*x %x:%x %lu", &start, &end, &major_number,
                    &minor_number, &inode) != 5)
      return true;
    const FileId id{makedev(major_number, minor_number), inode};
    if (files->seen.count(id) > 0) return true;
    char place[64];
    std::snprintf(place, sizeof(place), "/proc/%d/map_files/%lx-%lx", thread, start, end);
    struct stat info;
    if (stat(place, &info) == 0) {
      files->Add(info);
    } else {
      files->unseen.insert(id);
      files->bytes += static_cast<int64_t>(end - start);
    }
    return true;
  });
}

Look AddUnnamed(pid_t thread, Unnamed* files) {
  const Look open = AddOpen(thread, files);
  return open == Look::kSeen ? AddMapped(thread, files) : open;
}

Look WatchThread(pid_t thread, BytesInUse* use) {
  *use = {};
  if (const Look look = AddMemory(thread, &use->memory); look != Look::kSeen) return look;
  Unnamed files;
  if (const Look look = AddUnnamed(thread, &files); look != Look::kSeen) {
    // What a thread without memory has left belongs to root, so it may not be looked at.
    int64_t memory = 0;
    return AddMemory(thread, &memory) == Look::kGone ? Look::kGone : look;
  }
  use->unnamed_files = files.bytes;
  if (files.unseen.empty() || kMapsUnseenFiles) return Look::kSeen;
  // A program or a library that an upgrade has replaced is no secret: this process runs it, too, and no
  // stage can make a file of these.
  Unnamed ours;
  AddMapped(getpid(), &ours);
  // A file may have been opened, or unmapped and closed, in the midst of the look. What is unseen
  // twice has no descriptor.
  Unnamed again;
  if (const Look look = AddUnnamed(thread, &again); look != Look::kSeen) return look;
  use->unseen_file = std::any_of(again.unseen.begin(), again.unseen.end(), [&](const FileId& id) {
    return files.unseen.count(id) > 0 && ours.unseen.count(id) == 0;
  });
  return Look::kSeen;
}

}  // namespace

std::optional<ThreadsInUse> WatchThreads(pid_t pid, const cpu_set_t& allowed, int limit) {
  ThreadsInUse result;
  DIR* folder = opendir(absl::StrCat("/proc/", pid, "/task").c_str());
  if (folder == nullptr) return std::nullopt;
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

std::optional<BytesInUse> WatchBytes(pid_t pid) {
  BytesInUse use;
  // Any thread will do that still has memory: the first one may have ended before the others.
  for (int look = 0; look < kLooks; ++look) {
    DIR* folder = opendir(absl::StrCat("/proc/", pid, "/task").c_str());
    if (folder == nullptr) return std::nullopt;
    Look seen = Look::kGone;
    bool any = false;
    ForEachNumber(folder, [&](int thread) {
      seen = WatchThread(thread, &use);
      any |= use.memory > 0;
      return seen == Look::kGone;
    });
    closedir(folder);
    if (seen == Look::kSeen) return use;
    if (seen == Look::kRefused) return std::nullopt;
    if (!any) return BytesInUse();
  }
  return std::nullopt;
}

}  // namespace heddle::worker
