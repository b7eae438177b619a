#include "proto/chunks.h"

#include <gtest/gtest.h>

#include <vector>

namespace heddle {
namespace {

std::vector<v1::Chunk> Cut(const std::string& bytes) {
  std::vector<v1::Chunk> chunks;
  EXPECT_TRUE(SendChunks("state", bytes, [&](v1::Chunk chunk) {
    chunks.push_back(std::move(chunk));
    return true;
  }));
  return chunks;
}

absl::StatusOr<std::string> Join(const std::vector<v1::Chunk>& chunks, size_t limit = 4 << 20) {
  ChunkJoiner joiner("state", limit);
  for (const v1::Chunk& chunk : chunks) {
    if (absl::Status added = joiner.Add(chunk); !added.ok()) return added;
  }
  return joiner.Take();
}

TEST(Chunks, RoundTrip) {
  for (const size_t size : {size_t{0}, size_t{1}, kChunkBytes, kChunkBytes + 1, 3 * kChunkBytes}) {
    const std::string bytes(size, 'x');
    const std::vector<v1::Chunk> chunks = Cut(bytes);
    EXPECT_EQ(chunks.size(), std::max<size_t>(1, (size + kChunkBytes - 1) / kChunkBytes));
    EXPECT_EQ(Join(chunks).value(), bytes);
  }
}

TEST(Chunks, DamageIsFound) {
  const std::vector<v1::Chunk> good = Cut(std::string(2 * kChunkBytes, 'x'));
  std::vector<v1::Chunk> bad = good;
  bad[1].set_sha256("0");
  EXPECT_EQ(Join(bad).status().code(), absl::StatusCode::kDataLoss);
  bad = {good[0]};
  EXPECT_EQ(Join(bad).status().code(), absl::StatusCode::kDataLoss) << "cut short";
  bad = {good[1]};
  EXPECT_EQ(Join(bad).status().code(), absl::StatusCode::kDataLoss) << "a piece is missing";
  bad = {good[0], good[1], good[1]};
  EXPECT_EQ(Join(bad).status().code(), absl::StatusCode::kInvalidArgument) << "after the last";
  bad = good;
  bad[0].set_name("module");
  EXPECT_EQ(Join(bad).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Join(good, kChunkBytes).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Chunks, OfAReaderEndWithAnEmptyOne) {
  std::vector<std::string> pieces = {"", "bc", "a"};
  std::vector<v1::Chunk> chunks;
  const auto next = [&](size_t limit) -> absl::StatusOr<std::string> {
    EXPECT_EQ(limit, kChunkBytes);
    std::string piece = pieces.back();
    pieces.pop_back();
    return piece;
  };
  ASSERT_TRUE(SendChunks("state", Sha256Hex("abc"), next, [&](v1::Chunk chunk) {
                chunks.push_back(std::move(chunk));
                return true;
              }).ok());
  EXPECT_EQ(chunks.size(), 3u);
  EXPECT_EQ(Join(chunks).value(), "abc");
}

TEST(Chunks, ASinkOrAReaderMayEndTheStream) {
  int taken = 0;
  const auto sink = [&](const v1::Chunk&) { return ++taken < 2; };
  EXPECT_FALSE(SendChunks("state", std::string(3 * kChunkBytes, 'x'), sink));
  EXPECT_EQ(taken, 2);
  taken = 0;
  const auto endless = [](size_t) -> absl::StatusOr<std::string> { return "x"; };
  EXPECT_TRUE(absl::IsCancelled(SendChunks("state", "0", endless, sink)));
  const auto broken = [](size_t) -> absl::StatusOr<std::string> {
    return absl::DataLossError("damaged on disk");
  };
  EXPECT_TRUE(absl::IsDataLoss(SendChunks("state", "0", broken, sink)));
}

}  // namespace
}  // namespace heddle
