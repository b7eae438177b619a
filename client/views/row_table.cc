#include "client/views/row_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "client/modules/csv.h"
#include "client/modules/output_check.h"
#include "client/views/json.h"
#include "client/views/terminal.h"

namespace heddle::client {
namespace {

using runtime::TensorSpec;

constexpr int64_t kShownRows = 20;
constexpr int64_t kShownColumns = 12;
constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

bool IsFloat(const std::string& dtype) { return dtype[0] == 'f' || dtype == "bf16"; }

template <typename T>
std::vector<int64_t> Integers(const std::string& bytes) {
  std::vector<int64_t> values(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    values[i] = static_cast<int64_t>(value);
  }
  return values;
}

std::vector<int64_t> ToIntegers(const std::string& bytes, const std::string& dtype) {
  if (dtype == "i64" || dtype == "u64") return Integers<int64_t>(bytes);
  if (dtype == "i32") return Integers<int32_t>(bytes);
  if (dtype == "u32") return Integers<uint32_t>(bytes);
  if (dtype == "i16") return Integers<int16_t>(bytes);
  if (dtype == "u16") return Integers<uint16_t>(bytes);
  if (dtype == "i8") return Integers<int8_t>(bytes);
  return Integers<uint8_t>(bytes);
}

// Names come from models and may be no UTF-8.
std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

bool RowTable::HasRows(const std::vector<NpyArray>& results) {
  return !results.empty() &&
         std::all_of(results.begin(), results.end(), [&](const NpyArray& result) {
           return !result.shape.empty() && !results[0].shape.empty() &&
                  result.shape[0] == results[0].shape[0];
         });
}

RowTable::RowTable(const std::vector<TensorSpec>& outputs, const std::vector<NpyArray>& results)
    : rows_(results[0].shape[0]) {
  for (size_t i = 0; i < results.size(); ++i) {
    const NpyArray& result = results[i];
    Output output{outputs[i].name, outputs[i].columns, outputs[i].labels, 1, result.dtype, {}, {}};
    for (size_t d = 1; d < result.shape.size(); ++d) output.width *= result.shape[d];
    if (static_cast<int64_t>(output.columns.size()) != output.width) output.columns.clear();
    if (IsFloat(result.dtype))
      output.floats = ToDoubles(result.bytes, result.dtype);
    else
      output.integers = ToIntegers(result.bytes, result.dtype);
    outputs_.push_back(std::move(output));
  }
  std::stable_partition(outputs_.begin(), outputs_.end(),
                        [](const Output& output) { return !IsFloat(output.dtype); });
}

// `exact`: with all digits.
std::string RowTable::Text(const Output& output, size_t element, bool exact) {
  if (IsFloat(output.dtype)) {
    const double value = output.floats[element];
    if (!exact) return fmt::format("{:.6g}", value);
    return output.dtype == "f64" ? fmt::format("{}", value)
                                 : fmt::format("{}", static_cast<float>(value));
  }
  const int64_t value = output.integers[element];
  if (value >= 0 && value < std::ssize(output.labels))
    return output.labels[static_cast<size_t>(value)];
  return output.dtype == "u64" ? fmt::format("{}", static_cast<uint64_t>(value))
                               : fmt::format("{}", value);
}

std::string RowTable::Json(const Output& output, size_t element) {
  if (IsFloat(output.dtype))
    return std::isfinite(output.floats[element]) ? Text(output, element, true) : "null";
  const std::string text = Text(output, element, true);
  const int64_t value = output.integers[element];
  return value >= 0 && value < std::ssize(output.labels) ? Quoted(text) : text;
}

// At most `most` columns of each output.
std::vector<std::string> RowTable::Header(int64_t most) const {
  std::vector<std::string> header = {"row"};
  for (const Output& output : outputs_) {
    for (int64_t c = 0; c < std::min(output.width, most); ++c) {
      if (!output.columns.empty())
        header.push_back(output.name + "." + output.columns[static_cast<size_t>(c)]);
      else
        header.push_back(output.width == 1 ? output.name : fmt::format("{}.{}", output.name, c));
    }
  }
  return header;
}

std::vector<std::string> RowTable::Cells(int64_t row, int64_t most, bool exact) const {
  std::vector<std::string> cells = {fmt::format("{}", row + 1)};
  for (const Output& output : outputs_) {
    for (int64_t c = 0; c < std::min(output.width, most); ++c)
      cells.push_back(Text(output, static_cast<size_t>(row * output.width + c), exact));
  }
  return cells;
}

std::string RowTable::ToText(bool plain) const {
  const int64_t shown_rows = plain ? rows_ : std::min(rows_, kShownRows);
  const int64_t most = plain ? kAll : kShownColumns;
  Table table(Header(most));
  for (int64_t row = 0; row < shown_rows; ++row) table.Add(Cells(row, most, plain));
  int64_t columns_left = 0;
  for (const Output& output : outputs_) columns_left += std::max<int64_t>(output.width - most, 0);
  std::vector<std::string> left;
  if (rows_ > shown_rows) left.push_back(fmt::format("{} more rows", rows_ - shown_rows));
  if (columns_left > 0) left.push_back(fmt::format("{} more columns", columns_left));
  std::string text = table.ToText(plain);
  if (!left.empty())
    text += fmt::format(".. and {}: --csv or --json prints all\n", fmt::join(left, " and "));
  return text;
}

std::string RowTable::CsvHeader() const { return CsvRecord(Header(kAll)); }

std::string RowTable::CsvRow(int64_t row) const { return CsvRecord(Cells(row, kAll, true)); }

std::string RowTable::JsonRow(int64_t row) const {
  std::vector<std::string> members;
  for (const Output& output : outputs_) {
    std::vector<std::string> values;
    for (int64_t c = 0; c < output.width; ++c) {
      const std::string value = Json(output, static_cast<size_t>(row * output.width + c));
      values.push_back(output.columns.empty()
                           ? value
                           : Quoted(output.columns[static_cast<size_t>(c)]) + ":" + value);
    }
    const std::string joined = fmt::format("{}", fmt::join(values, ","));
    const std::string value = !output.columns.empty() ? "{" + joined + "}"
                              : output.width == 1     ? joined
                                                      : "[" + joined + "]";
    members.push_back(Quoted(output.name) + ":" + value);
  }
  return fmt::format("{{\"schema_version\":{},\"row\":{},\"outputs\":{{{}}}}}\n",
                     kJsonSchemaVersion, row + 1, fmt::join(members, ","));
}

}  // namespace heddle::client
