// What is written as CSV is read back, and other files are refused with the line.
#include "client/modules/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace heddle::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Records = std::vector<std::vector<std::string>>;

// All records that have cells, or the refusal as a single cell.
Records Read(std::string_view text, std::vector<int64_t>* lines = nullptr) {
  CsvReader reader(text);
  Records records;
  std::vector<std::string> cells;
  while (true) {
    const absl::StatusOr<bool> more = reader.Next(&cells);
    if (!more.ok()) return {{std::string(more.status().message())}};
    if (!*more) return records;
    if (cells.empty()) continue;
    records.push_back(cells);
    if (lines != nullptr) lines->push_back(reader.line());
  }
}

Records RandomRecords(std::mt19937_64& rng) {
  constexpr std::string_view kPieces[] = {"a", "\"", ",", "\n", "\r", "\r\n", " ", "ü", "0.5", ""};
  Records records(rng() % 5);
  for (auto& record : records) {
    record.resize(1 + rng() % 4);
    for (std::string& cell : record) {
      for (uint64_t n = rng() % 4; n > 0; --n) cell += kPieces[rng() % std::size(kPieces)];
    }
  }
  return records;
}

TEST(Csv, WhatIsWrittenIsReadBack) {
  std::mt19937_64 rng(1);
  for (int round = 0; round < 3000; ++round) {
    const Records records = RandomRecords(rng);
    std::string text = round % 2 == 0 ? "\xef\xbb\xbf" : "";
    std::vector<int64_t> begins, lines;
    for (const auto& record : records) {
      begins.push_back(1 + std::count(text.begin(), text.end(), '\n'));
      text += CsvRecord(record);
    }
    EXPECT_EQ(Read(text, &lines), records) << text;
    EXPECT_EQ(lines, begins) << text;
    // The last line may have no end.
    if (!records.empty()) text.pop_back();
    EXPECT_EQ(Read(text), records) << text;
  }
}

// Other writers quote where they need not, end lines with CRLF and leave lines empty.
TEST(Csv, AllFormsOfAFileAreReadAlike) {
  std::mt19937_64 rng(2);
  for (int round = 0; round < 3000; ++round) {
    const Records records = RandomRecords(rng);
    std::string text;
    for (const auto& record : records) {
      for (size_t i = 0; i < record.size(); ++i) {
        std::string cell = CsvCell(record[i]);
        const bool lone = record.size() == 1 && cell.empty();
        if (cell == record[i] && (lone || rng() % 2 == 0)) cell = "\"" + cell + "\"";
        text += (i > 0 ? "," : "") + cell;
      }
      for (uint64_t n = 1 + rng() % 2; n > 0; --n) text += rng() % 2 == 0 ? "\r\n" : "\n";
    }
    EXPECT_EQ(Read(text), records) << text;
  }
}

TEST(Csv, SaysOnWhichLineItEnds) {
  EXPECT_THAT(Read("a,b\n1,\"2\n3,4\n")[0][0], HasSubstr("line 2: a cell in quotes has no end"));
  EXPECT_THAT(Read("\"a\nb\",c\n1,2\"3\n")[0][0], HasSubstr("line 3: a quote is inside"));
  EXPECT_THAT(Read("a\n\n\"1\" ,2\n")[0][0], HasSubstr("line 3: something follows"));
}

TEST(Csv, Examples) {
  EXPECT_TRUE(Read("").empty());
  EXPECT_TRUE(Read("\n\r\n\n").empty());
  EXPECT_THAT(Read("a,,\"\"\r\n,"), ElementsAre(ElementsAre("a", "", ""), ElementsAre("", "")));
  EXPECT_THAT(Read("\"say \"\"hi\"\", twice\"\n"), ElementsAre(ElementsAre("say \"hi\", twice")));
}

TEST(Csv, EmptyLinesAreRecordsWithoutCells) {
  CsvReader reader("\n1\r\n\r\n\"\"\n\n");
  std::vector<std::string> cells;
  Records records;
  while (*reader.Next(&cells)) {
    records.push_back(cells);
    EXPECT_EQ(reader.line(), std::ssize(records));
  }
  EXPECT_THAT(records, ElementsAre(ElementsAre(), ElementsAre("1"), ElementsAre(), ElementsAre(""),
                                   ElementsAre()));
}

TEST(Csv, NoTextCrashesIt) {
  std::mt19937_64 rng(3);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint64_t n = rng() % 12; n > 0; --n) text += "a1,,\"\"\"\n\n\r\xef\xbb\xbf"[rng() % 13];
    for (const auto& record : Read(text)) EXPECT_FALSE(record.empty());
  }
}

}  // namespace
}  // namespace heddle::client
