// The cache of compiled GPU code, by itself and under the back end (with a compiler in NVRTC's
// place, fake_nvrtc.cc, which counts).
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda/code_cache.h"
#include "compiler/codegen/cuda/cuda_backend.h"
#include "compiler/ir/text.h"
#include "compiler/runtime/cubins.h"
#include "tests/codegen/cuda/host_code.h"

namespace heddle::codegen {
namespace {

class CodeCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / "heddle-cache-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    setenv("HEDDLE_CODE_CACHE", (folder_ + "/code").c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string OnlyFile() const {
    std::string file;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/code")) {
      EXPECT_EQ(file, "") << "more than one";
      file = entry.path();
    }
    return file;
  }

  std::string folder_;
};

TEST_F(CodeCacheTest, GivesWhatWasPutUnderTheSameKey) {
  const auto cache = CodeCache::Open();
  ASSERT_TRUE(cache);
  EXPECT_FALSE(cache->Find("a"));
  cache->Put("a", {std::string("cubin\0x", 7), "log"});
  const auto found = CodeCache::Open()->Find("a");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->cubin, std::string("cubin\0x", 7));
  EXPECT_EQ(found->log, "log");
  EXPECT_FALSE(cache->Find("b"));
  cache->Put("a", {"new", ""});
  EXPECT_EQ(cache->Find("a")->cubin, "new");
  EXPECT_NE(OnlyFile(), "");
}

// Keys that fall on one file: the later has it, and neither is taken for the other.
TEST_F(CodeCacheTest, IsBounded) {
  const auto cache = CodeCache::Open();
  const int keys = 3 * CodeCache::kFiles;
  for (int k = 0; k < keys; ++k) cache->Put(absl::StrCat("key", k), {absl::StrCat(k), ""});
  uint64_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_ + "/code"))
    ++files;
  EXPECT_LE(files, CodeCache::kFiles);
  int kept = 0;
  for (int k = 0; k < keys; ++k) {
    const auto found = cache->Find(absl::StrCat("key", k));
    kept += found.has_value();
    if (found) {
      EXPECT_EQ(found->cubin, absl::StrCat(k));
    }
  }
  EXPECT_EQ(static_cast<uint64_t>(kept), files);
  cache->Put("large", {std::string(CodeCache::kLargestFile, 'x'), ""});
  EXPECT_FALSE(cache->Find("large"));
}

TEST_F(CodeCacheTest, WhatIsDamagedIsNotFound) {
  const auto cache = CodeCache::Open();
  cache->Put("key", {"cubin", "log"});
  const std::string file = OnlyFile();
  std::ifstream in(file, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    std::ofstream(file, std::ios::binary) << changed;
    EXPECT_FALSE(cache->Find("key")) << at;
    std::ofstream(file, std::ios::binary) << whole.substr(0, at);
    EXPECT_FALSE(cache->Find("key")) << at;
  }
  std::ofstream(file, std::ios::binary) << whole;
  EXPECT_TRUE(cache->Find("key"));
}

TEST_F(CodeCacheTest, WhatIsNoFileIsNotFound) {
  const auto cache = CodeCache::Open();
  cache->Put("key", {"cubin", "log"});
  const std::string file = OnlyFile();
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  EXPECT_FALSE(cache->Find("key"));
  cache->Put("key", {"cubin", "log"});
  EXPECT_FALSE(cache->Find("key"));
  EXPECT_EQ(OnlyFile(), file) << "nothing is left beside it";
  std::filesystem::remove(file);
  // Somebody was killed here.
  std::ofstream(file + ".new") << "half of it, and longer than all of what is to come, " << file;
  cache->Put("key", {"cubin", "log"});
  EXPECT_TRUE(cache->Find("key"));
  EXPECT_EQ(OnlyFile(), file);
}

