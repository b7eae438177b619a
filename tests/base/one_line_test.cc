#include "base/one_line.h"

#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <string>
#include <string_view>

#include "proto/common.pb.h"

namespace heddle {
namespace {

TEST(OneLine, KeepsWhatIsFit) {
  EXPECT_EQ(OneLine(""), "");
  EXPECT_EQ(OneLine("größer than 2 €, \U0001f9f5"), "größer than 2 €, \U0001f9f5");
  EXPECT_EQ(OneLine("a\nb\r\tc\x7f"), "a b  c ");
  EXPECT_EQ(OneLine(std::string("a\0b", 3)), "a b");
  EXPECT_EQ(OneLine("a\u0085b\u009f\u00a0"), "a b \u00a0");
  EXPECT_EQ(OneLine("caf\xe9"), "caf?");
  EXPECT_EQ(OneLine("\xc0\x80 \xed\xa0\x80 \xf5\x80\x80\x80 \xe2\x82"), "?? ??? ???? ??");
}

// Protobuf is the judge of what is UTF-8.
TEST(OneLine, IsATextOfAMessage) {
  std::mt19937_64 rng(1);
  int changed = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text(rng() % 6, ' ');
    for (char& c : text) {
      constexpr unsigned char kOdd[] = {0x80, 0xbf, 0xc2, 0xdf, 0xe0, 0xed,
                                        0xef, 0xf0, 0xf4, 0x9f, 0xa0, 0x90};
      c = static_cast<char>(rng() % 2 ? kOdd[rng() % std::size(kOdd)] : rng());
    }
    v1::Fault fault, parsed;
    fault.set_message(OneLine(text));
    ASSERT_TRUE(parsed.ParseFromString(fault.SerializeAsString()));
    EXPECT_LE(parsed.message().size(), text.size());
    for (size_t at = 0; at < parsed.message().size(); ++at)
      EXPECT_EQ(ControlBytes(std::string_view(parsed.message()).substr(at)), 0u);
    changed += parsed.message() != text;
    EXPECT_EQ(OneLine(parsed.message()), parsed.message());
  }
  EXPECT_GT(changed, 1000);
}

TEST(ValidTextTest, KeepsLinesAndReplacesWhatNoDatabaseTakes) {
  EXPECT_EQ(ValidText("a\nb\t\xc3\xa9"), "a\nb\t\xc3\xa9");
  EXPECT_EQ(ValidText(std::string_view("a\0b", 3)), "a?b");
  EXPECT_EQ(ValidText("\xff\xc3"), "??");
  EXPECT_EQ(ValidText("\xed\xa0\x80"), "???") << "half of a pair";
  EXPECT_EQ(ValidText(""), "");
}

}  // namespace
}  // namespace heddle
