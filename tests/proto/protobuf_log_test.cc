// The protobuf library's own messages: some reach the log, and never many.
#include "proto/protobuf_log.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "proto/common.pb.h"

namespace heddle {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::vector<std::string> logged;  // under the lock of the log
void Take(const std::string& line) { logged.push_back(line); }

// A message with a text that is no UTF-8: the parser refuses it and says so.
void ParseBadText(int times) {
  v1::Fault fault;
  fault.set_message("a text");
  std::string bytes = fault.SerializeAsString();
  bytes[bytes.find("a text")] = '\xff';
  for (int i = 0; i < times; ++i) EXPECT_FALSE(fault.ParseFromString(bytes));
}

TEST(ProtobufLog, ManyBadMessagesAreFewLines) {
  RouteProtobufLog(Take, {.lines = 4, .per = absl::Seconds(3)});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([] { ParseBadText(2500); });
  for (std::thread& thread : threads) thread.join();
  const absl::Time done = absl::Now();
  ASSERT_GE(logged.size(), 4u);
  EXPECT_THAT(logged[0], StartsWith("protobuf: "));
  EXPECT_THAT(logged[0], HasSubstr("heddle.v1.Fault.message"));
  EXPECT_THAT(logged[0], Not(HasSubstr("\n")));
  // On a busy machine, the threads may take longer than one period.
  EXPECT_LE(logged.size(), 40u);
  absl::SleepFor(done + absl::Seconds(3.1) - absl::Now());
  logged.clear();
  ParseBadText(1);
  ASSERT_THAT(logged, SizeIs(1));
  EXPECT_THAT(logged[0], HasSubstr(" more messages were left out)"));
  ParseBadText(1);
  ASSERT_THAT(logged, SizeIs(2));
  EXPECT_THAT(logged[1], Not(EndsWith("left out)")));
  google::protobuf::SetLogHandler(nullptr);
}

}  // namespace
}  // namespace heddle
