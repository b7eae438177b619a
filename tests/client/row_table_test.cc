// What is told of each row: as a table, as CSV and as JSON.
#include "client/views/row_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "client/modules/csv.h"
#include "client/views/json.h"

namespace heddle::client {
namespace {

using runtime::TensorSpec;
using ::testing::HasSubstr;
using ::testing::Not;

template <typename T>
NpyArray ArrayOf(const std::string& dtype, std::vector<int64_t> shape,
                 const std::vector<T>& values) {
  return {dtype, std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}

std::vector<std::string> Cells(const std::string& line) {
  CsvReader reader(line);
  std::vector<std::string> cells;
  EXPECT_TRUE(reader.Next(&cells).value());
  return cells;
}

// Three flowers, with text labels and named scores.
RowTable Flowers() {
  const std::vector<TensorSpec> specs = {
      {.name = "scores", .dtype = "f32", .shape = {2, 2}, .columns = {"setosa", "a,b"}},
      {.name = "label", .dtype = "i64", .shape = {2}, .labels = {"setosa", "a,b"}}};
  return RowTable(specs, {ArrayOf<float>("f32", {3, 2}, {0.1F, 0.9F, 0.75F, 0.25F, NAN, INFINITY}),
                          ArrayOf<int64_t>("i64", {3}, {1, 0, 7})});
}

TEST(RowTable, LabelsComeFirstAndNamesAreShown) {
  const RowTable table = Flowers();
  EXPECT_EQ(table.rows(), 3);
  EXPECT_EQ(table.ToText(false),
            "row  label   scores.setosa  scores.a,b\n"
            "  1  a,b     0.1            0.9\n"
            "  2  setosa  0.75           0.25\n"
            "  3  7       nan            inf\n");
  EXPECT_EQ(table.CsvHeader(), "row,label,scores.setosa,\"scores.a,b\"\n");
  EXPECT_EQ(table.CsvRow(0), "1,\"a,b\",0.1,0.9\n");
  EXPECT_EQ(table.CsvRow(2), "3,7,nan,inf\n");
  EXPECT_EQ(table.JsonRow(1),
            "{\"schema_version\":1,\"row\":2,\"outputs\":{\"label\":\"setosa\",\"scores\":{"
            "\"setosa\":0.75,\"a,b\":0.25}}}\n");
  const auto last = nlohmann::json::parse(table.JsonRow(2));
  EXPECT_EQ(last["schema_version"], kJsonSchemaVersion);
  EXPECT_EQ(last["outputs"]["label"], 7) << "a value without a label is itself";
  EXPECT_TRUE(last["outputs"]["scores"]["setosa"].is_null());
}

TEST(RowTable, WithoutNamesColumnsAreCounted) {
  const RowTable table(
      {{.name = "y", .dtype = "f64", .shape = {4}},
       {.name = "n", .dtype = "u64", .shape = {4, 1, 2}}},
      {ArrayOf<double>("f64", {1}, {0.1}), ArrayOf<uint64_t>("u64", {1, 1, 2}, {3, UINT64_MAX})});
  EXPECT_EQ(table.CsvHeader(), "row,n.0,n.1,y\n");
  EXPECT_EQ(table.CsvRow(0), "1,3,18446744073709551615,0.1\n");
  EXPECT_EQ(nlohmann::json::parse(table.JsonRow(0))["outputs"],
            nlohmann::json::parse(R"({"n": [3, 18446744073709551615], "y": 0.1})"));
}

TEST(RowTable, ALongTableTellsWhatIsLeft) {
  const std::vector<TensorSpec> specs = {{.name = "y", .dtype = "f32", .shape = {4, 15}}};
  const auto of = [&](int64_t rows) {
    return RowTable(specs, {ArrayOf<float>("f32", {rows, 15},
                                           std::vector<float>(static_cast<size_t>(rows * 15)))});
  };
  const std::string text = of(23).ToText(false);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 22);
  EXPECT_THAT(text, HasSubstr(".. and 3 more rows and 3 more columns: --csv or --json"));
  EXPECT_THAT(of(20).ToText(false), Not(HasSubstr("more rows")));
  const std::string plain = of(23).ToText(true);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), '\n'), 24);
  EXPECT_THAT(plain, HasSubstr("\ty.14\n"));
}

TEST(RowTable, NumbersAreReadBackAsTheyWere) {
  std::mt19937_64 rng(1);
  std::vector<float> values(2000);
  for (float& value : values) {
    const auto bits = static_cast<uint32_t>(rng());
    std::memcpy(&value, &bits, sizeof value);
  }
  const RowTable table({{.name = "y", .dtype = "f32", .shape = {1}}},
                       {ArrayOf<float>("f32", {2000}, values)});
  for (int64_t row = 0; row < table.rows(); ++row) {
    const float value = values[static_cast<size_t>(row)];
    const float back = std::strtof(Cells(table.CsvRow(row))[1].c_str(), nullptr);
    const auto json = nlohmann::json::parse(table.JsonRow(row))["outputs"]["y"];
    if (!std::isfinite(value)) {
      EXPECT_TRUE(json.is_null());
      EXPECT_EQ(std::isnan(back), std::isnan(value));
      continue;
    }
    EXPECT_EQ(back, value);
    EXPECT_EQ(json.get<float>(), value);
  }
}

// Names are any bytes, and JSON stays JSON.
TEST(RowTable, NamesAreQuoted) {
  std::mt19937_64 rng(2);
  for (int round = 0; round < 500; ++round) {
    std::string name;
    for (uint64_t n = rng() % 6; n > 0; --n) name += "a\",\n\xff\\{"[rng() % 7];
    const RowTable table({{.name = name, .dtype = "f32", .shape = {1}, .columns = {name}}},
                         {ArrayOf<float>("f32", {1}, {1})});
    EXPECT_EQ(Cells(table.CsvHeader())[1], name + "." + name);
    const auto json = nlohmann::json::parse(table.JsonRow(0), nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << table.JsonRow(0);
    EXPECT_EQ(json["outputs"].begin()->begin().value(), 1);
  }
}

TEST(RowTable, OnlyOutputsWithTheSameRowsAreATable) {
  const NpyArray three = ArrayOf<float>("f32", {3}, {1, 2, 3});
  const NpyArray one = ArrayOf<float>("f32", {1, 3}, {1, 2, 3});
  const NpyArray scalar = ArrayOf<float>("f32", {}, {1});
  EXPECT_TRUE(RowTable::HasRows({three}));
  EXPECT_TRUE(RowTable::HasRows({three, three}));
  EXPECT_FALSE(RowTable::HasRows({three, one}));
  EXPECT_FALSE(RowTable::HasRows({three, scalar}));
  EXPECT_FALSE(RowTable::HasRows({scalar, three}));
  EXPECT_FALSE(RowTable::HasRows({}));
}

}  // namespace
}  // namespace heddle::client
