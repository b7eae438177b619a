#include "compiler/runtime/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "compiler/runtime/placed_stack.h"

namespace heddle::runtime {
namespace {

// Spins before a worker sleeps, about 0.1 ms. The kernels of a model follow each other within
// microseconds, so a worker rarely sleeps during a run, and an idle pool soon costs nothing.
constexpr int kSpins = 4096;

// The maximum number of pieces in a worker's share of a loop. At the end of a loop, workers of
// equal speed wait for at most one piece. If the system stops a worker, the others wait for the
// pieces that it had taken, up to half a share.
constexpr int64_t kPieces = 16;

// With more workers than cores, spinning would only delay the others.
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

// Returns when `value` is no longer `old`. Spins first, then sleeps on the futex behind the atomic.
void WaitWhile(const std::atomic<uint32_t>& value, uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

// Pins the calling thread. A thread pins itself, since a stage of a worker may not pin others.
void PinSelf(int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // If the core is outside of the cpuset, the thread stays unpinned.
  sched_setaffinity(0, sizeof(set), &set);
}

// The start of part `part` when [0, n) is cut into `parts` parts. The first n % parts parts are one
// longer. It multiplies no two sizes, so it cannot overflow.
int64_t Begin(int64_t n, int64_t part, int64_t parts) {
  return n / parts * part + std::min(part, n % parts);
}

// The pieces [begin, end) of a share that are not taken yet, with the number of their loop. They
// form one word, so that pieces are taken by one compare-and-exchange, which fails once the loop is
// over.
struct Left {
  uint32_t loop = 0;
  uint16_t begin = 0;
  uint16_t end = 0;
};

// Each share has its own cache line.
struct alignas(64) Share {
  std::atomic<Left> left{Left{}};
};
static_assert(std::atomic<Left>::is_always_lock_free);

}  // namespace

// A loop is cut into pieces, and consecutive pieces form one share for each worker. A worker takes
// half of the rest of its own share, from the front, until the share is empty. Then it takes from
// the back of the others' shares. So workers of equal speed stay within their shares, and a slow or
// stopped worker delays the others only by the pieces that it has begun.
struct ThreadPool::Impl {
  explicit Impl(int workers) : shares(workers) { host.num_workers = workers; }

  heddle_host host;
  int spins = 0;
  std::vector<std::thread> threads;  // workers 1, 2, ..
  std::vector<Share> shares;         // by worker
  std::atomic<bool> stop{false};

  // The running loop. These are written before its shares, and read only by workers that have taken
  // pieces of it. The caller does not return until these pieces are done, so nobody reads while
  // they change.
  int64_t n = 0;
  int64_t pieces = 0;
  heddle_parallel_body body = nullptr;
  void* closure = nullptr;

  // On separate cache lines, because all workers access them all the time.
  alignas(64) std::atomic<uint32_t> epoch{0};    // number of the latest loop
  alignas(64) std::atomic<uint32_t> pending{0};  // pieces not yet done

  // Takes and runs pieces of the share of `owner` until none of loop `number` is left. Returns
  // their number.
  uint32_t RunShare(uint32_t number, int owner, int worker) {
    std::atomic<Left>& share = shares[owner].left;
    uint32_t done = 0;
    Left left = share.load(std::memory_order_acquire);
    while (left.loop == number && left.begin < left.end) {
      const auto taken = static_cast<uint16_t>((left.end - left.begin + 1) / 2);
      Left rest = left;
      int64_t first = 0;
      if (owner == worker) {
        first = left.begin;
        rest.begin += taken;
      } else {
        rest.end -= taken;
        first = rest.end;
      }
      if (!share.compare_exchange_weak(left, rest, std::memory_order_acq_rel,
                                       std::memory_order_acquire))
        continue;
      first += Begin(pieces, owner, host.num_workers);
      OnPlacedStack(
          [&] { body(closure, Begin(n, first, pieces), Begin(n, first + taken, pieces), worker); });
      done += taken;
      left = share.load(std::memory_order_acquire);
    }
    return done;
  }

  // Takes and runs pieces of loop `number` until none is left.
  void RunPieces(uint32_t number, int worker) {
    const int count = host.num_workers;
    uint32_t done = 0;
    for (int i = 0; i < count; ++i) done += RunShare(number, (worker + i) % count, worker);
    if (done > 0 && pending.fetch_sub(done, std::memory_order_acq_rel) == done)
      pending.notify_one();
  }

  void WorkerMain(int worker) {
    uint32_t seen = 0;
    while (true) {
      WaitWhile(epoch, seen, spins);
      seen = epoch.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      RunPieces(seen, worker);
    }
  }

  void ParallelFor(int64_t count, heddle_parallel_body loop_body, void* loop_closure) {
    if (count <= 0) return;
    if (threads.empty() || count == 1) {
      OnPlacedStack([&] { loop_body(loop_closure, 0, count, 0); });
      return;
    }
    const int workers = host.num_workers;
    n = count;
    pieces = std::min(count, workers * kPieces);
    body = loop_body;
    closure = loop_closure;
    pending.store(static_cast<uint32_t>(pieces), std::memory_order_relaxed);
    const uint32_t number = epoch.load(std::memory_order_relaxed) + 1;
    for (int w = 0; w < workers; ++w) {
      const int64_t size = Begin(pieces, w + 1, workers) - Begin(pieces, w, workers);
      shares[w].left.store({number, 0, static_cast<uint16_t>(size)}, std::memory_order_release);
    }
    epoch.store(number, std::memory_order_release);
    epoch.notify_all();
    RunPieces(number, 0);
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
    const int cpu = cpus.empty() ? -1 : cpus[worker % cpus.size()];
    impl_->threads.emplace_back([impl = impl_.get(), worker, cpu] {
      PinSelf(cpu);
      impl->WorkerMain(worker);
    });
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
