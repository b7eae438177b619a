// Packing is lossless or is not done, and no damage of the list reaches memory.
#include "compiler/runtime/packed_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "compiler/runtime/module.h"

namespace heddle::runtime {
namespace {

using ::testing::HasSubstr;

class Draw {
 public:
  explicit Draw(uint64_t seed) : rng_(seed) {}
  int64_t Int(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng_);
  }
  float Real(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(rng_);
  }

 private:
  std::mt19937_64 rng_;
};

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

int64_t Product(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (int64_t extent : shape) product *= extent;
  return product;
}

// Weights of `bits` bits with a scale and a zero point for each index along `axis`, or for each block of
// 32 elements along the last axis.
std::vector<float> Dequantised(Draw& draw, const std::vector<int64_t>& shape, int axis, int bits) {
  const int64_t elements = Product(shape);
  int64_t inner = 1;
  for (size_t i = axis < 0 ? shape.size() : axis + 1; i < shape.size(); ++i) inner *= shape[i];
  const auto channel_of = [&](int64_t e) { return axis < 0 ? e / 32 : e / inner % shape[axis]; };
  std::vector<float> scales;
  std::vector<int64_t> zeros;
  std::vector<float> values;
  for (int64_t e = 0; e < elements; ++e) {
    const auto channel = static_cast<size_t>(channel_of(e));
    while (scales.size() <= channel) {
      scales.push_back(draw.Real(1e-4F, 1.0F));
      zeros.push_back(draw.Int(0, (1 << bits) - 1));
    }
    const int64_t code = draw.Int(0, (1 << bits) - 1);
    values.push_back(static_cast<float>(code - zeros[channel]) * scales[channel]);
  }
  return values;
}

// Between other parameters, it comes back bit by bit.
void ExpectReturns(const PackedParam& found, const std::string& bytes) {
  const std::string packed = Pack(found, bytes);
  ASSERT_EQ(static_cast<int64_t>(packed.size()), found.PackedBytes());
  ASSERT_EQ(static_cast<int64_t>(bytes.size()), found.Bytes());
  EXPECT_LE(packed.size(), bytes.size() / 4 * 3);
  PackedParam first = found, second = found;
  first.offset = 7;
  second.offset = 7 + found.Bytes() + 3;
  const auto all = UnpackParams({first, second},
                                "beforegap"
                                "tail",
                                packed + packed);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(**all, "beforeg" + bytes + "apt" + bytes + "ail");
}

TEST(PackedParams, DequantisedWeightsReturnBitByBit) {
  Draw draw(1);
  int four = 0, eight = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> shape = {draw.Int(1, 6) * 16, draw.Int(1, 4) * 8, draw.Int(1, 3) * 3, 32};
    shape.resize(static_cast<size_t>(draw.Int(2, 4)));
    shape.back() = 64;
    const int axis = static_cast<int>(draw.Int(-1, static_cast<int64_t>(shape.size()) - 1));
    const int bits = draw.Int(0, 1) == 0 ? 4 : 8;
    const std::string bytes = BytesOf(Dequantised(draw, shape, axis, bits));
    const auto found = FindPacking(bytes, "f32", shape);
    // Blocks of 32 are no block of one dimension if the last one is shorter.
    ASSERT_TRUE(found) << round << " axis " << axis << " bits " << bits;
    (found->bits == 4 ? four : eight) += 1;
    ExpectReturns(*found, bytes);
  }
  EXPECT_GT(four, 120);
  EXPECT_GT(eight, 60);
}

TEST(PackedParams, WideIntegersWithFewValuesReturn) {
  Draw draw(2);
  const std::vector<int64_t> shape = {32, 64};
  const auto check = [&](auto type, const char* dtype, int64_t low, int64_t range, bool packed) {
    std::vector<decltype(type)> values;
    // Both ends are in all rows, columns and blocks.
    for (int64_t e = 0; e < Product(shape); ++e) {
      const int64_t part = (e + e / shape[1]) % 3;
      const int64_t above = part == 0 ? 0 : part == 1 ? range : draw.Int(0, range);
      values.push_back(static_cast<decltype(type)>(low + above));
    }
    const auto found = FindPacking(BytesOf(values), dtype, shape);
    ASSERT_EQ(found.has_value(), packed) << dtype << " " << low << " " << range;
    if (found) ExpectReturns(*found, BytesOf(values));
  };
  for (int64_t low : {int64_t{0}, int64_t{-128}, int64_t{100}}) {
    check(int32_t{}, "i32", low, 255, true);
    check(int32_t{}, "i32", low, 256, false);
    check(int64_t{}, "i64", low, 255, true);
    check(int16_t{}, "i16", low, 200, true);
    check(int8_t{}, "i8", std::min<int64_t>(low, 60), 15, true);
  }
  check(int8_t{}, "i8", -100, 200, false);  // would not get smaller
  check(uint8_t{}, "u8", 240, 15, true);
  check(uint16_t{}, "u16", 65000, 255, true);
  check(uint32_t{}, "u32", 4294967000, 255, false);  // no base
  check(uint64_t{}, "u64", -200, 100, false);
  check(int32_t{}, "i32", INT32_MIN, 255, true);
  check(int64_t{}, "i64", INT32_MAX, 255, true);
}

