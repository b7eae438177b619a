// Tables as inputs of a module: finds the columns that the module's inputs need in a CSV file, and reads their numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/module.h"

namespace heddle::client {

// Limits of a file.
inline constexpr int64_t kMostTableBytes = int64_t{1} << 30;
inline constexpr int64_t kMostTableColumns = int64_t{1} << 20;  // that inputs take
inline constexpr int64_t kMostInputBytes = int64_t{1} << 31;    // of the elements that inputs take

// Whether the first record of a file is a header.
enum class HeaderRule { kAuto, kYes, kNo };

struct TableInput {
  int64_t rows = 0;  // at least 1
  // By spec: the elements of all rows, row by row. A row has those of one index of the spec's dimension 0.
  std::vector<std::string> bytes;
  bool header = false;     // whether the first record is one
  bool by_name = false;    // whether the columns were found by their names
  bool numbered = false;   // whether the first record is 0,1,.., and so may be a header or not
  bool all_texts = false;  // whether all needed columns are texts: any first record may be a row
  std::vector<std::string> unused;  // by name: columns of the file that no spec has
};

// Reads rows for `specs` from the text of a CSV file.
//
// The columns that are needed are those of the specs, one spec after the other. Their names are TensorSpec::columns; of several
// specs, one without names and with one column is named as the tensor. By kAuto, the first record of the file is a header if
// - a cell of it is no number where the model takes no text,
// - or it has the names of all columns that are needed, or the name of any that is no number,
// - or it is 0,1,2,.., as tools number columns without names, and the next record has a number that is not whole.
// If there is a header, columns are found by its names, in any order. Columns are taken by position if there is no header, if it only
// numbers the columns, or if some columns of the model have no names. The file then has as many columns as the model.
//
// Cells are decimal numbers, as strtod reads them; "", "NA" and "nan" are NaN. For texts (TensorSpec::text), they are taken as they
// are, and cut at the bytes that the input has for each. An empty line is skipped, but in a file with one column
// it is an empty cell, unless only empty lines follow. InvalidArgument, in one line that names the line
// and the column: the file is no CSV or exceeds a limit, columns are missing or there twice, their number does not fit, a
// record is longer or shorter than the first one, a cell is no number of the spec's type, or there are no rows.
absl::StatusOr<TableInput> ParseTable(std::string_view text,
                                      const std::vector<runtime::TensorSpec>& specs,
                                      HeaderRule rule = HeaderRule::kAuto);
// The same for a file. Errors begin with its path.
absl::StatusOr<TableInput> ReadTableFile(const std::string& path,
                                         const std::vector<runtime::TensorSpec>& specs,
                                         HeaderRule rule);

// Names in quotes, for a message: "'a', 'b', 'c' and 4 more".
std::string SomeNames(const std::vector<std::string>& names);

}  // namespace heddle::client
