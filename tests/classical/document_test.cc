#include "compiler/classical/document.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "absl/status/status.h"

namespace heddle::classical {
namespace {

using Json = nlohmann::json;
using Rng = std::mt19937_64;
using std::string_literals::operator""s;

// Numbers, texts, null, arrays and objects up to four levels deep.
Json RandomJson(int levels, Rng& rng) {
  switch (rng() % (levels > 0 ? 8 : 5)) {
    case 0:
      return nullptr;
    case 1:
      return rng() % 2 == 0;
    case 2:
      return static_cast<int64_t>(rng() >> (11 + rng() % 50)) * (rng() % 2 ? 1 : -1);
    case 3:
      return static_cast<float>(rng()) / 0x1p60f - 8;
    case 4:
      return std::string(rng() % 4, static_cast<char>('a' + rng() % 26));
    case 5: {
      Json numbers = Json::array();
      for (uint64_t i = rng() % 5; i > 0; --i) numbers.push_back(rng() % 100);
      return numbers;
    }
    case 6: {
      Json array = Json::array();
      for (uint64_t i = rng() % 5; i > 0; --i) array.push_back(RandomJson(levels - 1, rng));
      return array;
    }
    default: {
      Json object = Json::object();
      for (uint64_t i = rng() % 5; i > 0; --i)
        object[std::string(1, static_cast<char>('a' + rng() % 26))] = RandomJson(levels - 1, rng);
      return object;
    }
  }
}

void ExpectEqual(const Value& value, const Json& json) {
  if (json.is_null()) {
    EXPECT_TRUE(std::holds_alternative<std::monostate>(value.is));
  } else if (json.is_boolean()) {
    EXPECT_EQ(std::get<double>(value.is), json.get<bool>() ? 1 : 0);
  } else if (json.is_number()) {
    EXPECT_EQ(std::get<double>(value.is), json.get<double>());
  } else if (json.is_string()) {
    EXPECT_EQ(std::get<std::string>(value.is), json.get<std::string>());
  } else if (json.is_object()) {
    ASSERT_EQ(std::get<std::vector<Member>>(value.is).size(), json.size());
    for (const auto& [name, member] : json.items()) {
      ASSERT_NE(value.Find(name), nullptr) << name;
      ExpectEqual(*value.Find(name), member);
    }
    EXPECT_EQ(value.Find("no such name"), nullptr);
  } else {
    bool all_numbers = true;
    for (const Json& element : json)
      all_numbers &= element.is_number() || element.is_boolean() || element.is_null();
    if (all_numbers) {
      const auto& numbers = std::get<std::vector<double>>(value.is);
      ASSERT_EQ(numbers.size(), json.size());
      for (size_t i = 0; i < numbers.size(); ++i) {
        if (json[i].is_null()) {
          EXPECT_TRUE(std::isnan(numbers[i]));
        } else {
          ExpectEqual({numbers[i]}, json[i]);
        }
      }
      return;
    }
    const auto& values = std::get<std::vector<Value>>(value.is);
    ASSERT_EQ(values.size(), json.size());
    for (size_t i = 0; i < values.size(); ++i) ExpectEqual(values[i], json[i]);
  }
}

TEST(ParseDocument, ReadsJsonAndUbjsonAlike) {
  Rng rng(1);
  for (int i = 0; i < 500; ++i) {
    const Json json = {{"value", RandomJson(4, rng)}};
    const std::vector<uint8_t> plain = Json::to_ubjson(json);
    const std::vector<uint8_t> sized = Json::to_ubjson(json, true, false);
    const std::vector<uint8_t> typed = Json::to_ubjson(json, true, true);
    for (const std::string& bytes :
         {json.dump(), json.dump(2), std::string(plain.begin(), plain.end()),
          std::string(sized.begin(), sized.end()), std::string(typed.begin(), typed.end())}) {
      const absl::StatusOr<Value> value = ParseDocument(bytes);
      ASSERT_TRUE(value.ok()) << value.status() << "\n" << json.dump();
      ExpectEqual(*value, json);
    }
  }
}

TEST(ParseDocument, RefusesMoreThanItsBytesAndLevelsAllow) {
  const auto error = [](const std::string& bytes) { return ParseDocument(bytes).status(); };
  EXPECT_EQ(error("").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(error("{").ok());
  EXPECT_FALSE(error("{\"a\":1").ok());
  EXPECT_FALSE(error("{\"a\":1} x").ok());
  EXPECT_FALSE(error("{\"a\":Nan}").ok());
  EXPECT_FALSE(error("{\"a\":1e999}").ok());
  EXPECT_FALSE(error("{i\x01"
                     "a")
                   .ok());
  // An array of 2^40 nulls, of bytes that are not there, and one of 2^62 numbers.
  EXPECT_EQ(error("{i\x01"
                  "a[$Z#L\0\0\1\0\0\0\0\0}"s)
                .message(),
            "no UBJSON: it announces more values than it has bytes");
  EXPECT_FALSE(error("{i\x01"
                     "a[$U#L\0\0\1\0\0\0\0\0}"s)
                   .ok());
  EXPECT_FALSE(error("{i\x01"
                     "a[#L\x40\0\0\0\0\0\0\0}"s)
                   .ok());
  EXPECT_FALSE(error("{i\x01"
                     "aSL\x7f\0\0\0\0\0\0\0}"s)
                   .ok());

  const auto nested = [](int levels) {
    return "{\"a\":" + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}";
  };
  EXPECT_TRUE(error(nested(kMostLevels)).ok());
  EXPECT_EQ(error(nested(kMostLevels + 1)).message(),
            "no JSON: it is nested more than 64 levels deep");
  EXPECT_FALSE(error("{i\x01"
                     "a" +
                     std::string(1'000'000, '['))
                   .ok());
}

TEST(ParseDocument, KeepsMessagesShortAndPrintable) {
  const absl::Status status =
      ParseDocument("{\"a\":\"" + std::string(10'000, '\xff') + "\n").status();
  EXPECT_LT(status.message().size(), 300u);
  for (char c : status.message()) EXPECT_TRUE(c >= ' ' && c <= '~') << static_cast<int>(c);
}

TEST(ParseDocument, TakesNanOutsideOfStringsForNull) {
  const absl::StatusOr<Value> value =
      ParseDocument(R"({"NaN": [1, NaN, 2], "b": NaN, "c": "\\\"NaN"})");
  ASSERT_TRUE(value.ok()) << value.status();
  ExpectEqual(*value, Json::parse(R"({"NaN": [1, null, 2], "b": null, "c": "\\\"NaN"})"));
}

TEST(ParseDocument, KeepsNumbersOfMixedArrays) {
  const absl::StatusOr<Value> value = ParseDocument(R"({"a": [1, 2, {"b": 3}, 4]})");
  ASSERT_TRUE(value.ok()) << value.status();
  ExpectEqual(*value, Json::parse(R"({"a": [1, 2, {"b": 3}, 4]})"));
}

}  // namespace
}  // namespace heddle::classical
