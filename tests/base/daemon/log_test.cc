// The log of a daemon, as people and programs read it.
#include "base/daemon/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

const std::string kWild = "a\nb\t\x1b[31m\"\\\xff";

class LogTest : public ::testing::Test {
 protected:
  LogTest() : folder_(::testing::TempDir() + "/log-XXXXXX") {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  }
  ~LogTest() override {
    EXPECT_TRUE(StartLog("test", {}).ok());  // lets go of the file
    std::filesystem::remove_all(folder_);
  }
  void Start(LogOptions options) {
    options.file = File();
    const absl::Status started = StartLog("heddle-test", options);
    ASSERT_TRUE(started.ok()) << started;
  }
  std::string File() const { return folder_ + "/heddle.log"; }
  std::vector<std::string> Lines() const {
    std::ifstream file(File());
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  std::string folder_;
};

TEST_F(LogTest, TextHasTheFieldsBehindTheMessage) {
  Start({});
  Log(LogLevel::kWarning, "job failed",
      {{"job", "j3"}, {"trials", int64_t{12}}, {"seconds", 1.25}, {"reason", "no such operator"}});
  spdlog::info("{} lines", 2);
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0],
              AllOf(HasSubstr("[heddle-test] [warning] job failed job=j3 trials=12 seconds=1.25"),
                    EndsWith(" reason=\"no such operator\"")));
  EXPECT_THAT(lines[1], EndsWith("[heddle-test] [info] 2 lines")) << "no fields of another line";
}

TEST_F(LogTest, JsonIsAnObjectALine) {
  Start({.format = "json"});
  Log(LogLevel::kInfo, "stage ended", {{"job", "j3"}, {"attempt", int64_t{7}}, {"seconds", 0.5}});
  spdlog::error("by {}", "spdlog");
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 2u);
  const auto stage = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(stage.at("message"), "stage ended");
  EXPECT_EQ(stage.at("level"), "info");
  EXPECT_EQ(stage.at("program"), "heddle-test");
  EXPECT_EQ(stage.at("job"), "j3");
  EXPECT_EQ(stage.at("attempt"), 7);
  EXPECT_EQ(stage.at("seconds"), 0.5);
  EXPECT_THAT(stage.at("time").get<std::string>(),
              ::testing::MatchesRegex("20..-..-..T..:..:..[.]...Z"));
  const auto plain = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(plain.at("message"), "by spdlog");
  EXPECT_EQ(plain.at("level"), "error");
  EXPECT_FALSE(plain.contains("job"));
}

TEST_F(LogTest, NoTextMakesASecondLineOrChangesTheTerminal) {
  for (const char* format : {"text", "json"}) {
    std::filesystem::remove(File());
    Start({.format = format});
    Log(LogLevel::kInfo, kWild, {{"name", kWild}});
    spdlog::warn("{}", kWild);
    const auto lines = Lines();
    ASSERT_EQ(lines.size(), 2u) << format;
    for (const std::string& line : lines) {
      EXPECT_EQ(line.find_first_of("\x1b\t\r"), std::string::npos) << line;
      if (std::string(format) == "json") {
        EXPECT_EQ(nlohmann::json::parse(line).at("message"), "a b  [31m\"\\?");
      }
    }
  }
}

TEST_F(LogTest, TheLevelDecidesWhatIsLogged) {
  const auto count = [this](const LogOptions& options) {
    std::filesystem::remove(File());
    Start(options);
    for (const LogLevel level :
         {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError})
      Log(level, "x");
    return Lines().size();
  };
  EXPECT_EQ(count({}), 3u);
  EXPECT_EQ(count({.verbose = true}), 4u);
  EXPECT_EQ(count({.level = "error"}), 1u);
  EXPECT_EQ(count({.level = "warning", .verbose = true}), 2u) << "the level says more than -v";
}

TEST_F(LogTest, AFullFileMakesRoomAndTheOldestGoes) {
  Start({});
  const std::string long_line(1 << 20, 'x');
  for (int i = 0; i < 90; ++i) Log(LogLevel::kInfo, long_line);
  uintmax_t bytes = 0;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    ++files;
    bytes += entry.file_size();
  }
  EXPECT_EQ(files, 4);
  EXPECT_LE(bytes, uintmax_t{68} << 20);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/heddle.3.log"));
}

TEST_F(LogTest, WhatIsNoRegularFileIsWrittenAsItIs) {
  ASSERT_TRUE(StartLog("heddle-test", {.file = "/dev/null"}).ok());
  Log(LogLevel::kInfo, "x");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_FALSE(std::filesystem::exists("/dev/null.1"));
}

TEST_F(LogTest, AFileThatCannotBeWrittenIsNamed) {
  const absl::Status status = StartLog("heddle-test", {.file = folder_ + "/nowhere/log"});
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--log-file"), HasSubstr("/nowhere/log"), HasSubstr("No such file")));
  EXPECT_TRUE(absl::IsInvalidArgument(StartLog("heddle-test", {.file = folder_})));
}

TEST_F(LogTest, AChildLogsAlikeIntoAFileOfItsOwn) {
  EXPECT_THAT(LogFlags({}, "worker"), ElementsAre("--log-format", "text", "--log-level", "info"));
  EXPECT_THAT(
      LogFlags({.format = "json", .file = "/x/log", .verbose = true}, "worker"),
      ElementsAre("--log-format", "json", "--log-level", "debug", "--log-file", "/x/log.worker"));
}

TEST_F(LogTest, FieldsOfThreadsDoNotMix) {
  Start({.format = "json"});
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int k = 0; k < 200; ++k) Log(LogLevel::kInfo, absl::StrCat(i), {{"thread", i}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 800u);
  for (const std::string& line : lines) {
    const auto object = nlohmann::json::parse(line);
    EXPECT_EQ(object.at("message"), absl::StrCat(object.at("thread").get<int64_t>()));
  }
}

}  // namespace
}  // namespace heddle
