#include "client/modules/table_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "client/modules/csv.h"
#include "client/modules/npy.h"

namespace heddle::client {
namespace {

using runtime::TensorSpec;

constexpr size_t kShownNames = 5;
constexpr size_t kShownCellBytes = 40;

template <typename... Args>
absl::Status WrongTable(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(format, std::forward<Args>(args)...));
}

std::string_view WithoutBlanks(std::string_view cell) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t begin = cell.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return "";
  return cell.substr(begin, cell.find_last_not_of(kBlanks) + 1 - begin);
}

bool IsMissing(std::string_view cell) { return cell.empty() || cell == "NA"; }

// Appends the number in a cell to `out`; false if it is no T.
template <typename T>
bool AppendNumber(std::string_view cell, std::string* out) {
  cell = WithoutBlanks(cell);
  T value{};
  if (std::is_floating_point_v<T> && IsMissing(cell)) {
    value = std::numeric_limits<T>::quiet_NaN();
  } else {
    if (cell.size() > 1 && cell[0] == '+' && cell[1] != '-') cell.remove_prefix(1);
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error == std::errc::invalid_argument) return false;
    if (end != cell.data() + cell.size()) {
      // Data frames write whole numbers as 3.0 where a column has a gap.
      if constexpr (std::is_integral_v<T>) {
        std::string_view zeros = cell.substr(static_cast<size_t>(end - cell.data()));
        if (error != std::errc() || zeros[0] != '.' ||
            zeros.find_first_not_of('0', 1) != std::string_view::npos)
          return false;
      } else {
        return false;
      }
    }
    if (error == std::errc::result_out_of_range) {
      if constexpr (std::is_same_v<T, float>)
        value = std::strtof(std::string(cell).c_str(), nullptr);
      else if constexpr (std::is_same_v<T, double>)
        value = std::strtod(std::string(cell).c_str(), nullptr);
      else
        return false;
    }
  }
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
  return true;
}

using Appender = bool (*)(std::string_view cell, std::string* out);
struct NumberType {
  std::string_view dtype;
  Appender append;
  size_t bytes;
};
constexpr NumberType kNumberTypes[] = {
    {"f32", AppendNumber<float>, 4},    {"f64", AppendNumber<double>, 8},
    {"i8", AppendNumber<int8_t>, 1},    {"i16", AppendNumber<int16_t>, 2},
    {"i32", AppendNumber<int32_t>, 4},  {"i64", AppendNumber<int64_t>, 8},
    {"u8", AppendNumber<uint8_t>, 1},   {"u16", AppendNumber<uint16_t>, 2},
    {"u32", AppendNumber<uint32_t>, 4}, {"u64", AppendNumber<uint64_t>, 8},
};

// A column that a spec needs.
struct Column {
  std::string name;  // empty: none
  size_t spec = 0;
  Appender append = nullptr;  // null: a text
  size_t bytes = 0;           // of an element
};

// Dimensions of a spec's table: those of the tensor, without the bytes of texts.
size_t RankOf(const TensorSpec& spec) { return spec.shape.size() - (spec.text ? 1 : 0); }

int64_t ColumnsOf(const TensorSpec& spec) {
  int64_t columns = 1;
  for (size_t d = 1; d < RankOf(spec); ++d) columns *= spec.shape[d];
  return columns;
}

// A text, cut or filled with zeros. False if it has a zero byte, with which it would end.
bool AppendText(std::string_view cell, size_t bytes, std::string* out) {
  if (cell.find('\0') != std::string_view::npos) return false;
  const std::string_view kept = cell.substr(0, bytes);
  out->append(kept);
  out->append(bytes - kept.size(), '\0');
  return true;
}

bool Append(const Column& column, std::string_view cell, std::string* out) {
  return column.append == nullptr ? AppendText(cell, column.bytes, out) : column.append(cell, out);
}

absl::StatusOr<std::vector<Column>> NeededColumns(const std::vector<TensorSpec>& specs) {
  std::vector<Column> needed;
  for (size_t s = 0; s < specs.size(); ++s) {
    const TensorSpec& spec = specs[s];
    const NumberType* type = nullptr;
    for (const NumberType& t : kNumberTypes) {
      if (t.dtype == spec.dtype) type = &t;
    }
    if (type == nullptr || spec.shape.empty() || RankOf(spec) == 0)
      return WrongTable("input '{}' is {} of rank {} and takes no table; give an .npy file",
                        spec.name, spec.dtype, spec.shape.size());
    const int64_t columns = ColumnsOf(spec);
    if (columns > kMostTableColumns - std::ssize(needed))
      return WrongTable("input '{}' has {} columns, too many for a table; give an .npy file",
                        spec.name, columns);
    const bool as_tensor = spec.columns.empty() && columns == 1 && specs.size() > 1;
    for (size_t c = 0; c < static_cast<size_t>(columns); ++c) {
      const std::string name = as_tensor                 ? spec.name
                               : c < spec.columns.size() ? spec.columns[c]
                                                         : "";
      needed.push_back({name, s, spec.text ? nullptr : type->append,
                        spec.text ? static_cast<size_t>(spec.shape.back()) : type->bytes});
    }
  }
  return needed;
}

