#include "worker/process/stage_cgroup.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"

namespace heddle::worker {
namespace {

constexpr absl::string_view kStages = "heddle-stage-";  // names of groups: this, process, number
constexpr absl::string_view kWorker = "heddle-supervisor";  // of a worker that limits threads
// Processes that were killed are gone at once, unless they hang in a driver.
constexpr absl::Duration kEndPatience = absl::Seconds(2);
// Another worker that starts in the same group leaves it within this time; a stage waits no longer for that.
constexpr absl::Duration kStartOfOther = absl::Milliseconds(200);
constexpr int kMostLeft = 100;  // groups of an earlier process, at most, that are passed over

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Writes the whole text by one call, as the kernel wants it. The error's line names the file, and errno says the same.
absl::Status WriteText(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool written =
      file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (file >= 0) close(file);
  if (written) return absl::OkStatus();
  absl::Status status = absl::UnavailableError(
      absl::StrCat("cannot write '", text, "' to ", path, ": ", std::strerror(error)));
  errno = error;
  return status;
}

bool HasWord(const std::string& path, absl::string_view word) {
  for (const absl::string_view one :
       absl::StrSplit(ReadText(path), absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    if (one == word) return true;
  }
  return false;
}

// The groups of stages in the folder, of all workers.
std::vector<std::filesystem::path> StagesIn(const std::string& folder) {
  std::vector<std::filesystem::path> stages;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (absl::StartsWith(entry.path().filename().string(), kStages)) stages.push_back(entry.path());
  }
  return stages;
}

// The processes in the group itself, by their numbers.
std::vector<std::string> ProcessesOf(const std::string& folder) {
  return absl::StrSplit(ReadText(folder + "/cgroup.procs"), '\n', absl::SkipEmpty());
}

// The limits of this process's stages, by their files. Set only after LimitThreads has turned them on.
struct OwnLimits {
  absl::Mutex mutex;
  bool wanted ABSL_GUARDED_BY(mutex) = false;
  std::map<std::string, std::string> of_stages ABSL_GUARDED_BY(mutex);
};
OwnLimits& Own() {
  static auto* const own = new OwnLimits;
  return *own;
}

// Removes groups of workers that have ended, and what has outlived them.
void RemoveLeft(const std::string& place) {
  for (const std::filesystem::path& group : StagesIn(place)) {
    if (!IsLeft(group.filename().string())) continue;
    (void)WriteText(group.string() + "/cgroup.kill", "1");
    // A group is empty a moment after its end; if not, the next start removes it.
    for (int k = 0; rmdir(group.c_str()) != 0 && errno == EBUSY && k < 100; ++k)
      absl::SleepFor(absl::Milliseconds(1));
  }
}

}  // namespace

bool IsGiven(const std::string& folder) {
  if (access((folder + "/init.scope").c_str(), F_OK) == 0) return false;
  for (const char* name : {"trusted.delegate", "user.delegate"}) {
    char value = 0;
    if (getxattr(folder.c_str(), name, &value, 1) == 1 && value == '1') return true;
  }
  return false;
}

bool IsLeft(absl::string_view group) {
  pid_t worker = 0;
  return absl::ConsumePrefix(&group, kStages) &&
         absl::SimpleAtoi(group.substr(0, group.find('-')), &worker) &&
         (worker == getpid() || (kill(worker, 0) != 0 && errno == ESRCH));
}

std::map<std::string, std::string> ThreadLimits(const std::string& folder) {
  std::map<std::string, std::string> limits;
  for (const std::filesystem::path& group : StagesIn(folder)) {
    const std::string file = group.string() + "/pids.max";
    std::string limit = ReadText(file);
    absl::StripTrailingAsciiWhitespace(&limit);
    if (!limit.empty() && limit != "max") limits[file] = limit;
  }
  return limits;
}

void LimitAgain(const std::map<std::string, std::string>& limits) {
  // A stage may have ended meanwhile.
  for (const auto& [file, limit] : limits) (void)WriteText(file, limit);
}

void RestoreLimits(const std::string& folder, const std::map<std::string, std::string>& limits) {
  const std::string turned_on = folder + "/cgroup.subtree_control";
  if (!HasWord(turned_on, "pids")) {
    // The kernel would turn them on all the same, and then no group in the folder would take a process.
    if (!ProcessesOf(folder).empty() || !WriteText(turned_on, "+pids").ok()) return;
  }
  for (const auto& [file, limit] : limits) {
    if (HasWord(file, "max")) (void)WriteText(file, limit);
  }
}

OwnCgroup FindOwnCgroup(absl::string_view cgroup, absl::string_view mountinfo) {
  OwnCgroup own;
  absl::string_view path;
  for (absl::string_view line : absl::StrSplit(cgroup, '\n')) {
    if (absl::ConsumePrefix(&line, "0::")) path = line;  // those of cgroup v1 have other numbers
  }
  if (path.empty()) return own;
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    // "ID PARENT MAJOR:MINOR ROOT FOLDER OPTIONS [TAGS ..] - cgroup2 SOURCE OPTIONS"
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    if (words.size() < 5 || !absl::StrContains(line, " - cgroup2 ")) continue;
    // The mount may show a part of the tree only.
    absl::string_view rest = path;
    if (words[3] != "/" && !absl::ConsumePrefix(&rest, words[3])) continue;
    absl::ConsumeSuffix(&rest, "/");
    if (!rest.empty() && rest.front() != '/') continue;
    own.folder = absl::StrCat(words[4], rest);
    own.topmost = rest.empty();
  }
  return own;
}

