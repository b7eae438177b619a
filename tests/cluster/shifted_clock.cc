// A library to preload into a daemon: its wall clock is off by as many seconds as the file that
// HEDDLE_SHIFTED_CLOCK names says, an int64_t that a test may change while the daemon runs. Its
// monotonic clock is not touched. Abseil waits until points of the wall clock, so those that it hands
// to the kernel, whose clock does not jump, are shifted back. What this cannot show: a wait in progress
// when a clock is set back lasts longer by as much.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace {

int64_t Shift() {
  static const volatile int64_t* const shift = []() -> const volatile int64_t* {
    const char* path = std::getenv("HEDDLE_SHIFTED_CLOCK");
    const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return nullptr;
    void* mapped = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return mapped == MAP_FAILED ? nullptr : static_cast<const volatile int64_t*>(mapped);
  }
  ();
  return shift == nullptr ? 0 : *shift;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  using Function = int (*)(clockid_t, timespec*);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = real(clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    time->tv_sec += Shift();
  return result;
}

int gettimeofday(timeval* time, void* zone) noexcept {
  using Function = int (*)(timeval*, void*);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "gettimeofday"));
  const int result = real(time, zone);
  if (result == 0 && time != nullptr) time->tv_sec += Shift();
  return result;
}

time_t time(time_t* result) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (result != nullptr) *result = now.tv_sec;
  return now.tv_sec;
}

long syscall(long number, ...) noexcept {
  using Function = long (*)(long, long, long, long, long, long, long);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "syscall"));
  long arguments[6];
  va_list list;
  va_start(list, number);
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  timespec until{};
  if (number == SYS_futex && (arguments[1] & FUTEX_CLOCK_REALTIME) != 0 && arguments[3] != 0) {
    until = *reinterpret_cast<const timespec*>(arguments[3]);
    until.tv_sec = std::max<int64_t>(0, until.tv_sec - Shift());
    arguments[3] = reinterpret_cast<long>(&until);
  }
  return real(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
              arguments[5]);
}
}
