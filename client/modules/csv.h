// Comma-separated values (RFC 4180), read record by record, and written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace heddle::client {

// Cells are separated by commas, records by LF or CRLF. A cell in quotes may hold all of these, and a quote as two quotes.
class CsvReader {
 public:
  // `text` outlives the reader. A byte order mark at its beginning is skipped.
  explicit CsvReader(std::string_view text);

  // Reads the next record; false at the end of the text. A line without any character is a record without cells: it is nothing,
  // or a cell of a file with one column, which the caller knows. InvalidArgument names the line: a quoted cell has no end or is
  // followed by something else than a comma, or a quote is inside of a cell without quotes.
  absl::StatusOr<bool> Next(std::vector<std::string>* cells);
  // The line on which the last record begins, from 1.
  int64_t line() const { return record_line_; }

 private:
  bool Take(char c);
  bool TakeLineEnd();
  absl::Status ReadCell(std::string& cell);
  absl::Status ReadQuoted(std::string& cell);

  std::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 1;
  int64_t record_line_ = 0;
};

// The text of a cell in a CSV file. It stands in double quotes if it holds a comma, a quote or a line
// break, or begins with a byte order mark.
std::string CsvCell(std::string_view text);
// A line of cells, with its end. CsvReader reads them back if there is one at least.
std::string CsvRecord(const std::vector<std::string>& cells);

}  // namespace heddle::client
