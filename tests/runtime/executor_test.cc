#include "compiler/runtime/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/runtime/aligned_buffer.h"
#include "compiler/runtime/cpu_features.h"
#include "compiler/runtime/kernel_library.h"
#include "tests/runtime/test_module.h"

namespace heddle::runtime {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string CreateError(Module module, Executor::Options options = {}) {
  const auto executor = Executor::Create(std::move(module), options);
  return executor.ok() ? "" : std::string(executor.status().message());
}

TEST(ExecutorTest, RunsTheCallsInOrderWithAnyNumberOfThreads) {
  for (int threads : {0, 1, 3}) {
    Executor::Options options;
    options.threads = threads;
    auto executor = Executor::Create(MakeTestModule(), options);
    ASSERT_TRUE(executor.ok()) << executor.status();
    auto* in = static_cast<float*>((*executor)->InputData(0));
    for (int run = 0; run < 3; ++run) {
      for (int i = 0; i < kLength; ++i) in[i] = static_cast<float>(run + i % 7);
      ASSERT_TRUE((*executor)->Run().ok());
      const auto* out = static_cast<const float*>((*executor)->OutputData(0));
      for (int i = 0; i < kLength; ++i) {
        const float sum = static_cast<float>(run + i % 7) + static_cast<float>(i) * 0.25f;
        ASSERT_EQ(out[i], sum * sum) << i;
      }
    }
    const std::vector<double> times = (*executor)->ProfileNs(5);
    ASSERT_EQ(times.size(), 2u);
    EXPECT_GT(times[0], 0);
  }
}

// The sizes of blocks that RunRows uses, one for each row. The sums are checked here.
std::vector<float> SizesOf(Executor& executor, int64_t rows) {
  std::vector<float> x(static_cast<size_t>(rows) * 4), sum(static_cast<size_t>(rows)), sizes = sum;
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 91);
  const void* inputs[] = {x.data()};
  void* outputs[] = {sum.data(), sizes.data()};
  EXPECT_TRUE(executor.RunRows(rows, inputs, outputs).ok());
  for (size_t r = 0; r < sum.size(); ++r)
    EXPECT_EQ(sum[r], 100 + x[4 * r] + x[4 * r + 1] + x[4 * r + 2] + x[4 * r + 3]) << rows;
  return sizes;
}

TEST(ExecutorTest, RowsAreCutIntoBlocks) {
  auto executor = Executor::Create(MakeRowsModule()).value();
  EXPECT_THAT(SizesOf(*executor, 1), ElementsAre(1));
  EXPECT_THAT(SizesOf(*executor, 2), ElementsAre(3, 3));  // one block for both
  EXPECT_THAT(SizesOf(*executor, 3), ElementsAre(3, 3, 3));
  EXPECT_THAT(SizesOf(*executor, 4), Each(8));
  EXPECT_THAT(SizesOf(*executor, 8), Each(8));
  EXPECT_THAT(SizesOf(*executor, 9), ElementsAre(8, 8, 8, 8, 8, 8, 8, 8, 1));
  EXPECT_THAT(SizesOf(*executor, 20), Each(8));
  for (int64_t rows = 0; rows < 100; ++rows) SizesOf(*executor, rows);

  // The smallest block takes whatever is left.
  executor = Executor::Create(MakeRowsModule({8, 3})).value();
  EXPECT_THAT(SizesOf(*executor, 1), ElementsAre(3));
  EXPECT_THAT(SizesOf(*executor, 11), ElementsAre(8, 8, 8, 8, 8, 8, 8, 8, 3, 3, 3));
  // A module of one size, as there were before there were several.
  executor = Executor::Create(MakeRowsModule({3})).value();
  for (int64_t rows = 1; rows < 20; ++rows) EXPECT_THAT(SizesOf(*executor, rows), Each(3));
}

// Inputs and outputs of a large block are copied by several threads. The rows of the last piece of a copy are odd ones.
TEST(ExecutorTest, ThreadsShareLargeCopies) {
  for (const int threads : {1, 2, 3}) {
    Executor::Options options;
    options.threads = threads;
    const auto executor = Executor::Create(MakeRowsModule({65536, 8, 1}), options).value();
    for (const int64_t rows : {65536, 65535, 40001, 2 * 65536 + 3}) {
      const std::vector<float> sizes = SizesOf(*executor, rows);
      EXPECT_EQ(sizes[0], 65536);
    }
  }
}

