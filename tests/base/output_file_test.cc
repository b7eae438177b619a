#include "base/files/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace heddle {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class OutputFileTest : public ::testing::Test {
 protected:
  OutputFileTest() : folder_(fs::path(::testing::TempDir()) / ("out" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~OutputFileTest() override { fs::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string Text(const std::string& name) const {
    std::ifstream file(Path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t Files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }
  const fs::path folder_;
};

TEST_F(OutputFileTest, ARegularFileChangesAtCommitOnly) {
  ASSERT_TRUE(WriteFile(Path("a"), "old").ok());
  {
    auto file = OutputFile::Open(Path("a"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Append("new").ok());
    EXPECT_EQ(Text("a"), "old");
  }
  EXPECT_EQ(Text("a"), "old") << "without Commit nothing changes";
  EXPECT_EQ(Files(), 1u) << "no temporary file stays";
  ASSERT_TRUE(WriteFile(Path("a"), "new").ok());
  EXPECT_EQ(Text("a"), "new");
}

TEST_F(OutputFileTest, AskingWhetherItCanBeWrittenChangesNothing) {
  ASSERT_TRUE(WriteFile(Path("a"), "old").ok());
  for (const std::string& path :
       {Path("a"), Path("new"), std::string("-"), std::string("/dev/null")})
    EXPECT_TRUE(CheckWritable(path).ok()) << path;
  EXPECT_EQ(Text("a"), "old");
  EXPECT_EQ(Files(), 1u);
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(CheckWritable(Path("pipe")).ok()) << "it does not wait for a reader";
  for (const std::string& path : {Path("nowhere/a"), folder_.string()}) {
    const absl::Status refused = CheckWritable(path);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << path;
    EXPECT_THAT(refused.message(), HasSubstr(path));
  }
}

TEST_F(OutputFileTest, PermissionsStay) {
  ASSERT_TRUE(WriteFile(Path("a"), "old").ok());
  fs::permissions(Path("a"), fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_TRUE(WriteFile(Path("a"), "new").ok());
  struct stat found {};
  ASSERT_EQ(stat(Path("a").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0600u);
}

TEST_F(OutputFileTest, LinksAreFollowed) {
  fs::create_directories(folder_ / "sub");
  fs::create_symlink("sub/target", folder_ / "relative");
  fs::create_symlink(Path("relative"), folder_ / "absolute");
  ASSERT_TRUE(WriteFile(Path("absolute"), "text").ok());
  EXPECT_EQ(Text("sub/target"), "text") << "it was not there before";
  ASSERT_TRUE(WriteFile(Path("relative"), "again").ok());
  EXPECT_EQ(Text("sub/target"), "again");
  EXPECT_TRUE(fs::is_symlink(Path("absolute")));
  EXPECT_TRUE(fs::is_symlink(Path("relative")));
  fs::create_symlink("loop", folder_ / "loop");
  EXPECT_FALSE(WriteFile(Path("loop"), "text").ok());
}

TEST_F(OutputFileTest, DevicesAndPipesStayWhatTheyAre) {
  ASSERT_TRUE(WriteFile("/dev/null", "text").ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = Text("pipe"); });
  EXPECT_TRUE(WriteFile(Path("pipe"), "through").ok());
  reader.join();
  EXPECT_EQ(got, "through");
  EXPECT_TRUE(fs::is_fifo(Path("pipe")));
}

TEST_F(OutputFileTest, WhatCannotBeWrittenIsNamed) {
  const absl::Status full = WriteFile("/dev/full", "text");
  EXPECT_THAT(std::string(full.message()), HasSubstr("'/dev/full': No space left"));
  EXPECT_THAT(std::string(WriteFile(Path("no/such"), "x").message()), HasSubstr("no/such"));
  EXPECT_THAT(std::string(WriteFile(folder_.string(), "x").message()), HasSubstr("directory"));
}

}  // namespace
}  // namespace heddle