TEST_F(CodeCacheTest, WithoutAFolderNothingIsKept) {
  unsetenv("HEDDLE_CODE_CACHE");
  EXPECT_FALSE(CodeCache::Open());
  setenv("HEDDLE_CODE_CACHE", "/proc/nowhere", 1);
  EXPECT_FALSE(CodeCache::Open());
}

// y = x + `value`.
ir::Program Sum(const std::string& value, const std::string& name = "p") {
  auto program = ir::Parse(
      absl::StrCat("program ", name,
                   "(x: f32[8]) -> (y: f32[8]) { for b in 1 blockIdx.x { for t in 8 threadIdx.x { "
                   "y[t] = (x[t] + ",
                   value, ") } } }"));
  EXPECT_TRUE(program.ok()) << program.status();
  return *std::move(program);
}
absl::StatusOr<Artifact> Compile(const std::vector<ir::Program>& programs,
                                 const char* arch = "sm_90") {
  return CompileCuda(programs, *ParseTarget(absl::StrCat("cuda -arch=", arch)));
}
absl::StatusOr<Artifact> CompileSum(const std::string& value, const char* arch) {
  return Compile({Sum(value)}, arch);
}

// Each compilation in a process of its own, which loads what is there then; before this one loads
// any.
using CodeCacheDeathTest = CodeCacheTest;
TEST_F(CodeCacheDeathTest, AnotherCompilerInTheSamePlaceIsAnother) {
  if (!heddle::testing::HasHostCompiler()) GTEST_SKIP() << "the C++ compiler of the build is gone";
  const std::string file = folder_ + "/libnvrtc.so";
  std::filesystem::copy_file(HEDDLE_FAKE_NVRTC, file);
  setenv("HEDDLE_NVRTC", file.c_str(), 1);
  const auto compilations = [&] {
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    const bool compiled = library != nullptr && CompileSum("1.0", "sm_90").ok();
    _exit(compiled ? reinterpret_cast<int (*)()>(dlsym(library, "fake_nvrtc_compilations"))() : 99);
  };
  EXPECT_EXIT(compilations(), ::testing::ExitedWithCode(1), "");
  EXPECT_EXIT(compilations(), ::testing::ExitedWithCode(0), "");
  std::filesystem::last_write_time(
      file, std::filesystem::last_write_time(file) - std::chrono::seconds(1));
  EXPECT_EXIT(compilations(), ::testing::ExitedWithCode(1), "");
}