// 131074 rows are 65537 for each of two threads: one large block and one row. A single thread has two large blocks first.
TEST(ExecutorTest, EachThreadTakesRowsOfItsOwn) {
  const auto sizes = [](int threads, int64_t rows, int64_t workspace) {
    Module module = MakeRowsModule({65536, 8, 1});
    module.manifest.workspace_bytes = workspace;
    Executor::Options options;
    options.threads = threads;
    const auto executor = Executor::Create(std::move(module), options);
    EXPECT_TRUE(executor.ok()) << executor.status();
    return SizesOf(**executor, rows);
  };
  constexpr int64_t kRows = 2 * 65537;
  const std::vector<float> shared = sizes(2, kRows, 0);
  EXPECT_EQ(shared[65535], 65536);
  EXPECT_EQ(shared[65536], 1);
  EXPECT_EQ(shared[65537], 65536);
  EXPECT_EQ(shared[kRows - 1], 1);
  EXPECT_EQ(sizes(1, kRows, 0)[65536], 65536) << "one thread has no one to share with";
  EXPECT_EQ(sizes(3, kRows, 0)[65536], 65536) << "less than a block for each thread";
  EXPECT_EQ(sizes(2, kRows, int64_t{65} << 20)[65536], 65536) << "too much memory for each thread";
}

TEST(ExecutorTest, ThreadsTakeManyBlocksOneByOne) {
  Executor::Options options;
  options.threads = 3;
  const auto executor = Executor::Create(MakeRowsModule(), options).value();
  for (int run = 0; run < 20; ++run) {
    std::vector<float> sizes = SizesOf(*executor, 4001);  // 500 blocks of 8, and a row
    EXPECT_EQ(sizes.back(), 1);
    sizes.pop_back();
    EXPECT_THAT(sizes, Each(8));
  }
  for (int64_t rows = 3069; rows < 3100; ++rows) SizesOf(*executor, rows);
}

TEST(ExecutorTest, RecordsSayWhichBlocksAreFaster) {
  const auto executor = [](double of_8, double of_3, double of_1) {
    Module module = MakeRowsModule();
    const double ms[] = {of_8, of_3, of_1};
    for (size_t k = 0; k < 3; ++k) module.manifest.kernels[k].record_ms = ms[k];
    return Executor::Create(std::move(module)).value();
  };
  EXPECT_THAT(SizesOf(*executor(10, 8, 1), 9), Each(1)) << "a row takes longest in others";
  const auto slow_1 = executor(10, 9, 9.5);
  EXPECT_THAT(SizesOf(*slow_1, 1), ElementsAre(1)) << "a block of just the rows is taken";
  EXPECT_THAT(SizesOf(*slow_1, 2), ElementsAre(3, 3));
  EXPECT_THAT(SizesOf(*slow_1, 4), Each(8));
  const auto slow_8 = executor(100, 2, 1);
  EXPECT_THAT(SizesOf(*slow_8, 7), ElementsAre(3, 3, 3, 3, 3, 3, 1));
  // One that was not measured leaves the blocks to their sizes.
  EXPECT_THAT(SizesOf(*executor(10, 0, 1), 2), ElementsAre(3, 3));
}

// Two rows in two blocks of 1 or in one of 3: as they were measured if that was warm, and cold, nearly all of it is taken for misses.
TEST(ExecutorTest, WarmRecordsHaveNoMisses) {
  const auto executor = [](bool warm) {
    Module module = MakeRowsModule();
    const double ms[] = {30, 12, 8};
    for (size_t k = 0; k < 3; ++k) {
      module.manifest.kernels[k].record_ms = ms[k];
      module.manifest.kernels[k].warm = warm;
    }
    return Executor::Create(std::move(module)).value();
  };
  EXPECT_THAT(SizesOf(*executor(true), 2), ElementsAre(3, 3));
  EXPECT_THAT(SizesOf(*executor(false), 2), ElementsAre(1, 1));
}