TEST(PackedParams, WhatIsNoMultipleStaysAsItIs) {
  Draw draw(3);
  const std::vector<int64_t> shape = {64, 64};
  std::vector<float> random;
  for (int64_t e = 0; e < Product(shape); ++e) random.push_back(draw.Real(-1, 1));
  EXPECT_FALSE(FindPacking(BytesOf(random), "f32", shape));
  EXPECT_FALSE(FindPacking(BytesOf(random), "bool", shape)) << "a size that does not fit";
  EXPECT_FALSE(FindPacking("", "f32", {0, 64}));
  const std::vector<float> good = Dequantised(draw, shape, 0, 4);
  ASSERT_TRUE(FindPacking(BytesOf(good), "f32", shape));
  for (float bad : {-0.0F, std::numeric_limits<float>::quiet_NaN(), INFINITY, 1e30F,
                    std::nextafter(*std::max_element(good.begin(), good.begin() + 64), 10.0F)}) {
    std::vector<float> values = good;
    values[17] = bad;
    EXPECT_FALSE(FindPacking(BytesOf(values), "f32", shape)) << bad;
  }
}

TEST(PackedParams, ZerosAndSingleValuesArePacked) {
  for (float value : {0.0F, 0.3F, -7.0F, 3e38F, 1e-37F}) {
    const std::string bytes = BytesOf(std::vector<float>(2048, value));
    const auto found = FindPacking(bytes, "f32", {2048});
    ASSERT_TRUE(found) << value;
    ExpectReturns(*found, bytes);
  }
  EXPECT_FALSE(FindPacking(BytesOf(std::vector<float>(2048, 1e-40F)), "f32", {2048}));
}

// An address sanitizer is not needed: a place outside would be an error or a crash.
TEST(PackedParams, ListsThatContradictTheBytesAreRefused) {
  Draw draw(4);
  const std::string bytes = BytesOf(Dequantised(draw, {32, 64}, 0, 4));
  const PackedParam good = *FindPacking(bytes, "f32", {32, 64});
  const std::string packed = Pack(good, bytes);
  ASSERT_TRUE(UnpackParams({good}, "", packed).ok());
  const auto refused = [&](auto&& damage) {
    PackedParam bad = good;
    damage(bad);
    const auto result = UnpackParams({bad}, "plain", packed);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("packed parameter"));
  };
  refused([](PackedParam& p) { p.offset = 6; });
  refused([](PackedParam& p) { p.offset = -1; });
  refused([](PackedParam& p) { p.offset = INT64_MAX; });
  refused([](PackedParam& p) { p.dtype = "f64"; });
  refused([](PackedParam& p) { p.bits = 16; });
  refused([](PackedParam& p) { p.bits = 8; });
  for (size_t d = 0; d < 3; ++d) {
    for (int64_t extent : {int64_t{0}, int64_t{-1}, int64_t{3000}, INT64_MAX / 2, INT64_MAX})
      refused([&](PackedParam& p) { p.shape[d] = extent; });
  }
  EXPECT_FALSE(UnpackParams({good, good}, "", packed + packed).ok()) << "they overlap";
  EXPECT_FALSE(UnpackParams({}, "plain", packed).ok());
}

TEST(PackedParams, AModuleStoresThemPackedAndGivesThemBack) {
  Draw draw(5);
  const std::string weights = BytesOf(Dequantised(draw, {256, 64}, 0, 8));
  Module module;
  PackedParam param = *FindPacking(weights, "f32", {256, 64});
  param.offset = 64;
  module.manifest.packed = {param};
  module.params = SharedBytes::Of(std::string(64, 'x') + weights + "tail");
  const std::string bytes = SerializeModule(module);
  EXPECT_LT(bytes.size(), weights.size() / 2);
  EXPECT_EQ(bytes.substr(0, 8), "HEDDLE03");
  const auto parsed = ParseModule(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed->params, *module.params);
  EXPECT_EQ(SerializeModule(*parsed), bytes);
  // In pieces, as the compiler has them.
  std::string streamed;
  const std::vector<SharedBytes> pieces = {SharedBytes::Of(std::string(64, 'x')),
                                           SharedBytes::Of(weights), SharedBytes::Of("tail")};
  ASSERT_TRUE(WriteModule(module.manifest, "", pieces, [&](std::string_view piece) {
                streamed += piece;
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(streamed, bytes);
  for (size_t at = 0; at < bytes.size(); at += 7) {
    std::string damaged = bytes;
    damaged[at] ^= 1;
    const auto result = ParseModule(damaged);
    EXPECT_TRUE(!result.ok() || *result->params == *module.params) << at;
  }
}

}  // namespace
}  // namespace heddle::runtime
