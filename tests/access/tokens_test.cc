// The file of tokens: what counts, and from when.
#include "proto/access/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/sha256.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

std::string Line(const std::string& token, const std::string& rest) {
  return absl::StrCat(Sha256Hex(token), " ", rest, "\n");
}

class TokensTest : public ::testing::Test {
 protected:
  TokensTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "heddle_tokens_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/tokens";
  }
  ~TokensTest() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& text) {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), 0600);
  }

  std::string folder_, path_;
};

TEST_F(TokensTest, AKnownTokenIsItsOwnersUntilItExpires) {
  Write("# of the lab\n\n" + Line("secret", "user ann vision 1000") +
        Line("other", "operator olga olga 2000 # on call"));
  const TokenFile tokens(path_);
  const absl::Time now = absl::FromUnixSeconds(999);
  EXPECT_EQ(tokens.Find("secret", now).value(), (Identity{Role::kUser, "ann", "vision"}));
  EXPECT_EQ(tokens.Find("other", now)->role, Role::kOperator);
  EXPECT_TRUE(absl::IsUnauthenticated(tokens.Find("secre", now).status()));
  EXPECT_TRUE(absl::IsUnauthenticated(tokens.Find("", now).status()));
  EXPECT_TRUE(absl::IsUnauthenticated(tokens.Find(Sha256Hex("secret"), now).status()))
      << "whoever reads the file learns no token";
  EXPECT_THAT(std::string(tokens.Find("secret", absl::FromUnixSeconds(1000)).status().message()),
              HasSubstr("expired on 1970-01-01"));
}

TEST_F(TokensTest, ChangesCountSoon) {
  const TokenFile tokens(path_);
  const absl::Time now = absl::FromUnixSeconds(1);
  EXPECT_FALSE(tokens.Find("secret", now).ok()) << "no file, no tokens";
  Write(Line("secret", "user ann vision 1000"));
  const absl::Time limit = absl::Now() + absl::Seconds(30);
  while (!tokens.Find("secret", now).ok() && absl::Now() < limit)
    absl::SleepFor(absl::Milliseconds(50));
  EXPECT_TRUE(tokens.Find("secret", now).ok());
  std::filesystem::remove(path_);
  while (tokens.Find("secret", now).ok() && absl::Now() < limit)
    absl::SleepFor(absl::Milliseconds(50));
  EXPECT_FALSE(tokens.Find("secret", now).ok()) << "withdrawn";
}

TEST_F(TokensTest, AFileThatOthersCanWriteCountsForNothing) {
  Write(Line("secret", "user ann vision 1000"));
  chmod(path_.c_str(), 0622);
  const TokenFile tokens(path_);
  EXPECT_THAT(std::string(tokens.Find("secret", absl::FromUnixSeconds(1)).status().message()),
              HasSubstr("others can write"));
}

TEST_F(TokensTest, OneMalformedLineIsNamedAndNoTokenCounts) {
  for (const std::string& bad :
       std::vector<std::string>{"nonsense", "00 user ann vision 1000", Line("x", "user ann vision"),
                                Line("x", "user ann vision soon"), Line("x", "worker w1 w1 1000"),
                                Line("x", "local ann ann 1000"), Line("x", "user Ann vision 1000"),
                                Line("x", "user ann vision 1000 more")}) {
    const auto parsed = TokenFile::Parse("# first\n" + bad);
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("line 2")) << bad;
  }
  Write(Line("secret", "user ann vision 1000") + "nonsense\n");
  EXPECT_FALSE(TokenFile(path_).Find("secret", absl::FromUnixSeconds(1)).ok());
  EXPECT_EQ(TokenFile::Parse("")->size(), 0u);
}

}  // namespace
}  // namespace heddle
