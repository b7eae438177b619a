#include "base/sha256.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

// FIPS 180-4, of "abc".
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(Sha256, KnownDigests) {
  EXPECT_EQ(Sha256Hex("abc"), kAbc);
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256, AStreamIsTheWhole) {
  Sha256 hex, raw;
  for (const char* piece : {"a", "", "bc"}) {
    hex.Update(piece);
    raw.Update(piece);
  }
  EXPECT_EQ(hex.Hex(), kAbc);
  const std::string bytes = raw.Raw();
  ASSERT_EQ(bytes.size(), 32u);
  EXPECT_EQ(bytes[0], '\xba');
  EXPECT_EQ(bytes[31], '\xad');
}

}  // namespace
}  // namespace heddle
