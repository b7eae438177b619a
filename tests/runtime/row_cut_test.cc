#include "compiler/runtime/row_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace heddle::runtime {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;

// The blocks' rows, one for each piece.
std::vector<int64_t> Pieces(const std::vector<int64_t>& rows, const std::vector<double>& cold_ns,
                            int64_t count, const std::vector<double>& warm_ns = {}) {
  const RowCut cut(rows, cold_ns, warm_ns);
  std::vector<int64_t> pieces;
  while (count > 0) {
    const RowCut::Piece piece = cut.Next(count);
    EXPECT_GT(piece.rows, 0);
    EXPECT_LE(piece.rows, std::min(count, rows[piece.block]));
    if (piece.rows <= 0) break;
    pieces.push_back(rows[piece.block]);
    count -= piece.rows;
  }
  return pieces;
}

TEST(RowCutTest, WithoutTimesBlocksAreFilledAtLeastByHalf) {
  const std::vector<int64_t> rows = {8, 3, 1};
  EXPECT_THAT(Pieces(rows, {}, 2), ElementsAre(3));
  EXPECT_THAT(Pieces(rows, {}, 4), ElementsAre(8));
  EXPECT_THAT(Pieces(rows, {}, 9), ElementsAre(8, 1));
  EXPECT_THAT(Pieces({8, 3}, {}, 11), ElementsAre(8, 3));
  EXPECT_THAT(Pieces({3}, {}, 7), ElementsAre(3, 3, 3));
}

// Between all of the time and what is left without misses.
TEST(RowCutTest, MissesCountAsHalf) {
  EXPECT_THAT(NsInCall({64, 16}, {64, 16}), ElementsAre(64, 16)) << "no misses";
  EXPECT_THAT(NsInCall({64, 16}, {84, 36}), ElementsAre(std::sqrt(84.0 * 64), std::sqrt(36.0 * 16)))
      << "20 of misses";
  EXPECT_THAT(NsInCall({16, 1}, {64, 64}), ElementsAre(std::sqrt(64.0 * 8), std::sqrt(64.0 * 8)))
      << "seven eighths at most";
  EXPECT_THAT(NsInCall({64}, {84}), ElementsAre(84)) << "one block does not tell";
  EXPECT_THAT(NsInCall({64, 16}, {1, 36}), Each(Gt(0.0))) << "a disturbed time";
  EXPECT_THAT(NsInCall({64, 16}, {}), ElementsAre());
}

// Trees were timed without misses. One row of 9 takes 460 ns in a block of its own, and 16 rows take 2400.
TEST(RowCutTest, WarmTimesCountAsTheyAre) {
  EXPECT_THAT(NsInCall({16, 1}, {0, 0}, {2400, 460}), ElementsAre(2400, 460));
  EXPECT_THAT(NsInCall({64, 16}, {84, 36}, {100, 50}),
              ElementsAre(std::sqrt(84.0 * 64) + 100, std::sqrt(36.0 * 16) + 50))
      << "misses of the other kernels";
  EXPECT_THAT(NsInCall({16}, {3}, {4}), ElementsAre(7));
  EXPECT_THAT(Pieces({16, 1}, {0, 0}, 9, {2400, 460}), ElementsAre(16));
  EXPECT_THAT(Pieces({16, 1}, {2400, 460}, 9), Each(1)) << "if the same times were cold";
}

// Times of one core (AVX2) and of what was fastest there: blocks of 16 for 100 rows, until there is one of 128.
TEST(RowCutTest, RowsGoWhereTheyWereMeasuredToBeFastest) {
  const std::vector<int64_t> few = {4096, 256, 16, 1}, more = {2048, 128, 16, 1};
  const std::vector<double> linear = {414.6e3, 50.5e3, 12.7e3, 11.9e3};
  EXPECT_THAT(Pieces(few, linear, 100), Each(16));
  EXPECT_THAT(Pieces(few, linear, 12), ElementsAre(16));
  EXPECT_THAT(Pieces(more, {213.7e3, 31.5e3, 14.1e3, 13.1e3}, 1000), Each(testing::Le(128)));
  EXPECT_THAT(Pieces(few, {1900e3, 129e3, 25.6e3, 21.8e3}, 100), Each(16)) << "100 trees";
  EXPECT_THAT(Pieces(more, {1010e3, 75.1e3, 26e3, 15.1e3}, 100), ElementsAre(128));
  EXPECT_THAT(Pieces(few, {13e6, 1142e3, 171e3, 96.5e3}, 1000), Each(testing::Ge(256)))
      << "500 trees";
}

TEST(RowCutTest, ABlockThatIsSlowerForARowIsNotUsed) {
  EXPECT_THAT(Pieces({8, 3, 1}, {100, 2, 1}, 16), ElementsAre(3, 3, 3, 3, 3, 1));
  EXPECT_THAT(Pieces({8, 1}, {8, 0.5}, 9), Each(1));
  EXPECT_THAT(Pieces({8, 1}, {80, 79}, 9), ElementsAre(8, 1));
  EXPECT_THAT(Pieces({64, 16}, {84, 36}, 64), ElementsAre(64)) << "as long";
}

// Against all cuts: a call may take longer than the best one by what the last rows take in blocks that they do not fill, as
// larger blocks come first, but by no more than one further block of each size.
TEST(RowCutTest, ACallTakesLittleMoreThanTheBestCut) {
  std::mt19937 rng(1);
  const auto pick = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(rng);
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> rows = {pick(1, 3)};
    for (int more = pick(0, 3); more > 0; --more) rows.push_back(rows.back() + pick(1, 20));
    std::reverse(rows.begin(), rows.end());
    std::vector<double> cold;
    const double misses = pick(0, 100), of_row = pick(1, 20);
    for (const int64_t n : rows)
      cold.push_back(misses + of_row * static_cast<double>(n) * pick(50, 100) / 100 + pick(0, 20));
    const std::vector<double> times = NsInCall(rows, cold);
    ASSERT_THAT(times, Each(Gt(0.0)));
    const auto ns_of = [&](int64_t block) {
      return times[static_cast<size_t>(std::find(rows.begin(), rows.end(), block) - rows.begin())];
    };
    std::vector<double> best = {0};
    for (int64_t n = 1; n <= 120; ++n) {
      double least = std::numeric_limits<double>::infinity();
      for (const int64_t block : rows)
        least = std::min(least,
                         ns_of(block) + best[static_cast<size_t>(std::max<int64_t>(0, n - block))]);
      best.push_back(least);
      double taken = 0;
      for (const int64_t block : Pieces(rows, cold, n)) taken += ns_of(block);
      double allowed = 0;
      for (const double ns : times) allowed += ns;
      EXPECT_LE(taken, least + allowed) << "round " << round << ", " << n << " rows";
    }
  }
}

}  // namespace
}  // namespace heddle::runtime
