#include "base/thread_priority.h"

#include <sys/resource.h>
#include <unistd.h>

namespace heddle {
namespace {

constexpr int kNice = -5;  // about three times the share of a thread of usual priority
constexpr int kNiceLess = 10;
constexpr int kNiceLast = 19;

void SetNice(int nice) { (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), nice); }

}  // namespace

// On Linux the nice value is of a thread, although POSIX says that it is of a process.
bool RunBeforeOthers() {
  return setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice) == 0;
}

void RunCallbacksBeforeOthers() {
  [[maybe_unused]] thread_local const bool before = RunBeforeOthers();  // one system call a thread
}

// Everybody may lower a priority, so these do not fail.
void RunWithLess() { SetNice(kNiceLess); }
void RunAfterOthers() { SetNice(kNiceLast); }

}  // namespace heddle