bool IsNumber(std::string_view cell) {
  std::string ignored;
  return AppendNumber<double>(cell, &ignored);
}

// Where the needed columns are in the file.
struct Places {
  std::vector<size_t> of;           // by needed column
  std::vector<std::string> unused;  // names
};

absl::StatusOr<Places> PlacesByName(const std::vector<std::string>& header,
                                    const std::vector<Column>& needed) {
  // LightGBM writes "mean radius" as "mean_radius" into its files.
  std::map<std::string, std::vector<size_t>, std::less<>> found, underlined;
  for (size_t c = 0; c < header.size(); ++c) {
    found[header[c]].push_back(c);
    if (absl::StrContains(header[c], ' '))
      underlined[absl::StrReplaceAll(header[c], {{" ", "_"}})].push_back(c);
  }
  std::set<std::string_view> names;
  for (const Column& column : needed) {
    if (names.insert(column.name).second) continue;
    return WrongTable(
        "the model has two columns '{}', so that names tell nothing; leave the header out, and "
        "give the columns in the model's order",
        column.name);
  }
  Places places;
  std::vector<bool> used(header.size(), false);
  std::vector<std::string> missing;
  for (const Column& column : needed) {
    auto at = found.find(column.name);
    if (at == found.end()) {
      at = underlined.find(column.name);
      if (at == underlined.end()) {
        missing.push_back(column.name);
        continue;
      }
    }
    if (at->second.size() > 1)
      return WrongTable("the header has the column '{}' {} times; leave one", column.name,
                        at->second.size());
    places.of.push_back(at->second[0]);
    used[at->second[0]] = true;
  }
  for (size_t c = 0; c < header.size(); ++c) {
    if (!used[c]) places.unused.push_back(header[c]);
  }
  if (missing.empty()) return places;
  const std::string others =
      places.unused.empty() ? "" : fmt::format(", and has {}", SomeNames(places.unused));
  return WrongTable(
      "the header lacks {} of the {} columns that the model needs: {}{}; rename columns, or leave "
      "the header out and give the columns in the model's order{}",
      missing.size(), needed.size(), SomeNames(missing), others,
      header.size() == 1 ? "; cells are separated by commas" : "");
}

absl::StatusOr<Places> PlacesByPosition(size_t columns, size_t needed) {
  if (columns != needed) {
    return WrongTable(
        "{} column{} where the model takes {}, by position; give these in the model's order{}",
        columns, columns == 1 ? "" : "s", needed,
        columns == 1 ? "; cells are separated by commas" : "");
  }
  Places places;
  for (size_t c = 0; c < needed; ++c) places.of.push_back(c);
  return places;
}

// The first two records of a file that have cells; empty where there are none.
struct Beginning {
  std::vector<std::string> first, second;
};

absl::StatusOr<Beginning> BeginningOf(std::string_view text) {
  CsvReader reader(text);
  Beginning beginning;
  for (std::vector<std::string>* record : {&beginning.first, &beginning.second}) {
    bool more = true;
    while (more && record->empty()) {
      HEDDLE_ASSIGN_OR_RETURN(more, reader.Next(record));
    }
  }
  return beginning;
}

// Whether the cells are 0, 1, ..
bool CountsUp(const std::vector<std::string>& cells) {
  for (size_t c = 0; c < cells.size(); ++c) {
    if (cells[c] != fmt::format("{}", c)) return false;
  }
  return cells.size() > 1;
}

// Whether the first record names columns: it has what is no number where the model takes one, or a name of the model's.
bool NamesColumns(const std::vector<std::string>& first, const std::vector<Column>& needed) {
  const bool by_position = first.size() == needed.size();
  for (size_t c = 0; c < first.size(); ++c) {
    const bool may_be_text = by_position && needed[c].append == nullptr;
    if (!may_be_text && !IsNumber(first[c])) return true;
  }
  return std::any_of(needed.begin(), needed.end(), [&](const Column& column) {
    return !IsNumber(column.name) &&
           std::find(first.begin(), first.end(), column.name) != first.end();
  });
}

// A header of column numbers is written 0,1,2. So a cell such as 3.0 shows that the line above it is a header, and does not count as
// whole here.
bool IsWholeOrMissing(std::string_view cell) {
  std::string number;
  if (cell.find('.') == std::string_view::npos && AppendNumber<int64_t>(cell, &number)) return true;
  double value = 0;
  if (AppendNumber<double>(cell, &number)) std::memcpy(&value, number.data(), sizeof value);
  return std::isnan(value);
}

// Whether the first record is a header although all its cells are numbers and not the model's names. Two columns are too few to
// tell: a row of 0 and 1 is no rare one.
bool NumbersColumns(const Beginning& beginning) {
  return CountsUp(beginning.first) && beginning.first.size() > 2 && !beginning.second.empty() &&
         !std::all_of(beginning.second.begin(), beginning.second.end(), IsWholeOrMissing);
}