TEST(ExecutorTest, OneBlockRunsAlone) {
  auto executor = Executor::Create(MakeRowsModule()).value();
  auto* x = static_cast<float*>(executor->InputData(0));
  for (int i = 0; i < 32; ++i) x[i] = 1;
  const auto* sum = static_cast<const float*>(executor->OutputData(0));
  ASSERT_TRUE(executor->Run(1).ok());
  EXPECT_EQ(executor->OutputShape(0), std::vector<int64_t>{3});
  EXPECT_EQ(executor->Output(0).size(), 12u);
  EXPECT_EQ(sum[2], 104);
  EXPECT_EQ(sum[3], 0);
  EXPECT_EQ(executor->ProfileNs(3, 1).size(), 1u);
  ASSERT_TRUE(executor->Run().ok());
  EXPECT_EQ(executor->OutputShape(0), std::vector<int64_t>{8});
  EXPECT_EQ(sum[7], 104);
}

TEST(ExecutorTest, RowsThatCannotBe) {
  auto executor = Executor::Create(MakeRowsModule()).value();
  float x[4] = {}, y[2] = {};
  const void* inputs[] = {x};
  void* outputs[] = {y, y + 1};
  EXPECT_THAT(std::string(executor->RunRows(-1, inputs, outputs).message()),
              HasSubstr("between 0 and"));
  EXPECT_FALSE(executor->RunRows(INT64_MAX, inputs, outputs).ok());
  inputs[0] = nullptr;
  EXPECT_TRUE(executor->RunRows(0, inputs, outputs).ok());
  EXPECT_THAT(std::string(executor->RunRows(1, inputs, outputs).message()),
              HasSubstr("'x' is null"));
  executor = Executor::Create(MakeTestModule()).value();
  EXPECT_THAT(std::string(executor->RunRows(1, inputs, outputs).message()),
              HasSubstr("depend on each other"));
}

TEST(ExecutorTest, TensorsStayWhereTheyAre) {
  auto executor = Executor::Create(MakeTestModule()).value();
  AlignedBuffer in = AlignedBuffer::Allocate(kBytes), out = AlignedBuffer::Allocate(kBytes);
  const void* const own = executor->OutputData(0);
  ASSERT_TRUE(executor->BindInput(0, in.data()).ok());
  ASSERT_TRUE(executor->BindOutput(0, out.data()).ok());
  EXPECT_EQ(executor->OutputData(0), out.data());
  reinterpret_cast<float*>(in.data())[4] = 2;
  ASSERT_TRUE(executor->Run().ok());
  EXPECT_EQ(reinterpret_cast<float*>(out.data())[4], 9);  // (2 + 4 * 0.25)^2
  // A refusal changes nothing.
  EXPECT_THAT(std::string(executor->BindInput(0, in.data() + 4).message()),
              HasSubstr("'a' must lie at a multiple of 64 bytes"));
  EXPECT_FALSE(executor->BindOutput(0, out.data() + 32).ok());
  reinterpret_cast<float*>(in.data())[4] = 3;
  ASSERT_TRUE(executor->Run().ok());
  EXPECT_EQ(reinterpret_cast<float*>(out.data())[4], 16);
  ASSERT_TRUE(executor->BindInput(0, nullptr).ok());
  ASSERT_TRUE(executor->BindOutput(0, nullptr).ok());
  EXPECT_EQ(executor->OutputData(0), own);
  ASSERT_TRUE(executor->Run().ok());
  EXPECT_EQ(static_cast<const float*>(executor->OutputData(0))[4], 1);
  EXPECT_EQ(reinterpret_cast<float*>(out.data())[4], 16);
}

TEST(ExecutorTest, AllBlocksReadBoundRows) {
  auto executor = Executor::Create(MakeRowsModule()).value();
  AlignedBuffer in = AlignedBuffer::Allocate(8 * 16), out = AlignedBuffer::Allocate(8 * 4);
  ASSERT_TRUE(executor->BindInput(0, in.data()).ok());
  ASSERT_TRUE(executor->BindOutput(0, out.data()).ok());
  reinterpret_cast<float*>(in.data())[0] = 7;
  for (size_t block = 0; block < 3; ++block) {
    reinterpret_cast<float*>(out.data())[0] = 0;
    ASSERT_TRUE(executor->Run(block).ok());
    EXPECT_EQ(reinterpret_cast<float*>(out.data())[0], 107) << block;
  }
}

TEST(ExecutorTest, MemoryIsAligned) {
  auto executor = Executor::Create(MakeTestModule());
  ASSERT_TRUE(executor.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*executor)->InputData(0)) % kBufferAlignment, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*executor)->OutputData(0)) % kBufferAlignment, 0u);
  for (int64_t bytes : {0, 1, 4097, (2 << 20) - 1, 2 << 20, (5 << 20) + 3}) {
    AlignedBuffer buffer = AlignedBuffer::Allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kBufferAlignment, 0u);
    for (int64_t i = 0; i < bytes; ++i) ASSERT_EQ(buffer.data()[i], 0);
    std::memset(buffer.data(), 1, bytes);
  }
  EXPECT_FALSE(AlignedBuffer::Allocate(-1).ok());
}

