// Configuration files: what they may say, and which of several values counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "client/config/config_file.h"
#include "client/config/config_options.h"

namespace heddle::client {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ConfigFile, HasOptionsOfAllCommandsAndOfOne) {
  const auto settings = ParseConfig(
      "server = \"a:1\"\n"
      "[tune]\n"
      "trials = 128\n"
      "no-winograd = true\n"
      "shape = [\"x=1x3\", \"y=2\"]\n"
      "[records.export]\n"
      "limit = 5\n",
      "f.toml");
  ASSERT_TRUE(settings.ok()) << settings.status();
  ASSERT_EQ(settings->size(), 5u);
  EXPECT_EQ(KeyOf((*settings)[0]), "server");
  EXPECT_EQ(KeyOf((*settings)[1]), "tune.trials");
  EXPECT_THAT((*settings)[1].values, ElementsAre("128"));
  EXPECT_EQ(OriginOf((*settings)[1]), "f.toml:3");
  EXPECT_THAT((*settings)[2].values, ElementsAre("true"));
  EXPECT_THAT((*settings)[3].values, ElementsAre("x=1x3", "y=2"));
  EXPECT_EQ((*settings)[4].command, "records export");
  EXPECT_EQ(KeyOf((*settings)[4]), "records.export.limit");
}

TEST(ConfigFile, MistakesNameTheLine) {
  const auto said = [](const std::string& text) {
    return std::string(ParseConfig(text, "f.toml").status().message());
  };
  EXPECT_THAT(said("a = 1\nb = = 2\n"), HasSubstr("f.toml:2"));
  EXPECT_THAT(said("a = 1\n\nday = 2030-01-31\n"), AllOf(HasSubstr("f.toml:3"), HasSubstr("day")));
  EXPECT_THAT(said("[a.b.c]\nd = 1\n"), HasSubstr("f.toml:"));
  EXPECT_THAT(said("a = [[1]]\n"), HasSubstr("f.toml:1"));
}

TEST(ConfigFile, PathsBeginInTheFilesFolder) {
  setenv("HOME", "/home/ann", 1);
  const auto settings =
      ParseConfig("tls-dir = \"lab\"\ntoken-file = \"~/t\"\ndata = \"/d\"\n", "/etc/heddle/c.toml");
  ASSERT_TRUE(settings.ok());
  EXPECT_THAT((*settings)[0].values, ElementsAre("/etc/heddle/lab"));
  EXPECT_THAT((*settings)[1].values, ElementsAre("/home/ann/t"));
  EXPECT_THAT((*settings)[2].values, ElementsAre("/d"));
}

// The files on disk.
class Files : public testing::Test {
 protected:
  Files() {
    std::string made = testing::TempDir() + "/config-XXXXXX";
    EXPECT_NE(mkdtemp(made.data()), nullptr);
    root_ = made;
    fs::create_directories(root_ / "project/deep/er");
    setenv("XDG_CONFIG_HOME", (root_ / "config").c_str(), 1);
  }
  ~Files() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  void Write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
    chmod((root_ / path).c_str(), 0644);
  }
  absl::StatusOr<std::vector<Setting>> Read(const std::string& folder) {
    return ReadConfig(root_ / folder, &warning_);
  }
  fs::path root_;
  std::string warning_;
};

TEST_F(Files, TheProjectsIsFoundUpwardAndGoesBeforeTheUsers) {
  Write("project/heddle.toml", "server = \"project:1\"\n");
  Write("config/heddle/config.toml", "server = \"user:1\"\n[tune]\ntrials = 5\n");
  const auto settings = Read("project/deep/er");
  ASSERT_TRUE(settings.ok()) << settings.status();
  ASSERT_EQ(settings->size(), 2u);
  EXPECT_THAT((*settings)[0].values, ElementsAre("project:1"));
  EXPECT_EQ(KeyOf((*settings)[1]), "tune.trials");
  // The nearest one counts, and only that.
  Write("project/deep/heddle.toml", "json = true\n");
  const auto nearer = Read("project/deep/er");
  ASSERT_TRUE(nearer.ok());
  EXPECT_EQ(KeyOf((*nearer)[0]), "json");
  EXPECT_THAT((*nearer)[1].values, ElementsAre("user:1"));
}

TEST_F(Files, WithoutFilesThereAreNoSettings) {
  const auto settings = Read("project");
  ASSERT_TRUE(settings.ok());
  EXPECT_THAT(*settings, IsEmpty());
  Write("config/heddle/config.toml", "");
  EXPECT_TRUE(Read("project").ok());
}

TEST_F(Files, AProjectDoesNotSayWhomToTrust) {
  for (const char* line : {"tls-dir = \"x\"", "token-file = \"x\"", "[tune]\noutput = \"x\"",
                           "[tune]\nhttp = \"127.0.0.1:0\""}) {
    Write("project/heddle.toml", line);
    EXPECT_THAT(std::string(Read("project").status().message()),
                AllOf(HasSubstr("heddle.toml:"), HasSubstr("config.toml")))
        << line;
    Write("config/heddle/config.toml", line);
    Write("project/heddle.toml", "");
    EXPECT_TRUE(Read("project").ok()) << line;
  }
}

