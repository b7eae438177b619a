#include "scheduler/service/stages/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/notification.h"

namespace heddle::scheduler {
namespace {

TEST(ThreadPoolTest, OneThreadKeepsTheOrderAndEndsWithTheLast) {
  std::vector<int> ran;
  {
    ThreadPool pool(1);
    for (int i = 0; i < 1000; ++i) pool.Add([&ran, i] { ran.push_back(i); });
  }
  ASSERT_EQ(ran.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(ran[static_cast<size_t>(i)], i);
}

TEST(ThreadPoolTest, ThreadsRunBesideEachOther) {
  ThreadPool pool(3);
  auto* const together = new absl::Barrier(3);
  for (int i = 0; i < 3; ++i) {
    pool.Add([together] {
      if (together->Block()) delete together;
    });
  }
}

TEST(ThreadPoolTest, AFunctionMayAddAnother) {
  std::atomic<int> ran{0};
  absl::Notification over;
  ThreadPool pool(2);
  pool.Add([&] {
    ++ran;
    pool.Add([&] {
      ++ran;
      over.Notify();
    });
  });
  over.WaitForNotification();
  EXPECT_EQ(ran, 2);
}

}  // namespace
}  // namespace heddle::scheduler
