// Tables that people give to `heddle run` (client/modules): the first byte chooses the inputs that the table is for, and whether the
// first record is a header.
#include "client/modules/csv.h"
#include "client/modules/table_input.h"
#include "tests/fuzz/fuzz_target.h"

namespace heddle::fuzz {
namespace {

using client::HeaderRule;
using runtime::TensorSpec;

const std::vector<std::vector<TensorSpec>>& Inputs() {
  static const auto& inputs = *[] {
    TensorSpec named{"x", "f32", {4, 3}};
    named.columns = {"age", "income", "colour"};
    TensorSpec text{"words", "u8", {4, 2, 8}};
    text.text = true;
    return new std::vector<std::vector<TensorSpec>>{
        {{"x", "f32", {4, 3}}},    {named},
        {text, {"n", "i32", {4}}}, {{"a", "f64", {4}}, {"b", "i64", {4, 1}}, {"c", "u8", {4, 2}}},
        {{"x", "f32", {4}}},
    };
  }();
  return inputs;
}

void ReadRecords(std::string_view text) {
  client::CsvReader reader(text);
  std::vector<std::string> cells;
  for (absl::StatusOr<bool> more = reader.Next(&cells); more.ok() && *more;
       more = reader.Next(&cells)) {
    if (cells.empty()) continue;
    const std::string line = client::CsvRecord(cells);
    client::CsvReader again(line);
    std::vector<std::string> same;
    const absl::StatusOr<bool> read = again.Next(&same);
    Require(read.ok() && *read && same == cells, "a record that was written is read back");
  }
}

}  // namespace

void Run(std::string_view input) {
  constexpr HeaderRule kRules[] = {HeaderRule::kAuto, HeaderRule::kYes, HeaderRule::kNo};
  const unsigned mode = TakeByte(&input);
  const std::vector<TensorSpec>& specs = Inputs()[mode % Inputs().size()];
  const HeaderRule rule = kRules[mode / Inputs().size() % std::size(kRules)];
  ReadRecords(input);
  const absl::StatusOr<client::TableInput> table = client::ParseTable(input, specs, rule);
  if (!table.ok()) {
    Require(table.status().code() == absl::StatusCode::kInvalidArgument,
            "a table is invalid, and nothing else");
    return;
  }
  Require(table->rows > 0 && table->bytes.size() == specs.size(),
          "a table has rows for all inputs");
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto row = static_cast<size_t>(specs[i].SizeBytes() / specs[i].shape[0]);
    Require(table->bytes[i].size() == row * static_cast<size_t>(table->rows),
            "an input has the bytes of all rows");
  }
}

}  // namespace heddle::fuzz