TEST_F(Files, AFileThatOthersMayWriteIsLeftOut) {
  Write("project/heddle.toml", "server = \"evil:1\"\n");
  chmod((root_ / "project/heddle.toml").c_str(), 0666);
  const auto settings = Read("project");
  ASSERT_TRUE(settings.ok());
  EXPECT_THAT(*settings, IsEmpty());
  EXPECT_THAT(warning_, HasSubstr("heddle.toml is left out"));
}

// A command line like that of heddle.
class Options : public testing::Test {
 protected:
  Options() {
    app_.add_option("--server", server_)->envname("HEDDLE_CONFIG_TEST_SERVER");
    app_.fallthrough();
    app_.add_flag("--json", json_);
    app_.add_flag("-v,--verbose", verbosity_);
    CLI::App* tune = app_.add_subcommand("tune");
    tune->add_option("--trials", trials_)->check(CLI::Range(1, 1000));
    tune->add_flag("!--no-winograd", winograd_);
    tune->add_option("--shape", shapes_)->allow_extra_args(false);
    tune->add_option_function<int64_t>("--limit", [this](int64_t n) { limit_ = n; });
    unsetenv("HEDDLE_CONFIG_TEST_SERVER");
  }
  // Applies the file, then the command line.
  absl::Status Run(const std::string& text, std::vector<std::string> words) {
    const auto settings = ParseConfig(text, "f.toml");
    if (!settings.ok()) return settings.status();
    if (const absl::Status applied = ApplyConfig(*settings, words, &app_); !applied.ok())
      return applied;
    std::reverse(words.begin(), words.end());
    app_.parse(words);
    return absl::OkStatus();
  }
  CLI::App app_{"", "heddle"};
  std::string server_ = "built-in";
  bool json_ = false, winograd_ = true;
  int verbosity_ = 0, trials_ = 64;
  int64_t limit_ = 0;
  std::vector<std::string> shapes_;
};

TEST_F(Options, FlagsGoBeforeTheEnvironmentAndThatBeforeFiles) {
  const std::string file = "server = \"file\"\n[tune]\ntrials = 7\n";
  ASSERT_TRUE(Run(file, {"tune"}).ok());
  EXPECT_EQ(server_, "file");
  EXPECT_EQ(trials_, 7);
}

TEST_F(Options, TheEnvironmentGoesBeforeFiles) {
  setenv("HEDDLE_CONFIG_TEST_SERVER", "environment", 1);
  ASSERT_TRUE(Run("server = \"file\"\n", {"tune"}).ok());
  EXPECT_EQ(server_, "environment");
}

TEST_F(Options, TheCommandLineGoesBeforeAll) {
  setenv("HEDDLE_CONFIG_TEST_SERVER", "environment", 1);
  ASSERT_TRUE(Run("server = \"file\"\n[tune]\ntrials = 7\nshape = [\"a=1\", \"b=2\"]\n",
                  {"--server", "line", "tune", "--trials", "8", "--shape", "c=3"})
                  .ok());
  EXPECT_EQ(server_, "line");
  EXPECT_EQ(trials_, 8);
  EXPECT_THAT(shapes_, ElementsAre("c=3"));
}

TEST_F(Options, EveryKindOfOptionCanBeSet) {
  ASSERT_TRUE(Run("json = true\nverbose = 2\n[tune]\nno-winograd = true\nshape = [\"a=1,2\", "
                  "\"b=2\"]\nlimit = 9\n",
                  {"tune"})
                  .ok());
  EXPECT_TRUE(json_);
  EXPECT_EQ(verbosity_, 2);
  EXPECT_FALSE(winograd_);
  EXPECT_EQ(limit_, 9);
  EXPECT_THAT(shapes_, ElementsAre("a=1,2", "b=2"));
}

TEST_F(Options, AFlagThatIsFalseIsAsIfItWereNotGiven) {
  ASSERT_TRUE(Run("json = false\n[tune]\nno-winograd = false\n", {"tune"}).ok());
  EXPECT_FALSE(json_);
  EXPECT_TRUE(winograd_);
}

TEST_F(Options, UnknownOptionsAreErrorsWithASuggestion) {
  const auto said = [this](const std::string& text) {
    return std::string(Run(text, {"tune"}).message());
  };
  EXPECT_THAT(said("[tune]\ntrails = 7\n"),
              AllOf(HasSubstr("f.toml:2"), HasSubstr("did you mean 'trials'?")));
  EXPECT_THAT(said("[tun]\ntrials = 7\n"), HasSubstr("did you mean 'tune'?"));
  EXPECT_THAT(said("trials = 7\n"), HasSubstr("write it below a line [tune]"));
  EXPECT_THAT(said("[tune]\ntrials = 5000\n"), AllOf(HasSubstr("f.toml:2"), HasSubstr("5000")));
  EXPECT_THAT(said("[tune]\ntrials = [1, 2]\n"), HasSubstr("one value"));
  EXPECT_THAT(said("help = true\n"), HasSubstr("no option"));
}

}  // namespace
}  // namespace heddle::client
