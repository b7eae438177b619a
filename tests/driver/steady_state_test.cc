// A module that runs again and again allocates nothing and takes no lock. This program stands in
// front of the C library's allocation and mutexes and counts who comes by, on any thread.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>

#include "client/zoo/zoo.h"
#include "compiler/driver/compile.h"
#include "compiler/runtime/heddle.h"
#include "tests/driver/forest_text.h"
#include "tests/driver/run_model.h"

namespace {

std::atomic<bool> g_counting{false};
std::atomic<int> g_allocations{0};
std::atomic<int> g_locks{0};

void Count(std::atomic<int>& counter) {
  if (g_counting.load(std::memory_order_relaxed)) counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

// What glibc calls its own; operator new and all else end at the names without the prefix.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  Count(g_allocations);
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  Count(g_allocations);
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  Count(g_allocations);
  return __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) {
  Count(g_allocations);
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** out, size_t alignment, size_t size) {
  *out = memalign(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static const auto real =
      reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  Count(g_locks);
  return real(mutex);
}
}  // extern "C"

namespace heddle {
namespace {

class SteadyState : public ::testing::TestWithParam<std::pair<const char*, int>> {};

TEST_P(SteadyState, NeitherAllocatesNorLocks) {
  const auto [model, threads] = GetParam();
  Target target;
  target.threads = threads;
  const auto bytes = CompileModel(*zoo::MakeZooModel(model, 0), {}, target, {}, {});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  auto executor = runtime::Executor::Create(*runtime::ParseModule(*bytes));
  ASSERT_TRUE(executor.ok()) << executor.status();
  const std::vector<std::string> inputs = RandomInputs((*executor)->manifest(), 1);
  std::memcpy((*executor)->InputData(0), inputs[0].data(), inputs[0].size());
  ASSERT_TRUE((*executor)->Run().ok());  // what is bound late is bound now
  g_allocations = g_locks = 0;
  g_counting = true;
  for (int run = 0; run < 5; ++run) (*executor)->Run().IgnoreError();
  g_counting = false;
  EXPECT_EQ(g_allocations, 0);
  EXPECT_EQ(g_locks, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, SteadyState,
                         ::testing::Values(std::pair("mlp", 1), std::pair("mlp", 2),
                                           std::pair("squeezenet", 1), std::pair("squeezenet", 2)),
                         [](const auto& info) {
                           return std::string(info.param.first) + "_" +
                                  std::to_string(info.param.second);
                         });

// All that a deployed program calls.
class LibraryCalls : public ::testing::TestWithParam<int> {};  // by number of threads

TEST_P(LibraryCalls, AllocateNothing) {
  const auto bytes = CompileModel(ForestText(5, 3, 4, 3), {}, {}, {}, {});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  heddle_model* model = nullptr;
  ASSERT_EQ(heddle_load_memory(bytes->data(), bytes->size(), GetParam(), &model), 0)
      << heddle_last_error();
  constexpr int kRows = 4200;  // more than a large block for each of two threads
  const std::vector<float> x(kRows * 4, 0.5F);
  std::vector<float> scores(kRows * 3);
  std::vector<int64_t> labels(kRows);
  const void* inputs[] = {x.data()};
  void* outputs[] = {scores.data(), labels.data()};
  heddle_tensor_info info;
  int64_t shape[2];
  size_t size = 0;
  int failed = 0;
  g_allocations = g_locks = 0;
  g_counting = true;
  for (const int rows : {1, 2, 15, 16, 17, 300, kRows})
    failed |= heddle_run_rows(model, rows, inputs, outputs);
  failed |= heddle_input_info(model, 0, &info);
  failed |= heddle_set_input(model, 0, x.data(), info.bytes);
  failed |= heddle_run(model);
  failed |= heddle_output_shape(model, 0, shape, &size);
  failed |= heddle_get_output(model, 0, scores.data(), size);
  g_counting = false;
  EXPECT_EQ(failed, 0) << heddle_last_error();
  EXPECT_EQ(g_allocations, 0);
  EXPECT_EQ(g_locks, 0);
  // The library's own allocations are among those that are counted: a message is one.
  g_counting = true;
  EXPECT_NE(heddle_set_input(model, 0, x.data(), 1), 0);
  g_counting = false;
  EXPECT_GT(g_allocations, 0);
  heddle_free(model);
}

INSTANTIATE_TEST_SUITE_P(Threads, LibraryCalls, ::testing::Values(1, 2));

TEST(SteadyStateTest, TheCountersCount) {
  g_allocations = g_locks = 0;
  g_counting = true;
  void* volatile plain = ::operator new(100);  // volatile: a compiler may drop what nobody looks at
  void* volatile aligned = ::operator new(100, std::align_val_t(64));
  std::mutex mutex;
  mutex.lock();
  g_counting = false;
  mutex.unlock();
  ::operator delete(plain);
  ::operator delete(aligned, std::align_val_t(64));
  EXPECT_EQ(g_allocations, 2);
  EXPECT_EQ(g_locks, 1);
}

}  // namespace
}  // namespace heddle
