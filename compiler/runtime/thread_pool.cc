#include "compiler/runtime/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace heddle::runtime {
namespace {

// About 0.1 ms of waiting: the kernels of a model follow each other within microseconds, so a
// worker that spins this long rarely sleeps inside a run, and an idle pool soon costs nothing.
constexpr int kSpins = 4096;

// Spinning only delays the others when there are more workers than cores for them.
int SpinsFor(int workers) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return kSpins;
  return workers <= CPU_COUNT(&allowed) ? kSpins : 0;
}

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns once `value` is no longer `old`: spins first, then sleeps on the futex behind the atomic.
void WaitWhile(const std::atomic<uint32_t>& value, uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

void PinThread(pthread_t thread, int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(thread, sizeof(set),
                         &set);  // a core outside the cpuset: the thread runs unpinned
}

}  // namespace

// A loop is cut into one range a worker. Each thread claims the range of its own number first and
// then what others have not begun, so that a worker the system keeps from running delays nobody:
// the caller waits only for ranges that were begun.
struct ThreadPool::Impl {
  // On a cache line of its own: 2 * loop number while the range is open, plus one once it is
  // claimed.
  struct alignas(64) Claim {
    std::atomic<uint32_t> state{1};
  };

  explicit Impl(int workers) : claims(workers) { host.num_workers = workers; }

  heddle_host host;
  int spins = 0;
  std::vector<std::thread> threads;  // workers 1, 2, ..
  std::vector<Claim> claims;         // by range
  std::atomic<bool> stop{false};

  // The loop being run. Written before its ranges are opened, read only under a claim of it: until
  // the last claimed range is done the caller does not return, so nobody reads these while they
  // change.
  int64_t n = 0;
  int64_t ranges = 0;
  heddle_parallel_body body = nullptr;
  void* closure = nullptr;

  // On cache lines of their own: workers hammer these.
  alignas(64) std::atomic<uint32_t> epoch{0};    // number of the latest loop
  alignas(64) std::atomic<uint32_t> pending{0};  // ranges not yet done

  // The first n % ranges ranges are one longer; no product of two sizes, so no overflow.
  int64_t Begin(int64_t range) const {
    return n / ranges * range + std::min<int64_t>(range, n % ranges);
  }

  // Takes open ranges of loop `number` until there is none.
  void RunRanges(uint32_t number, int worker) {
    const int count = host.num_workers;
    for (int i = 0; i < count; ++i) {
      const int range = (worker + i) % count;
      uint32_t open = 2 * number;
      if (!claims[range].state.compare_exchange_strong(open, open + 1, std::memory_order_acq_rel)) {
        continue;
      }
      body(closure, Begin(range), Begin(range + 1), worker);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
    }
  }

  void WorkerMain(int worker) {
    uint32_t seen = 0;
    while (true) {
      WaitWhile(epoch, seen, spins);
      seen = epoch.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      RunRanges(seen, worker);
    }
  }

  void ParallelFor(int64_t count, heddle_parallel_body loop_body, void* loop_closure) {
    if (count <= 0) return;
    if (threads.empty() || count == 1) {
      loop_body(loop_closure, 0, count, 0);
      return;
    }
    n = count;
    ranges = std::min<int64_t>(count, host.num_workers);
    body = loop_body;
    closure = loop_closure;
    pending.store(static_cast<uint32_t>(ranges), std::memory_order_relaxed);
    const uint32_t number = epoch.load(std::memory_order_relaxed) + 1;
    for (int64_t r = 0; r < ranges; ++r) {
      claims[r].state.store(2 * number, std::memory_order_release);
    }
    epoch.store(number, std::memory_order_release);
    epoch.notify_all();
    RunRanges(number, 0);
    for (uint32_t left; (left = pending.load(std::memory_order_acquire)) != 0;) {
      WaitWhile(pending, left, spins);
    }
  }
};

ThreadPool::ThreadPool(int num_workers, std::vector<int> cpus)
    : impl_(std::make_unique<Impl>(std::max(num_workers, 1))) {
  impl_->host.context = impl_.get();
  impl_->spins = SpinsFor(impl_->host.num_workers);
  impl_->host.parallel_for = [](const heddle_host* host, int64_t n, heddle_parallel_body body,
                                void* closure) {
    static_cast<Impl*>(host->context)->ParallelFor(n, body, closure);
  };
  for (int worker = 1; worker < num_workers; ++worker) {
    impl_->threads.emplace_back([impl = impl_.get(), worker] { impl->WorkerMain(worker); });
    if (!cpus.empty()) {
      PinThread(impl_->threads.back().native_handle(), cpus[worker % cpus.size()]);
    }
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop = true;
  impl_->epoch.fetch_add(1, std::memory_order_release);
  impl_->epoch.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
}

const heddle_host* ThreadPool::host() const { return &impl_->host; }

}  // namespace heddle::runtime
