// The third-level cache is the one that Linux describes, and none where it describes none.
#include "compiler/measure/cache_size.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace heddle {
namespace {

void Describe(const std::string& folder, int index, const std::string& level,
              const std::string& size) {
  const std::string cache = folder + "/index" + std::to_string(index);
  std::filesystem::create_directories(cache);
  std::ofstream(cache + "/level") << level << "\n";
  std::ofstream(cache + "/size") << size << "\n";
}

TEST(CacheSize, IsThatOfTheThirdLevel) {
  const std::string folder = testing::TempDir() + "/caches" + std::to_string(getpid());
  EXPECT_EQ(ThirdLevelCacheBytes(folder), 0) << "nothing is described";
  Describe(folder, 0, "1", "32K");
  Describe(folder, 2, "2", "1024K");
  EXPECT_EQ(ThirdLevelCacheBytes(folder), 0);
  Describe(folder, 3, "3", "K");
  EXPECT_EQ(ThirdLevelCacheBytes(folder), 0) << "its size is not readable";
  Describe(folder, 3, "3", "32768K");
  EXPECT_EQ(ThirdLevelCacheBytes(folder), int64_t{32} << 20);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace heddle