// Without empty lines at its end, which are no rows.
std::string_view WithoutEmptyEnd(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(text.ends_with("\r\n") ? 2 : 1);
  return text;
}

std::string Shortened(std::string_view cell) {
  return cell.size() <= kShownCellBytes ? std::string(cell)
                                        : std::string(cell.substr(0, kShownCellBytes)) + "..";
}

}  // namespace

std::string SomeNames(const std::vector<std::string>& names) {
  std::string text;
  const size_t shown = std::min(names.size(), kShownNames);
  for (size_t i = 0; i < shown; ++i) {
    const bool last = i > 0 && i + 1 == names.size();
    text += fmt::format("{}'{}'", i == 0 ? "" : last ? " and " : ", ", Shortened(names[i]));
  }
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

absl::StatusOr<TableInput> ParseTable(std::string_view text, const std::vector<TensorSpec>& specs,
                                      HeaderRule rule) {
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Column> needed, NeededColumns(specs));
  bool named = true;
  for (const Column& column : needed) named = named && !column.name.empty();
  HEDDLE_ASSIGN_OR_RETURN(const Beginning beginning, BeginningOf(text));
  const std::vector<std::string>& first = beginning.first;
  if (first.empty())
    return WrongTable("the file is empty; give a row of numbers for each row of the input");
  absl::StatusOr<Places> by_name = absl::NotFoundError("");
  if (named) by_name = PlacesByName(first, needed);
  const bool looks_like_one =
      by_name.ok() || NumbersColumns(beginning) || NamesColumns(first, needed);
  const bool header = rule == HeaderRule::kYes || (rule == HeaderRule::kAuto && looks_like_one);

  TableInput table;
  table.header = header;
  table.numbered = CountsUp(first);
  table.all_texts = std::all_of(needed.begin(), needed.end(),
                                [](const Column& column) { return column.append == nullptr; });
  table.by_name = header && named && (by_name.ok() || !table.numbered);
  HEDDLE_ASSIGN_OR_RETURN(Places places, table.by_name
                                             ? std::move(by_name)
                                             : PlacesByPosition(first.size(), needed.size()));
  table.unused = std::move(places.unused);
  table.bytes.resize(specs.size());
  CsvReader reader(WithoutEmptyEnd(text));
  std::vector<std::string> cells;
  bool behind_header = !header;
  size_t row_bytes = 1;
  for (const Column& column : needed) row_bytes += column.bytes;
  const int64_t most = kMostInputBytes / static_cast<int64_t>(row_bytes);
  while (true) {
    HEDDLE_ASSIGN_OR_RETURN(const bool more, reader.Next(&cells));
    if (!more) break;
    if (!behind_header) {
      behind_header = !cells.empty();
      continue;
    }
    if (cells.empty() && first.size() > 1) continue;
    if (cells.empty()) cells.emplace_back();
    if (cells.size() != first.size()) {
      return WrongTable("line {}: {} cells where the first line has {}", reader.line(),
                        cells.size(), first.size());
    }
    if (++table.rows > most)
      return WrongTable("line {}: more than {} bytes of inputs; split the file", reader.line(),
                        kMostInputBytes);
    for (size_t c = 0; c < needed.size(); ++c) {
      const std::string& cell = cells[places.of[c]];
      const TensorSpec& spec = specs[needed[c].spec];
      if (Append(needed[c], cell, &table.bytes[needed[c].spec])) continue;
      const std::string name = header ? fmt::format(" '{}'", Shortened(first[places.of[c]])) : "";
      if (spec.text) {
        return WrongTable("line {}, column {}{}: a text with a zero byte; leave it out",
                          reader.line(), places.of[c] + 1, name);
      }
      const bool may_miss = spec.dtype[0] == 'f';
      const std::string way_out =
          may_miss ? "; leave the cell empty if there is none, and give a category as its code"
                   : fmt::format(": whole, of {} bits, never missing", spec.dtype.substr(1));
      return WrongTable("line {}, column {}{}: '{}' is no number ({}{})", reader.line(),
                        places.of[c] + 1, name, Shortened(cell), spec.dtype, way_out);
    }
  }
  if (table.rows == 0) return WrongTable("there are no rows below the header");
  return table;
}

absl::StatusOr<TableInput> ReadTableFile(const std::string& path,
                                         const std::vector<TensorSpec>& specs, HeaderRule rule) {
  std::error_code ignored;  // ReadFile tells
  const auto size = std::filesystem::file_size(path, ignored);
  if (!ignored && size > static_cast<uintmax_t>(kMostTableBytes)) {
    return WrongTable("{}: {} bytes, {} are the most; split the file", path, size, kMostTableBytes);
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  absl::StatusOr<TableInput> table = ParseTable(text, specs, rule);
  if (!table.ok()) return WrongTable("{}: {}", path, std::string(table.status().message()));
  return table;
}

}  // namespace heddle::client
