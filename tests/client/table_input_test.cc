// Tables as inputs: random tables in random order of columns, and every mistake in one line.
#include "client/modules/table_input.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include "client/modules/csv.h"

namespace heddle::client {
namespace {

using runtime::TensorSpec;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TensorSpec Spec(const std::string& name, const std::string& dtype, int64_t columns,
                std::vector<std::string> names = {}) {
  return {.name = name, .dtype = dtype, .shape = {4, columns}, .columns = std::move(names)};
}

std::string Error(std::string_view text, const std::vector<TensorSpec>& specs) {
  const auto table = ParseTable(text, specs);
  EXPECT_FALSE(table.ok()) << text;
  EXPECT_EQ(table.status().message().find('\n'), std::string_view::npos);
  return std::string(table.status().message());
}

std::vector<float> Floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

struct Cell {
  std::string text, bytes;
};

template <typename T>
Cell CellOf(T value, std::string text) {
  return {std::move(text), std::string(reinterpret_cast<const char*>(&value), sizeof value)};
}

// A number of the type, and one of its texts.
Cell RandomCell(std::mt19937_64& rng, const std::string& dtype) {
  if (dtype == "i64") {
    const auto value = static_cast<int64_t>(rng());
    return CellOf(value, fmt::format("{}", value));
  }
  if (dtype == "u8") {
    const auto value = static_cast<uint8_t>(rng());
    return CellOf(value, fmt::format(" {} ", value));
  }
  if (rng() % 6 == 0) {
    constexpr const char* kMissing[] = {"", "NA", "nan", "NaN", " "};
    const std::string text = kMissing[rng() % std::size(kMissing)];
    return dtype == "f32" ? CellOf(std::numeric_limits<float>::quiet_NaN(), text)
                          : CellOf(std::numeric_limits<double>::quiet_NaN(), text);
  }
  const double value = std::ldexp(static_cast<double>(static_cast<int64_t>(rng())), -60);
  const std::string plus = value > 0 && rng() % 2 == 0 ? "+" : "";
  if (dtype == "f64") return CellOf(value, plus + fmt::format("{}", value));
  const auto narrow = static_cast<float>(value);
  return CellOf(narrow, plus + fmt::format("{}", narrow));
}

std::string Joined(const std::vector<std::string>& cells, const std::vector<size_t>& order) {
  std::vector<std::string> ordered;
  for (size_t at : order) ordered.push_back(cells[at]);
  return CsvRecord(ordered);
}

// With names: columns in any order, among others. Without: in the order of the specs.
TEST(TableInput, RandomTablesAreReadAsTheyAre) {
  constexpr const char* kTypes[] = {"f32", "f64", "i64", "u8"};
  for (uint64_t seed = 0; seed < 600; ++seed) {
    std::mt19937_64 rng(seed);
    const bool named = seed % 3 != 0;
    std::vector<TensorSpec> specs;
    std::vector<std::string> names;
    std::vector<size_t> spec_of;
    for (size_t s = 0; s < 1 + rng() % 3; ++s) {
      // One column without a name would be named as its input.
      const auto columns = static_cast<int64_t>((named ? 1 : 2) + rng() % 4);
      TensorSpec& spec =
          specs.emplace_back(Spec("t" + std::to_string(s), kTypes[rng() % 4], columns));
      for (int64_t c = 0; c < spec.shape[1]; ++c) {
        names.push_back(fmt::format("{},\"{}\"", spec.name, c));
        if (named) spec.columns.push_back(names.back());
        spec_of.push_back(s);
      }
    }
    const size_t needed = names.size();
    const size_t others = named ? rng() % 3 : 0;
    for (size_t c = 0; c < others; ++c) names.push_back("other " + std::to_string(c));
    std::vector<size_t> order(names.size());
    for (size_t c = 0; c < order.size(); ++c) order[c] = c;
    if (named) std::shuffle(order.begin(), order.end(), rng);

    const bool header = named || rng() % 2 == 0;
    std::string text = header ? Joined(names, order) : "";
    std::vector<std::string> expected(specs.size());
    const auto rows = static_cast<int64_t>(1 + rng() % 6);
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<std::string> cells;
      for (size_t c = 0; c < names.size(); ++c) {
        if (c >= needed) {
          cells.push_back("no number");
          continue;
        }
        const Cell cell = RandomCell(rng, specs[spec_of[c]].dtype);
        cells.push_back(cell.text);
        expected[spec_of[c]] += cell.bytes;
      }
      text += Joined(cells, order);
    }
    const auto table = ParseTable(text, specs);
    ASSERT_TRUE(table.ok()) << table.status() << "\n" << text;
    EXPECT_EQ(table->rows, rows);
    EXPECT_EQ(table->by_name, named);
    EXPECT_EQ(table->header, header);
    EXPECT_EQ(table->unused.size(), others);
    EXPECT_EQ(table->bytes, expected) << "seed " << seed << "\n" << text;
  }
}

// strtof is the oracle, also for what is too large or too small.
TEST(TableInput, DecimalNumbersAreRoundedOnce) {
  std::mt19937_64 rng(5);
  for (int round = 0; round < 20000; ++round) {
    std::string text = rng() % 2 == 0 ? "-" : "";
    for (uint64_t n = 1 + rng() % 20; n > 0; --n) text += static_cast<char>('0' + rng() % 10);
    if (rng() % 2 == 0 && text.size() > 1)
      text.insert(text.size() - rng() % std::min<size_t>(text.size() - 1, 8), ".");
    if (rng() % 2 == 0) text += fmt::format("e{}", static_cast<int>(rng() % 120) - 60);
    if (text.back() == '.') text += "0";
    const auto table = ParseTable(text, {Spec("x", "f32", 1)});
    ASSERT_TRUE(table.ok()) << table.status() << " " << text;
    EXPECT_EQ(Floats(table->bytes[0])[0], std::strtof(text.c_str(), nullptr)) << text;
  }
}

TEST(TableInput, SeveralInputsAreNamedAsTheyAre) {
  const auto table =
      ParseTable("sex,age\n1,30\n0,40\n", {Spec("age", "f32", 1), Spec("sex", "i64", 1)});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(table->by_name);
  EXPECT_THAT(Floats(table->bytes[0]), ElementsAre(30, 40));
  EXPECT_EQ(table->bytes[1].size(), 16u);
}

TEST(TableInput, NamesThatAreNumbersAreAHeader) {
  const auto named = ParseTable("1,0\n5,6\n", {Spec("x", "f32", 2, {"0", "1"})});
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_THAT(Floats(named->bytes[0]), ElementsAre(6, 5));
  const auto plain = ParseTable("2,0\n5,6\n", {Spec("x", "f32", 2, {"0", "1"})});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_FALSE(plain->header);
  EXPECT_THAT(Floats(plain->bytes[0]), ElementsAre(2, 0, 5, 6));
}

// How tools write tables whose columns have no names.
TEST(TableInput, ColumnsThatAreOnlyNumberedAreAHeader) {
  const std::vector<TensorSpec> specs = {Spec("x", "f32", 3)};
  const std::vector<TensorSpec> named = {Spec("x", "f32", 3, {"age", "income", "height"})};
  for (const auto& of : {specs, named}) {
    const auto table = ParseTable("0,1,2\n5,6.5,7\n", of);
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_TRUE(table->header && table->numbered && !table->by_name);
    EXPECT_THAT(Floats(table->bytes[0]), ElementsAre(5, 6.5, 7));
  }
  // Whole numbers, or only two columns, may well be a row.
  for (const char* text : {"0,1,2\n5,6,7\n", "0,1,2\n", "0,1,2\n,NA,nan\n"}) {
    const auto table = ParseTable(text, specs);
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_TRUE(!table->header && table->numbered);
  }
  EXPECT_FALSE(ParseTable("0,1\n0.5,2\n", {Spec("x", "f32", 2)})->header);
  EXPECT_FALSE(ParseTable("0,2,1\n0.5,2,3\n", specs)->header);
}

TEST(TableInput, WhoGivesTheFileMaySayWhetherThereIsAHeader) {
  const std::vector<TensorSpec> specs = {Spec("x", "f32", 2)};
  const std::vector<TensorSpec> named = {Spec("x", "f32", 2, {"0", "1"})};
  const auto yes = ParseTable("5,6\n7,8\n", specs, HeaderRule::kYes);
  ASSERT_TRUE(yes.ok()) << yes.status();
  EXPECT_TRUE(yes->header);
  EXPECT_THAT(Floats(yes->bytes[0]), ElementsAre(7, 8));
  const auto no = ParseTable("1,0\n7,8\n", named, HeaderRule::kNo);
  ASSERT_TRUE(no.ok()) << no.status();
  EXPECT_FALSE(no->header);
  EXPECT_THAT(Floats(no->bytes[0]), ElementsAre(1, 0, 7, 8));
  EXPECT_THAT(std::string(ParseTable("a,b\n7,8\n", specs, HeaderRule::kNo).status().message()),
              HasSubstr("line 1, column 1: 'a' is no number"));
  EXPECT_THAT(std::string(ParseTable("5,6\n", specs, HeaderRule::kYes).status().message()),
              HasSubstr("no rows below the header"));
  EXPECT_THAT(std::string(ParseTable("5,6\n1,2\n", named, HeaderRule::kYes).status().message()),
              HasSubstr("the header lacks"));
}

TEST(TableInput, AnEmptyLineOfAFileWithOneColumnIsAMissingValue) {
  const std::vector<TensorSpec> one = {Spec("x", "f32", 1)};
  const auto holes = [&](std::string_view text, const std::vector<TensorSpec>& specs) {
    const auto table = ParseTable(text, specs);
    EXPECT_TRUE(table.ok()) << table.status();
    std::string found;
    if (!table.ok()) return found;
    for (const float v : Floats(table->bytes[0])) found += std::isnan(v) ? '.' : 'x';
    return found;
  };
  EXPECT_EQ(holes("1\n\n2\r\n\r\n\n", one), "x.x") << "what is below the last value is no row";
  EXPECT_EQ(holes("1\n\"\"\n\n", one), "x.");
  EXPECT_EQ(holes("\n1\n", one), ".x");
  EXPECT_EQ(holes("1\n2", one), "xx");
  EXPECT_EQ(holes("\nage\n\n1\n", one), ".x") << "what is above the header is no row";
  EXPECT_EQ(holes("\n1,2\n\n\n3,4\n\n", {Spec("x", "f32", 2)}), "xxxx");
  EXPECT_THAT(Error("age\n\n\n", one), HasSubstr("no rows below the header"));
  EXPECT_THAT(Error("1\n\n2\n", {Spec("n", "i64", 1)}),
              HasSubstr("line 2, column 1: '' is no number"));
  EXPECT_THAT(Error("\n\n", one), HasSubstr("the file is empty"));
}

TEST(TableInput, TextsAreBytesWithZerosBehindThem) {
  TensorSpec color = {.name = "color", .dtype = "u8", .shape = {4, 1, 4}, .text = true};
  const TensorSpec size = Spec("size", "f32", 1);
  const auto table = ParseTable("size,color\n1,red\n,orange\n2,\n", {color, size});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(table->by_name);
  EXPECT_EQ(table->rows, 3);
  EXPECT_EQ(table->bytes[0], std::string("red\0oran\0\0\0\0", 12));
  EXPECT_EQ(table->bytes[1].size(), 12u);
  // What is no number says nothing where a text is taken.
  const auto plain = ParseTable("red,1\nblue,2\n", {color, size});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_FALSE(plain->header);
  EXPECT_EQ(plain->bytes[0], std::string("red\0blue", 8));
  EXPECT_THAT(Error("colour,size\nred,1\n", {color, size}), HasSubstr("lacks 1 of the 2 columns"));
  EXPECT_THAT(Error("red,1\nblue,two\n", {color, size}), HasSubstr("line 2, column 2: 'two'"));
  EXPECT_THAT(Error(std::string_view("a\0b,1\n", 6), {color, size}), HasSubstr("zero byte"));
  // Several texts of one input, which has no other column.
  color.shape = {4, 2, 4};
  const auto two = ParseTable("x,y\nz,\"a,b\"\n", {color});
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_FALSE(two->header) << "texts may be anything";
  EXPECT_TRUE(two->all_texts && !plain->all_texts);
  EXPECT_EQ(two->bytes[0], std::string("x\0\0\0y\0\0\0z\0\0\0a,b\0", 16));
  EXPECT_EQ(ParseTable("x,y\nz,w\n", {color}, HeaderRule::kYes)->rows, 1);
}

TEST(TableInput, WholeNumbersMayEndInZeros) {
  const std::vector<TensorSpec> whole = {Spec("n", "i8", 2)};
  const auto table = ParseTable("3.0,-4.000\n5.,7\n", whole);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->bytes[0], std::string("\3\xfc\5\7", 4));
  for (const std::string cell : {"3.5", "3.0e0", "128.0", ".0", "3.0x", "3..0"})
    EXPECT_THAT(Error("1,2\n3," + cell + "\n", whole),
                HasSubstr("line 2, column 2: '" + cell +
                          "' is no number (i8: whole, of 8 bits, never missing)"));
}

