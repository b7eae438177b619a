// Suggestions for a name that is not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle {

// The least number of bytes to insert, delete or replace to make one text of the other (Levenshtein).
size_t EditDistance(std::string_view a, std::string_view b);

// At most `count` of the known names, the nearest first; of equally near ones, the first in `known`.
std::vector<std::string> NearNames(std::string_view name, std::vector<std::string> known,
                                   size_t count);

}  // namespace heddle
