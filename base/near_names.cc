#include "base/near_names.h"

#include <algorithm>

namespace heddle {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
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

}  // namespace heddle
