#include "client/modules/csv.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"

namespace heddle::client {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

absl::Status Wrong(int64_t line, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("line {}: {}", line, what));
}

}  // namespace

CsvReader::CsvReader(std::string_view text) : text_(text) {
  if (text.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
}

bool CsvReader::Take(char c) {
  if (at_ == text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

bool CsvReader::TakeLineEnd() {
  const std::string_view rest = text_.substr(at_);
  if (!rest.starts_with('\n') && !rest.starts_with("\r\n")) return false;
  at_ += rest[0] == '\n' ? 1 : 2;
  ++line_;
  return true;
}

absl::StatusOr<bool> CsvReader::Next(std::vector<std::string>* cells) {
  record_line_ = line_;
  if (at_ == text_.size()) return false;
  if (TakeLineEnd()) {
    cells->clear();
    return true;
  }
  size_t count = 0;
  do {
    if (count == cells->size()) cells->emplace_back();
    HEDDLE_RETURN_IF_ERROR(ReadCell((*cells)[count]));
    ++count;
  } while (Take(','));
  cells->resize(count);
  if (at_ < text_.size() && !TakeLineEnd())
    return Wrong(line_,
                 "something follows the end of a cell in quotes; write a comma between cells");
  return true;
}

absl::Status CsvReader::ReadCell(std::string& cell) {
  cell.clear();
  if (Take('"')) return ReadQuoted(cell);
  size_t end = std::min(text_.find_first_of(",\n\"", at_), text_.size());
  if (end < text_.size() && text_[end] == '"') {
    return Wrong(line_,
                 "a quote is inside of a cell without quotes; write the cell in quotes, and each "
                 "quote in it twice");
  }
  const bool crlf = end < text_.size() && text_[end] == '\n' && end > at_ && text_[end - 1] == '\r';
  if (crlf) --end;
  cell = text_.substr(at_, end - at_);
  at_ = end;
  return absl::OkStatus();
}

// Behind the first quote.
absl::Status CsvReader::ReadQuoted(std::string& cell) {
  const int64_t begin = line_;
  while (true) {
    const size_t quote = text_.find('"', at_);
    if (quote == std::string_view::npos)
      return Wrong(begin, "a cell in quotes has no end; write a quote behind it");
    const std::string_view piece = text_.substr(at_, quote - at_);
    line_ += std::count(piece.begin(), piece.end(), '\n');
    cell += piece;
    at_ = quote + 1;
    if (!Take('"')) return absl::OkStatus();
    cell += '"';
  }
}

std::string CsvCell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos && !text.starts_with(kByteOrderMark))
    return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string CsvRecord(const std::vector<std::string>& cells) {
  // Alone in its line, an empty cell would be a record without cells.
  if (cells.size() == 1 && cells[0].empty()) return "\"\"\n";
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += ',';
    line += CsvCell(cells[i]);
  }
  return line + "\n";
}

}  // namespace heddle::client
