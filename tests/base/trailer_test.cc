#include "base/files/trailer.h"

#include <gtest/gtest.h>

#include <string>

namespace heddle {
namespace {

TEST(Trailer, ComesBackAsItWasWritten) {
  const std::string content = "content", text("signed\0by", 9);
  const std::string file = content + TrailerOf(text);
  EXPECT_EQ(SplitTrailer(file).content, content);
  EXPECT_EQ(SplitTrailer(file).text, text);
  EXPECT_EQ(SplitTrailer(TrailerOf(text)).content, "");
  const std::string twice = file + TrailerOf("again");
  EXPECT_EQ(SplitTrailer(twice).content, file) << "the last one counts";
}

TEST(Trailer, WhatHasNoneIsAllContent) {
  for (const std::string file : {std::string(), std::string("short"), std::string(100, 'x'),
                                 std::string("HEDTRAIL"), std::string(15, '\xff') + "HEDTRAIL"}) {
    EXPECT_EQ(SplitTrailer(file).content, file);
    EXPECT_EQ(SplitTrailer(file).text, "");
  }
  const std::string whole = TrailerOf("text");
  EXPECT_EQ(SplitTrailer(whole.substr(1)).content, whole.substr(1)) << "its beginning is missing";
}

}  // namespace
}  // namespace heddle
