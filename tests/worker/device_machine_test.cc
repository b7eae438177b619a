// Measured once, kept, measured again when asked or when the file is for something else.
#include "worker/supervisor/device_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace heddle::worker {
namespace {

using ::testing::HasSubstr;

class DeviceMachineTest : public ::testing::Test {
 protected:
  DeviceMachineTest() {
    options_.folder = absl::StrCat(::testing::TempDir(), "/machines", getpid());
    std::filesystem::remove_all(options_.folder);
    options_.device_key = "key";
    options_.target = "llvm -mcpu=x";
    options_.version = 1;
    options_.check = [](const std::string& text) {
      return text.starts_with("good") ? absl::OkStatus() : absl::InvalidArgumentError("not good");
    };
    Child("echo good one");
  }
  ~DeviceMachineTest() override { std::filesystem::remove_all(options_.folder); }
  void Child(const std::string& script) { options_.command = {"/bin/sh", "-c", script}; }
  std::string Get() {
    const auto found = MachineOfDevice(options_);
    measured_ = found.ok() && found->took > absl::ZeroDuration();
    return found.ok() ? found->text : std::string(found.status().message());
  }

  DeviceMachineOptions options_;
  bool measured_ = false;  // by the last Get
};

TEST_F(DeviceMachineTest, IsMeasuredOnceForWhatItIsFor) {
  EXPECT_EQ(Get(), "good one\n");
  EXPECT_TRUE(measured_);
  Child("echo good two");
  EXPECT_EQ(Get(), "good one\n");
  EXPECT_FALSE(measured_);
  const auto others = [&](const auto& change) {
    DeviceMachineOptions before = options_;
    change();
    EXPECT_EQ(Get(), "good two\n");
    EXPECT_TRUE(measured_);
    options_ = before;
  };
  others([&] { options_.device_key = "other"; });
  others([&] { options_.target = "llvm -mcpu=y"; });
  others([&] { options_.version = 2; });
  EXPECT_EQ(Get(), "good one\n");
  options_.again = true;
  EXPECT_EQ(Get(), "good two\n");
  options_.again = false;
  EXPECT_EQ(Get(), "good two\n");
  EXPECT_FALSE(measured_);
}

TEST_F(DeviceMachineTest, ADamagedFileIsReplaced) {
  Get();
  for (const auto& file : std::filesystem::directory_iterator(options_.folder))
    std::ofstream(file.path()) << "bad";
  EXPECT_EQ(Get(), "good one\n");
  EXPECT_TRUE(measured_);
  EXPECT_EQ(Get(), "good one\n");
  EXPECT_FALSE(measured_);
}

TEST_F(DeviceMachineTest, WithoutAFolderItIsMeasuredEachTime) {
  options_.folder = "/proc/nowhere";
  EXPECT_EQ(Get(), "good one\n");
  EXPECT_EQ(Get(), "good one\n");
  EXPECT_TRUE(measured_);
}

TEST_F(DeviceMachineTest, FailuresAreOneLine) {
  Child("echo first >&2; echo no clock >&2; exit 1");
  EXPECT_EQ(Get(), "no clock");
  Child("kill -9 $$");
  EXPECT_EQ(Get(), "killed by SIGKILL");
  Child("echo bad");
  EXPECT_EQ(Get(), "not good");
  Child("while true; do echo good; done");
  EXPECT_THAT(Get(), HasSubstr("prints too much"));
  options_.limit = absl::Milliseconds(50);
  Child("sleep 60");
  EXPECT_THAT(Get(), HasSubstr("too long"));
  options_.command = {"/nowhere"};
  EXPECT_THAT(Get(), HasSubstr("/nowhere"));
  EXPECT_FALSE(std::filesystem::exists(options_.folder)) << "nothing is kept";
}

}  // namespace
}  // namespace heddle::worker
