#include "cost_model/blob.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>

namespace heddle::cost_model {
namespace {

TEST(Blob, ReadsWhatWasWritten) {
  std::mt19937_64 rng(1);
  for (int round = 0; round < 100; ++round) {
    const uint64_t u = rng() >> (rng() % 64);
    const auto s = static_cast<int64_t>(rng()) >> (rng() % 64);
    const double d = static_cast<double>(rng()) / 3;
    BlobWriter w;
    w.Unsigned(u);
    w.Signed(s);
    w.Double(d);
    w.Float(0.1f);
    w.Fixed64(u);
    w.Bytes(std::string("a\0b", 3));
    const std::string bytes = std::move(w).Take();
    BlobReader r(bytes);
    EXPECT_EQ(r.Unsigned(), u);
    EXPECT_EQ(r.Signed(), s);
    EXPECT_EQ(r.Double(), d);
    EXPECT_EQ(r.Float(), 0.1f);
    EXPECT_EQ(r.Fixed64(), u);
    EXPECT_EQ(r.Bytes(), std::string("a\0b", 3));
    EXPECT_TRUE(r.AtEnd());
    // Any shorter text fails, and says so.
    BlobReader cut(std::string_view(bytes).substr(0, rng() % bytes.size()));
    cut.Unsigned(), cut.Signed(), cut.Double(), cut.Float(), cut.Fixed64(), cut.Bytes();
    EXPECT_FALSE(cut.ok());
  }
}

TEST(Blob, ExtremeIntegers) {
  BlobWriter w;
  w.Signed(std::numeric_limits<int64_t>::min());
  w.Signed(std::numeric_limits<int64_t>::max());
  w.Unsigned(std::numeric_limits<uint64_t>::max());
  const std::string bytes = std::move(w).Take();
  BlobReader r(bytes);
  EXPECT_EQ(r.Signed(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(r.Signed(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(r.Unsigned(), std::numeric_limits<uint64_t>::max());
}

TEST(Blob, CountsAreNotTrusted) {
  BlobWriter w;
  w.Unsigned(uint64_t{1} << 60);
  const std::string bytes = std::move(w).Take();
  BlobReader r(bytes);
  EXPECT_EQ(r.Count(), 0u);
  EXPECT_FALSE(r.ok());
}

TEST(Blob, SealRefusesEveryFlippedBit) {
  const std::string blob = Seal("MAGIC", 7, "payload");
  ASSERT_TRUE(Unseal("MAGIC", 7, blob).ok());
  EXPECT_EQ(*Unseal("MAGIC", 7, blob), "payload");
  for (size_t bit = 0; bit < 8 * blob.size(); ++bit) {
    std::string damaged = blob;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_EQ(Unseal("MAGIC", 7, damaged).status().code(), absl::StatusCode::kDataLoss) << bit;
  }
  for (size_t size = 0; size < blob.size(); ++size) {
    EXPECT_FALSE(Unseal("MAGIC", 7, blob.substr(0, size)).ok());
  }
  EXPECT_EQ(Unseal("MAGIC", 8, blob).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Unseal("OTHER", 7, blob).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace heddle::cost_model
