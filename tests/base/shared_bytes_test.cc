#include "base/files/shared_bytes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/files/mapped_file.h"

namespace heddle {
namespace {

std::string TempFile(const std::string& bytes) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/mapped", getpid());
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(SharedBytes, NullIsNotEmpty) {
  EXPECT_TRUE(SharedBytes() == nullptr);
  EXPECT_FALSE(SharedBytes::Of("") == nullptr);
  EXPECT_EQ(*SharedBytes::Of("ab"), "ab");
}

TEST(MapFile, PartsOfAFile) {
  const std::string bytes(10'000, 'a');
  const std::string path = TempFile(bytes + "b" + bytes);
  EXPECT_EQ((*MapFile(path))->size(), 20'001u);
  const SharedBytes part = *MapFile(path, 10'000, 3);
  EXPECT_EQ(*part, "baa");
  EXPECT_EQ((*MapFile(path, 20'001))->size(), 0u);
  std::filesystem::remove(path);
  EXPECT_EQ(*part, "baa") << "it outlives its file's name";
}

TEST(MapFile, WhatIsNotThereIsRefused) {
  const std::string path = TempFile("abc");
  EXPECT_TRUE(absl::IsOutOfRange(MapFile(path, 1, 3).status()));
  EXPECT_TRUE(absl::IsOutOfRange(MapFile(path, 4).status()));
  EXPECT_TRUE(absl::IsOutOfRange(MapFile(path, -1, 1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(MapFile(::testing::TempDir()).status()));
  std::filesystem::remove(path);
  EXPECT_TRUE(absl::IsNotFound(MapFile(path).status()));
}

TEST(SharedBytes, LargeOnesLieInAFile) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/large", getpid());
  std::filesystem::create_directories(folder);
  KeepLargeBytesIn(folder, 100'000);
  const std::string text(200'000, 'x');
  const SharedBytes made = SharedBytes::Of(text), copied = SharedBytes::Copy(text);
  EXPECT_EQ(*made, text);
  EXPECT_EQ(*copied, text);
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "the files have no names";
  KeepLargeBytesIn(folder + "/missing", 1);
  EXPECT_EQ(*SharedBytes::Of("ab"), "ab") << "in memory, where there is no folder";
  KeepLargeBytesIn("", size_t{1} << 40);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace heddle