TEST(TableInput, BlanksInAHeaderMayBeUnderscoresInTheModel) {
  const std::vector<TensorSpec> specs = {Spec("x", "f32", 2, {"mean_radius", "age"})};
  const auto table = ParseTable("age,mean radius\n1,2\n", specs);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(Floats(table->bytes[0]), ElementsAre(2, 1));
  // The name itself comes first, and two others tell nothing.
  const auto both = ParseTable("age,mean radius,mean_radius\n1,2,3\n", specs);
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_THAT(Floats(both->bytes[0]), ElementsAre(3, 1));
  EXPECT_THAT(Error("age,mean radius,mean radius\n1,2,3\n", specs), HasSubstr("2 times"));
  EXPECT_THAT(Error("age,mean  radius\n1,2\n", specs), HasSubstr("lacks 1 of the 2 columns"));
}

TEST(TableInput, MistakesAreNamed) {
  const std::vector<TensorSpec> named = {Spec("x", "f32", 3, {"age", "income", "height"})};
  const std::vector<TensorSpec> unnamed = {Spec("x", "f32", 3)};
  EXPECT_THAT(Error("age,size,x\n1,2,3\n", named),
              AllOf(HasSubstr("lacks 2 of the 3 columns"), HasSubstr("'income' and 'height'"),
                    HasSubstr("has 'size' and 'x'"), HasSubstr("leave the header out")));
  EXPECT_THAT(Error("age;income;height\n1;2;3\n", named), HasSubstr("separated by commas"));
  EXPECT_THAT(Error("age,income,height,age\n1,2,3,4\n", named), HasSubstr("'age' 2 times"));
  EXPECT_TRUE(ParseTable("age,income,height,z,z\n1,2,3,4,5\n", named).ok());
  EXPECT_THAT(Error("a,a\n1,2\n", {Spec("x", "f32", 2, {"a", "a"})}),
              HasSubstr("the model has two columns 'a'"));
  EXPECT_THAT(Error("a,b\n1,2\n", unnamed), HasSubstr("2 columns where the model takes 3"));
  EXPECT_THAT(Error("1,2\n", named), HasSubstr("2 columns where the model takes 3"));
  EXPECT_THAT(Error("", named), HasSubstr("empty"));
  EXPECT_THAT(Error("age,income,height\n", named), HasSubstr("no rows"));
  EXPECT_THAT(Error("age,income,height\n1,2,3\n1,2\n", named),
              HasSubstr("line 3: 2 cells where the first line has 3"));
  EXPECT_THAT(Error("height,age,income\n\"1\",2,3\n1,old,3\n", named),
              HasSubstr("line 3, column 2 'age': 'old' is no number (f32; leave the cell empty"));
  EXPECT_THAT(Error("1,2,3\n1,2,1e5x\n", unnamed), HasSubstr("line 2, column 3: '1e5x'"));
  for (const char* bad : {"1.5", "", "nan", "300", "-1"})
    EXPECT_THAT(Error(fmt::format("1,1\n2,{}\n", bad), {Spec("n", "u8", 2)}),
                HasSubstr(fmt::format("line 2, column 2: '{}' is no number (u8: whole", bad)));
  EXPECT_THAT(Error("1\n", {Spec("x", "f16", 1)}), HasSubstr("'x' is f16"));
  EXPECT_THAT(Error("1\n", {{.name = "s", .dtype = "f32", .shape = {}}}), HasSubstr("rank 0"));
  EXPECT_THAT(Error("1\n", {Spec("x", "f32", 1 << 21)}), HasSubstr("too many for a table"));
  for (const char* bad : {"+-1", "++1", "1,5", "0x10", "1 2", "--1", "e5", "."})
    EXPECT_THAT(Error(fmt::format("1\n\"{}\"\n", bad), {Spec("x", "f32", 1)}), HasSubstr("line 2"));
  EXPECT_EQ(ReadTableFile("/nonexistent.csv", named, HeaderRule::kAuto).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace heddle::client
