// Tells ThreadSanitizer of Abseil's locks and notifications, whose library is not instrumented: without this, everything that a Mutex
// guards is a race.
//
// The functions here stand in front of the library's own, because a program's symbols come first. Each calls the library's, and adds
// what orders threads: what happened before an unlock happens before the next lock, and what happened before Notify happens before
// whoever sees the notification goes on. Linked into programs of the preset `tsan`. Functions that nothing of ours or of gRPC's calls are
// left out.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

#define HEDDLE_TEXT_OF(name) #name
#define HEDDLE_TEXT(name) HEDDLE_TEXT_OF(name)

namespace {

// The library's function with this mangled name in namespace absl; `nested` is "_ZNK" for const member functions.
template <typename Function>
Function* Original(std::string_view name, std::string_view nested = "_ZN") {
  const std::string space = HEDDLE_TEXT(ABSL_OPTION_INLINE_NAMESPACE_NAME);
  const std::string symbol =
      std::string(nested) + "4absl" + std::to_string(space.size()) + space + std::string(name);
  void* found = dlsym(RTLD_NEXT, symbol.c_str());
  if (found == nullptr) {
    std::fprintf(stderr, "absl_mutex.cc: no function %s\n", symbol.c_str());
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

// The flag of a notification, which inline code reads. It follows the lock.
static_assert(sizeof(absl::Notification) == 2 * sizeof(absl::Mutex));
void* FlagOf(const absl::Notification* notification) {
  return const_cast<char*>(reinterpret_cast<const char*>(notification)) + sizeof(absl::Mutex);
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static auto* const original = Original<void(Mutex*)>("5Mutex4LockEv");
  original(this);
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  static auto* const original = Original<void(Mutex*)>("5Mutex6UnlockEv");
  __tsan_release(this);
  original(this);
}

bool Mutex::TryLock() {
  static auto* const original = Original<bool(Mutex*)>("5Mutex7TryLockEv");
  const bool locked = original(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::LockWhen(const Condition& condition) {
  static auto* const original =
      Original<void(Mutex*, const Condition&)>("5Mutex8LockWhenERKNS0_9ConditionE");
  original(this, condition);
  __tsan_acquire(this);
}

void Mutex::ReaderLock() {
  static auto* const original = Original<void(Mutex*)>("5Mutex10ReaderLockEv");
  original(this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  static auto* const original = Original<void(Mutex*)>("5Mutex12ReaderUnlockEv");
  __tsan_release(this);
  original(this);
}

void Mutex::Await(const Condition& condition) {
  static auto* const original =
      Original<void(Mutex*, const Condition&)>("5Mutex5AwaitERKNS0_9ConditionE");
  __tsan_release(this);
  original(this, condition);
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static auto* const original = Original<bool(Mutex*, const Condition&, Duration)>(
      "5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  __tsan_release(this);
  const bool holds = original(this, condition, timeout);
  __tsan_acquire(this);
  return holds;
}

void CondVar::Wait(Mutex* mutex) {
  static auto* const original = Original<void(CondVar*, Mutex*)>("7CondVar4WaitEPNS0_5MutexE");
  __tsan_release(mutex);
  original(this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static auto* const original = Original<bool(CondVar*, Mutex*, Duration)>(
      "7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  __tsan_release(mutex);
  const bool late = original(this, mutex, timeout);
  __tsan_acquire(mutex);
  return late;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static auto* const original =
      Original<bool(CondVar*, Mutex*, Time)>("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  __tsan_release(mutex);
  const bool late = original(this, mutex, deadline);
  __tsan_acquire(mutex);
  return late;
}

void Notification::Notify() {
  static auto* const original = Original<void(Notification*)>("12Notification6NotifyEv");
  __tsan_release(FlagOf(this));
  original(this);
}

void Notification::WaitForNotification() const {
  static auto* const original =
      Original<void(const Notification*)>("12Notification19WaitForNotificationEv", "_ZNK");
  original(this);
  __tsan_acquire(FlagOf(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  static auto* const original = Original<bool(const Notification*, Duration)>(
      "12Notification30WaitForNotificationWithTimeoutENS0_8DurationE", "_ZNK");
  const bool notified = original(this, timeout);
  if (notified) __tsan_acquire(FlagOf(this));
  return notified;
}

ABSL_NAMESPACE_END
}  // namespace absl