TEST(ExecutorTest, CodeOfAKindWithoutDevicesRunsOnTheCpu) {
  for (const char* target : {"another -x=y", "cudarama -arch=sm_90"}) {
    Module module = MakeTestModule();
    module.manifest.target = target;
    EXPECT_FALSE(module.manifest.ForGpu());
    const auto executor = Executor::Create(std::move(module));
    ASSERT_TRUE(executor.ok()) << executor.status();
    EXPECT_TRUE((*executor)->Run().ok());
  }
}

TEST(ExecutorTest, RefusesWhatItCannotRun) {
  Module wrong_cpu = MakeTestModule();
  wrong_cpu.manifest.cpu_features = {"sse4.2", "amx-fp16", "fast-gather"};
  if (!MissingCpuFeatures({"amx-fp16"}).empty()) {
    const std::string error = CreateError(wrong_cpu);
    EXPECT_THAT(error, HasSubstr("this CPU lacks amx-fp16:"));
    EXPECT_THAT(error, HasSubstr("llvm -mcpu=x86-64"));
  }
  Module no_kernel = MakeTestModule();
  no_kernel.manifest.kernels[1].symbol = "sqare";
  EXPECT_THAT(CreateError(no_kernel), HasSubstr("no kernel 'sqare'"));
  Module no_code = MakeTestModule();
  no_code.code = "";
  EXPECT_THAT(CreateError(no_code), HasSubstr("not a shared object"));
  Module huge = MakeTestModule();
  huge.manifest.arena_bytes = int64_t{1} << 44;
  // 16 TiB: most systems refuse it; one that does not (overcommit) may go on.
  const std::string error = CreateError(huge);
  if (!error.empty()) {
    EXPECT_THAT(error, HasSubstr("no memory for intermediate results"));
  }
  Module bad = MakeTestModule();
  bad.manifest.calls[0].kernel = 7;
  EXPECT_THAT(CreateError(bad), HasSubstr("names kernel 7"));
  Executor::Options options;
  options.threads = 1000;
  EXPECT_THAT(CreateError(MakeTestModule(), options), HasSubstr("between 1 and 256"));
}

TEST(CpuFeaturesTest, KnowsItsNames) {
  EXPECT_TRUE(IsKnownCpuFeature("avx512f"));
  EXPECT_FALSE(IsKnownCpuFeature("fast-gather"));
  EXPECT_TRUE(MissingCpuFeatures({}).empty());
}

TEST(KernelLibraryTest, TwoLibrariesWithOneSymbolStayApart) {
  auto first = KernelLibrary::Load(ReadFile(HEDDLE_TEST_KERNELS));
  auto second = KernelLibrary::Load(ReadFile(HEDDLE_OTHER_KERNELS));
  ASSERT_TRUE(first.ok() && second.ok());
  const auto a = (*first)->Find("add");
  const auto b = (*second)->Find("add");
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(*a, *b);
  first->reset();  // its descriptor's number is free now
  auto third = KernelLibrary::Load(ReadFile(HEDDLE_TEST_KERNELS));
  ASSERT_TRUE(third.ok());
  EXPECT_TRUE((*third)->Find("square").ok());
  EXPECT_FALSE((*second)->Find("square").ok());
}

TEST(KernelLibraryTest, BadCodeIsAnError) {
  const std::string good = ReadFile(HEDDLE_TEST_KERNELS);
  EXPECT_FALSE(KernelLibrary::Load("").ok());
  EXPECT_FALSE(KernelLibrary::Load("\x7f"
                                   "ELF")
                   .ok());
  for (size_t size : {10, 64, 100, 1000}) {
    EXPECT_FALSE(KernelLibrary::Load(good.substr(0, size)).ok()) << size;
  }
  std::string other_machine = good;
  other_machine[18] = static_cast<char>(243);  // RISC-V
  EXPECT_THAT(std::string(KernelLibrary::Load(other_machine).status().message()),
              HasSubstr("another architecture"));
}

}  // namespace
}  // namespace heddle::runtime
