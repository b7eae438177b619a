#include "base/near_names.h"

#include <algorithm>
#include <utility>

namespace heddle {

size_t EditDistance(std::string_view a, std::string_view b) {
  // Of the first i - 2, i - 1 and i bytes of `a`.
  std::vector<size_t> before, above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::vector<std::string> NearNames(std::string_view name, std::vector<std::string> known,
                                   size_t count) {
  std::stable_sort(known.begin(), known.end(), [&](const std::string& a, const std::string& b) {
    return EditDistance(a, name) < EditDistance(b, name);
  });
  known.resize(std::min(known.size(), count));
  return known;
}

std::string NearName(std::string_view name, const std::vector<std::string>& known) {
  const std::vector<std::string> near = NearNames(name, known, 1);
  if (near.empty()) return "";
  const size_t length = std::max(name.size(), near.front().size());
  return EditDistance(name, near.front()) <= length / 4 ? near.front() : "";
}

}  // namespace heddle
