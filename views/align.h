// Two texts side by side, such as two schedules.
#pragma once

#include <string>
#include <vector>

namespace heddle {

struct AlignedRow {
  std::string left;
  // ' ': both have the line; '<': only the left one; '>': only the right one; '|': they differ.
  char mark = ' ';
  std::string right;
};
// Lines of a longest common subsequence share a row. Empty lines are left out. Of a longer text only
// the first kMaxAlignedLines count.
inline constexpr int kMaxAlignedLines = 2000;
std::vector<AlignedRow> AlignLines(const std::string& left, const std::string& right);

}  // namespace heddle
