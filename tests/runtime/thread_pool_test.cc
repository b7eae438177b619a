#include "compiler/runtime/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace heddle::runtime {
namespace {

struct Counts {
  std::vector<std::atomic<int>> visits;
  std::atomic<int> bad_workers{0};
  int workers = 0;
  explicit Counts(size_t n) : visits(n) {}
};

void Visit(void* closure, int64_t begin, int64_t end, int32_t worker) {
  auto& counts = *static_cast<Counts*>(closure);
  if (worker < 0 || worker >= counts.workers || begin >= end) ++counts.bad_workers;
  for (int64_t i = begin; i < end; ++i) ++counts.visits[i];
}

TEST(ThreadPoolTest, EveryIterationRunsExactlyOnce) {
  for (int workers : {1, 2, 3, 7}) {
    ThreadPool pool(workers);
    const heddle_host* host = pool.host();
    EXPECT_EQ(host->num_workers, workers);
    for (int n : {0, 1, 2, 3, 6, 7, 8, 100, 1001}) {
      Counts counts(n);
      counts.workers = workers;
      host->parallel_for(host, n, Visit, &counts);
      for (const auto& visits : counts.visits) ASSERT_EQ(visits, 1);
      EXPECT_EQ(counts.bad_workers, 0);
    }
  }
}

// Workers that are slow now and then, each by a random amount of work: pieces change hands all the
// time.
TEST(ThreadPoolTest, EveryIterationRunsExactlyOnceOnUnevenWorkers) {
  struct Uneven {
    Counts counts;
    std::atomic<uint64_t> random;
  };
  uint64_t random = 1;
  for (int workers : {2, 3, 5}) {
    ThreadPool pool(workers);
    for (int round = 0; round < 500; ++round) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      const auto n = static_cast<int64_t>(random >> 33) % 300;
      Uneven uneven{.counts = Counts(n), .random = random};
      uneven.counts.workers = workers;
      pool.host()->parallel_for(
          pool.host(), n,
          [](void* closure, int64_t begin, int64_t end, int32_t worker) {
            auto& u = *static_cast<Uneven*>(closure);
            const uint64_t drawn = u.random.fetch_add(0x9e3779b97f4a7c15u) >> 48;
            if (drawn % 4 == 0) {
              for (uint64_t i = 0; i < drawn; ++i) asm volatile("");
            }
            Visit(&u.counts, begin, end, worker);
          },
          &uneven);
      for (const auto& visits : uneven.counts.visits) ASSERT_EQ(visits, 1) << n;
      EXPECT_EQ(uneven.counts.bad_workers, 0);
    }
  }
}

// A worker that is stuck in what it has begun, at most half of its share, holds up only that.
TEST(ThreadPoolTest, TheOthersDoWhatAStuckWorkerHasNotBegun) {
  struct Stuck {
    std::atomic<int> first{-1};  // the worker that began first
    std::atomic<int64_t> done{0};
    bool gave_up = false;
  };
  constexpr int64_t kIterations = 1600;
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    Stuck stuck;
    pool.host()->parallel_for(
        pool.host(), kIterations,
        [](void* closure, int64_t begin, int64_t end, int32_t worker) {
          auto& s = *static_cast<Stuck*>(closure);
          int none = -1;
          if (s.first.compare_exchange_strong(none, worker)) {
            EXPECT_LE(end - begin, kIterations / 4);
            const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
            while (s.done < kIterations - (end - begin) && !s.gave_up) {
              s.gave_up = std::chrono::steady_clock::now() > limit;
              std::this_thread::yield();
            }
          }
          s.done += end - begin;
        },
        &stuck);
    ASSERT_FALSE(stuck.gave_up);
    EXPECT_EQ(stuck.done, kIterations);
  }
}

TEST(ThreadPoolTest, ManyShortLoopsInARow) {
  ThreadPool pool(4);
  for (int round = 0; round < 20000; ++round) {
    Counts counts(4);
    counts.workers = 4;
    pool.host()->parallel_for(pool.host(), 4, Visit, &counts);
    for (const auto& visits : counts.visits) ASSERT_EQ(visits, 1) << round;
  }
}

// Each range waits for the other to begin, so one thread alone would never come back.
TEST(ThreadPoolTest, RangesRunAtTheSameTime) {
  ThreadPool pool(2);
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> begun{0};
    pool.host()->parallel_for(
        pool.host(), 2,
        [](void* closure, int64_t, int64_t, int32_t) {
          auto& count = *static_cast<std::atomic<int>*>(closure);
          ++count;
          while (count != 2) std::this_thread::yield();
        },
        &begun);
    EXPECT_EQ(begun, 2);
  }
}

// Long enough for the workers to fall asleep between loops, and for the caller to fall asleep
// within one.
TEST(ThreadPoolTest, SleepingWorkersWakeUp) {
  ThreadPool pool(3);
  for (int round = 0; round < 10; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> done{0};
    pool.host()->parallel_for(
        pool.host(), 3,
        [](void* closure, int64_t, int64_t, int32_t worker) {
          if (worker != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          ++*static_cast<std::atomic<int>*>(closure);
        },
        &done);
    EXPECT_EQ(done, 3);
  }
}

TEST(ThreadPoolTest, ResultsOfALoopAreVisibleToTheNext) {
  ThreadPool pool(4);
  std::vector<int64_t> values(
      64, 0);  // plain memory: a missing barrier is a wrong sum (and a report by TSan)
  for (int round = 0; round < 2000; ++round) {
    pool.host()->parallel_for(
        pool.host(), 64,
        [](void* closure, int64_t begin, int64_t end, int32_t) {
          auto& v = *static_cast<std::vector<int64_t>*>(closure);
          for (int64_t i = begin; i < end; ++i) ++v[i];
        },
        &values);
    std::rotate(values.begin(), values.begin() + 17, values.end());
  }
  for (int64_t value : values) EXPECT_EQ(value, 2000);
}

TEST(ThreadPoolTest, PinsToCoresThatMayNotExist) {
  ThreadPool pool(2, {0, 100000});
  Counts counts(10);
  counts.workers = 2;
  pool.host()->parallel_for(pool.host(), 10, Visit, &counts);
  for (const auto& visits : counts.visits) EXPECT_EQ(visits, 1);
}

}  // namespace
}  // namespace heddle::runtime