absl::StatusOr<std::string> PlaceOfGroups(
    const OwnCgroup& own, const std::function<bool(const std::string& folder)>& given) {
  if (own.folder.empty())
    return absl::UnavailableError("no cgroup v2 is mounted, or the worker is in none");
  const std::string above = std::filesystem::path(own.folder).parent_path();
  if (absl::EndsWith(own.folder, absl::StrCat("/", kWorker))) return above;
  if (own.topmost || given(own.folder)) return own.folder;
  if (given(above)) return above;  // as with systemd's DelegateSubgroup=
  return absl::UnavailableError(
      absl::StrCat("the group ", own.folder, " was not given to the worker"));
}

bool CanLimitThreads(const std::string& folder, pid_t process) {
  if (!HasWord(folder + "/cgroup.controllers", "pids")) return false;
  // Only the topmost group of the machine has no type. It is not the worker's to change.
  if (access((folder + "/cgroup.type").c_str(), F_OK) != 0) return false;
  // With a process in it, such as the scheduler of an embedded worker, its groups could have none.
  for (const std::string& inside : ProcessesOf(folder)) {
    if (inside != absl::StrCat(process)) return false;
  }
  return true;
}

absl::StatusOr<std::string> StageCgroup::Place() {
  return PlaceOfGroups(
      FindOwnCgroup(ReadText("/proc/self/cgroup"), ReadText("/proc/self/mountinfo")), IsGiven);
}

absl::StatusOr<std::unique_ptr<StageCgroup>> StageCgroup::Make(int max_threads) {
  static std::atomic<int64_t> number{0};
  HEDDLE_ASSIGN_OR_RETURN(const std::string place, Place());
  {
    absl::MutexLock lock(&Own().mutex);
    if (Own().wanted) RestoreLimits(place, Own().of_stages);
  }
  std::string folder;
  int made = -1;
  // An earlier process with this number may have left some.
  for (int k = 0; made != 0 && k < kMostLeft; ++k) {
    folder = absl::StrCat(place, "/", kStages, getpid(), "-", ++number);
    made = mkdir(folder.c_str(), 0755);
    if (made != 0 && errno != EEXIST) break;
  }
  if (made != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot make a group in ", place, ": ", std::strerror(errno)));
  }
  const std::string limit = folder + "/pids.max";
  std::unique_ptr<StageCgroup> group(new StageCgroup(folder, access(limit.c_str(), F_OK) == 0));
  if (access((folder + "/cgroup.kill").c_str(), F_OK) != 0)
    return absl::UnavailableError("the kernel cannot end a group at once; it can from 5.14 on");
  if (!group->limits_threads()) return group;
  HEDDLE_RETURN_IF_ERROR(WriteText(limit, absl::StrCat(max_threads)));
  absl::MutexLock lock(&Own().mutex);
  Own().of_stages[limit] = absl::StrCat(max_threads);
  return group;
}

