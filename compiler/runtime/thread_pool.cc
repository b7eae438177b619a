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

struct ThreadPool::Impl {
  heddle_host host;
  int spins = 0;
  std::vector<std::thread> threads;  // workers 1, 2, ..

  // The loop being run; written by the caller before it raises `epoch`, read by workers after they
  // see it raised.
  int64_t n = 0;
  heddle_parallel_body body = nullptr;
  void* closure = nullptr;
  bool stop = false;

  // On cache lines of their own: workers hammer these.
  alignas(64) std::atomic<uint32_t> epoch{0};    // number of loops started
  alignas(64) std::atomic<uint32_t> pending{0};  // workers still in the loop

  int Workers() const { return host.num_workers; }

  void RunRange(int worker) const {
    const int64_t begin = Begin(worker);
    const int64_t end = Begin(worker + 1);
    if (begin < end) body(closure, begin, end, worker);
  }

  // The first n % workers ranges are one longer; no product, so no overflow.
  int64_t Begin(int worker) const {
    return n / Workers() * worker + std::min<int64_t>(worker, n % Workers());
  }

  void WorkerMain(int worker) {
    uint32_t seen = 0;
    while (true) {
      WaitWhile(epoch, seen, spins);
      ++seen;  // the caller starts no further loop before this worker is done, so it is exactly one
               // ahead
      if (stop) return;
      RunRange(worker);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
    }
  }

  void Start() {
    pending.store(static_cast<uint32_t>(threads.size()), std::memory_order_relaxed);
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
  }

  void ParallelFor(int64_t count, heddle_parallel_body loop_body, void* loop_closure) {
    if (count <= 0) return;
    if (threads.empty() || count == 1) {
      loop_body(loop_closure, 0, count, 0);
      return;
    }
    n = count;
    body = loop_body;
    closure = loop_closure;
    Start();
    RunRange(0);
    for (uint32_t left; (left = pending.load(std::memory_order_acquire)) != 0;) {
      WaitWhile(pending, left, spins);
    }
  }
};

ThreadPool::ThreadPool(int num_workers, std::vector<int> cpus) : impl_(std::make_unique<Impl>()) {
  impl_->host.num_workers = std::max(num_workers, 1);
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
  impl_->Start();
  for (std::thread& thread : impl_->threads) thread.join();
}

const heddle_host* ThreadPool::host() const { return &impl_->host; }

}  // namespace heddle::runtime
