// The files of the audit log: one line a call, and a bound on all of them.
#include "proto/access/audit_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace heddle::scheduler {
namespace {

class AuditLogTest : public ::testing::Test {
 protected:
  AuditLogTest() : folder_(absl::StrCat(::testing::TempDir(), "/audit", getpid())) {
    std::filesystem::remove_all(folder_);
  }
  ~AuditLogTest() override { std::filesystem::remove_all(folder_); }
  std::vector<nlohmann::json> Lines(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  const std::string folder_;
};

TEST_F(AuditLogTest, EveryTextMakesOneLine) {
  auto log = AuditLog::Open(folder_).value();
  const std::string wild = "a\nb\"\\\xff{}";
  log->Call({Role::kUser, wild, wild}, "m", wild,
            {grpc::StatusCode::INTERNAL, wild + std::string(9999, 'x')});
  log->Call({Role::kOperator, "olga", "olga"}, "m", "", grpc::Status::OK,
            wild + std::string(9999, 'x'));
  const auto lines = Lines("calls.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].value("result", ""), "INTERNAL");
  EXPECT_LT(lines[0].value("message", "").size(), 600u);
  EXPECT_FALSE(lines[0].contains("detail"));
  EXPECT_LT(lines[1].value("detail", "").size(), 600u);
  EXPECT_THAT(lines[1].value("detail", ""), ::testing::StartsWith("a\nb"));
  EXPECT_FALSE(lines[1].contains("job"));
  EXPECT_FALSE(lines[1].contains("message"));
  struct stat info = {};
  ASSERT_EQ(stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(AuditLogTest, OldLinesGoAndTheNewestStay) {
  const RotatingLog::Limits limits{.file_bytes = 2000, .files = 3};
  std::filesystem::create_directory(folder_);
  {
    auto log = RotatingLog::Open(folder_, "x", limits).value();
    for (int i = 0; i < 500; ++i) log->Add(absl::StrCat("{\"i\":", i, "}"));
  }
  auto log = RotatingLog::Open(folder_, "x", limits).value();  // goes on where it was
  for (int i = 500; i < 1000; ++i) log->Add(absl::StrCat("{\"i\":", i, "}"));
  int64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder_))
    bytes += static_cast<int64_t>(file.file_size());
  EXPECT_LE(bytes, 3 * 2000);
  EXPECT_GT(bytes, 2 * 1900);
  std::vector<int> all;
  for (const char* name : {"x.2.jsonl", "x.1.jsonl", "x.jsonl"}) {
    for (const nlohmann::json& line : Lines(name)) all.push_back(line["i"]);
  }
  ASSERT_FALSE(all.empty());
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(all[i], 1000 - static_cast<int>(all.size()) + static_cast<int>(i)) << "no gap";
}

TEST_F(AuditLogTest, ManyThreadsLoseNothing) {
  auto log = AuditLog::Open(folder_, {.lines = 1000}).value();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 250; ++i)
        log->Call({Role::kUser, "ann", "ann"}, "m", absl::StrCat(t, "-", i), grpc::Status::OK);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> jobs;
  for (const nlohmann::json& line : Lines("calls.jsonl")) jobs.insert(line.value("job", ""));
  EXPECT_EQ(jobs.size(), 1000u);
}

// Who calls again and again hides neither what others did nor what else he did.
TEST_F(AuditLogTest, ACallerGetsSoManyLinesAMinute) {
  absl::Time now = absl::FromUnixSeconds(6000);
  const Identity ann{Role::kUser, "ann", "vision"}, bob{Role::kUser, "bob", "vision"};
  {
    auto log = AuditLog::Open(folder_, {.lines = 60, .now = [&] { return now; }}).value();
    for (int i = 0; i < 1000; ++i) {
      log->Call(ann, "PauseJob", absl::StrCat("j", i), grpc::Status::OK);
      log->Refused(ann, "CollectJobs", absl::PermissionDeniedError("no"));
    }
    log->Call(ann, "CancelJob", "j7", grpc::Status::OK);
    log->Call(bob, "PauseJob", "j8", grpc::Status::OK);
    EXPECT_EQ(Lines("calls.jsonl").size(), 62u);
    now += absl::Minutes(1);
    log->Call(ann, "PauseJob", "j9", grpc::Status::OK);
    const auto lines = Lines("calls.jsonl");
    ASSERT_EQ(lines.size(), 64u);
    EXPECT_EQ(lines[59].value("job", ""), "j59");
    EXPECT_EQ(lines[60].value("method", ""), "CancelJob");
    EXPECT_EQ(lines[61].value("name", ""), "bob");
    EXPECT_EQ(lines[62].value("left_out", 0), 940);
    EXPECT_EQ(lines[62].value("name", ""), "ann");
    EXPECT_EQ(lines[62].value("tenant", ""), "vision");
    EXPECT_EQ(lines[62].value("method", ""), "PauseJob");
    EXPECT_FALSE(lines[62].contains("result"));
    EXPECT_EQ(lines[63].value("job", ""), "j9");
  }
  EXPECT_EQ(Lines("refused.jsonl").size(), 61u) << "the end of the log tells, too";
}

TEST_F(AuditLogTest, MadeUpNamesOfMethodsCountTogether) {
  const Identity ann{Role::kUser, "ann", "vision"};
  {
    auto log = AuditLog::Open(folder_, {.lines = 60}).value();
    for (int i = 0; i < 1000; ++i) {
      log->Refused(ann, absl::StrCat("heddle.v1.No/", i, std::string(4000, 'x')),
                   absl::PermissionDeniedError("no"));
    }
  }
  const auto lines = Lines("refused.jsonl");
  EXPECT_LE(lines.size(), 2 * 61u) << "of one minute, or of two";
  EXPECT_LE(lines[0].value("method", "").size(), 500u);
}

TEST_F(AuditLogTest, AFolderThatCannotBeIsNamed) {
  const auto log = AuditLog::Open(folder_ + "/no/such");
  EXPECT_TRUE(absl::IsInvalidArgument(log.status()));
}

}  // namespace
}  // namespace heddle::scheduler