absl::Status StageCgroup::Add(pid_t pid) {
  const absl::Time give_up = MonotonicNow() + kStartOfOther;
  while (true) {
    absl::Status added = WriteText(folder_ + "/cgroup.procs", absl::StrCat(pid));
    // Until another worker has moved out of the group above, groups in it take no processes.
    if (added.ok() || errno != EOPNOTSUPP || MonotonicNow() >= give_up) return added;
    absl::SleepFor(absl::Milliseconds(5));
  }
}

void StageCgroup::Kill() const { (void)WriteText(folder_ + "/cgroup.kill", "1"); }

StageCgroup::~StageCgroup() {
  {
    absl::MutexLock lock(&Own().mutex);
    Own().of_stages.erase(folder_ + "/pids.max");
  }
  Kill();
  const absl::Time give_up = MonotonicNow() + kEndPatience;
  while (rmdir(folder_.c_str()) != 0 && errno == EBUSY && MonotonicNow() < give_up)
    absl::SleepFor(absl::Milliseconds(1));
}

absl::StatusOr<std::string> StageCgroup::Probe() {
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<StageCgroup> group, Make(1));
  HEDDLE_ASSIGN_OR_RETURN(const std::string place, Place());
  const pid_t pid = fork();
  if (pid < 0) return absl::UnavailableError("cannot start a process");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (true) pause();
  }
  const absl::Status added = group->Add(pid);
  if (!added.ok()) kill(pid, SIGKILL);
  group->Kill();
  waitpid(pid, nullptr, 0);
  HEDDLE_RETURN_IF_ERROR(added);
  const bool limits = group->limits_threads() || CanLimitThreads(place, getpid());
  return std::string(limits ? "whatever a stage starts ends with it, and the kernel counts threads"
                            : "whatever a stage starts ends with it; the kernel counts no threads");
}

void StageCgroup::LimitThreads() {
  const absl::StatusOr<std::string> place = Place();
  if (!place.ok()) return;
  RemoveLeft(*place);
  if (!CanLimitThreads(*place, getpid())) return;
  absl::MutexLock lock(&Own().mutex);
  const std::string turned_on = *place + "/cgroup.subtree_control";
  const bool is_on = HasWord(turned_on, "pids");
  if (ProcessesOf(*place).empty()) {  // this process is in a group below
    Own().wanted = is_on || WriteText(turned_on, "+pids").ok();
    return;
  }
  // Where an earlier worker has turned the limit on, this process was put into the group all the same. While both is so,
  // groups in it can have no processes.
  const std::map<std::string, std::string> limits =
      ThreadLimits(*place);  // of that worker's stages
  if (is_on) (void)WriteText(turned_on, "-pids");
  const std::string own = absl::StrCat(*place, "/", kWorker);
  mkdir(own.c_str(), 0755);
  const std::string self = absl::StrCat(getpid());
  const bool moved = WriteText(own + "/cgroup.procs", self).ok();
  if (moved && ProcessesOf(*place).empty() && WriteText(turned_on, "+pids").ok()) {
    LimitAgain(limits);
    Own().wanted = true;
    return;
  }
  if (moved) (void)WriteText(*place + "/cgroup.procs", self);
  rmdir(own.c_str());
}

}  // namespace heddle::worker