TEST_F(CodeCacheTest, TheSameSourceIsCompiledOnce) {
  if (!heddle::testing::HasHostCompiler()) GTEST_SKIP() << "the C++ compiler of the build is gone";
  setenv("HEDDLE_NVRTC", HEDDLE_FAKE_NVRTC, 1);
  void* library = dlopen(HEDDLE_FAKE_NVRTC, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  auto* compilations = reinterpret_cast<int (*)()>(dlsym(library, "fake_nvrtc_compilations"));
  const auto first = CompileSum("1.0", "sm_90"), again = CompileSum("1.0", "sm_90");
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(compilations(), 1);
  EXPECT_EQ(first->shared_object, again->shared_object);
  EXPECT_EQ(again->kernels[0].launches[0].registers, 32) << "the report is kept too";
  ASSERT_TRUE(CompileSum("2.0", "sm_90").ok());
  ASSERT_TRUE(CompileSum("1.0", "sm_80").ok());
  EXPECT_EQ(compilations(), 3);
}

// The number of compilations that this process has made, by the fake NVRTC.
int Compilations() {
  void* library = dlopen(HEDDLE_FAKE_NVRTC, RTLD_NOW | RTLD_LOCAL);
  return library == nullptr
             ? -1
             : reinterpret_cast<int (*)()>(dlsym(library, "fake_nvrtc_compilations"))();
}

size_t Parts(const Artifact& artifact) {
  const auto cubins = runtime::SplitCubins(artifact.shared_object);
  EXPECT_TRUE(cubins.ok()) << cubins.status();
  return cubins.ok() ? cubins->size() : 0;
}

// As a module finds the candidates of its tasks, under other names.
TEST_F(CodeCacheTest, AProgramAmongOthersIsFoundThatWasCompiledAlone) {
  if (!heddle::testing::HasHostCompiler()) GTEST_SKIP() << "the C++ compiler of the build is gone";
  setenv("HEDDLE_NVRTC", HEDDLE_FAKE_NVRTC, 1);
  const auto alone = Compile({Sum("11.0")});
  ASSERT_TRUE(alone.ok()) << alone.status();
  const int before = Compilations();
  const auto module = Compile({Sum("12.0", "q"), Sum("11.0", "r"), Sum("11.0", "s")});
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(Compilations() - before, 1);
  EXPECT_EQ(Parts(*module), 2u);
  ASSERT_EQ(module->kernels.size(), 3u);
  for (const KernelInfo& kernel : module->kernels)
    EXPECT_EQ(kernel.launches[0].registers, 32) << kernel.symbol;
  const std::string& symbol = alone->kernels[0].launches[0].symbol;
  EXPECT_EQ(module->kernels[0].symbol, "q");
  EXPECT_NE(module->kernels[0].launches[0].symbol, symbol);
  EXPECT_EQ(module->kernels[1].launches[0].symbol, symbol);
  EXPECT_EQ(module->kernels[2].launches[0].symbol, symbol);
}

TEST_F(CodeCacheTest, WhatIsNotFoundIsCompiledInAPartForEachCpu) {
  if (!heddle::testing::HasHostCompiler()) GTEST_SKIP() << "the C++ compiler of the build is gone";
  setenv("HEDDLE_NVRTC", HEDDLE_FAKE_NVRTC, 1);
  unsetenv("HEDDLE_CODE_CACHE");
  cpu_set_t allowed, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
  }
  const std::vector<ir::Program> programs = {Sum("21.0"), Sum("22.0"), Sum("23.0")};
  int before = Compilations();
  const auto all = Compile(programs);
  ASSERT_TRUE(all.ok()) << all.status();
  const int parts = std::min(3, CPU_COUNT(&allowed));
  EXPECT_EQ(Compilations() - before, parts);
  EXPECT_EQ(Parts(*all), static_cast<size_t>(parts));
  before = Compilations();
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const auto alone = Compile(programs);
  ASSERT_EQ(sched_setaffinity(0, sizeof allowed, &allowed), 0);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(Compilations() - before, 1);
  EXPECT_EQ(Parts(*alone), 1u);
  for (size_t k = 0; k < programs.size(); ++k) {
    EXPECT_EQ(all->kernels[k].launches, alone->kernels[k].launches);
    EXPECT_EQ(all->kernels[k].launches[0].registers, 32);
  }
}

// As a candidate with a kernel that prepacks its constants, which no module has.
TEST_F(CodeCacheTest, OfTwoProgramsEachIsFoundAlone) {
  if (!heddle::testing::HasHostCompiler()) GTEST_SKIP() << "the C++ compiler of the build is gone";
  setenv("HEDDLE_NVRTC", HEDDLE_FAKE_NVRTC, 1);
  cpu_set_t allowed, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  int before = Compilations();
  const auto candidate = Compile({Sum("31.0", "k"), Sum("32.0", "prepack")});
  const int apart = Compilations() - before;
  before = Compilations();
  const auto module = Compile({Sum("33.0"), Sum("31.0", "q"), Sum("34.0"), Sum("35.0")});
  ASSERT_EQ(sched_setaffinity(0, sizeof allowed, &allowed), 0);
  ASSERT_TRUE(candidate.ok()) << candidate.status();
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(apart, 2);
  EXPECT_EQ(Compilations() - before, 1) << "three together";
  EXPECT_EQ(Parts(*module), 2u);
  EXPECT_EQ(candidate->kernels[0].launches, module->kernels[1].launches);
}

}  // namespace
}  // namespace heddle::codegen
