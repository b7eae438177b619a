#include "views/align.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_split.h"

namespace heddle {
namespace {

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  if (lines.size() > kMaxAlignedLines) lines.resize(kMaxAlignedLines);
  return lines;
}

}  // namespace

std::vector<AlignedRow> AlignLines(const std::string& left, const std::string& right) {
  const std::vector<std::string> a = Lines(left), b = Lines(right);
  // common[i][j]: length of the longest common subsequence of a[i..] and b[j..].
  std::vector<std::vector<int>> common(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = a.size(); i-- > 0;) {
    for (size_t j = b.size(); j-- > 0;) {
      common[i][j] =
          a[i] == b[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
    }
  }
  std::vector<AlignedRow> rows;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      rows.push_back({a[i], ' ', b[j]});
      ++i, ++j;
    } else if (j == b.size() || (i < a.size() && common[i + 1][j] >= common[i][j + 1])) {
      // A line that replaces it goes into the same row.
      const bool paired = j < b.size() && common[i + 1][j + 1] == common[i][j];
      rows.push_back({a[i++], paired ? '|' : '<', paired ? b[j] : ""});
      if (paired) ++j;
    } else {
      rows.push_back({"", '>', b[j++]});
    }
  }
  return rows;
}

}  // namespace heddle
