// Suggestions for a name that is not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle {

// The least number of bytes to insert, delete or replace, or of neighbours to swap, to make one
// text of the other (optimal string alignment).
size_t EditDistance(std::string_view a, std::string_view b);

// At most `count` of the known names, the nearest first; of equally near ones, the first in
// `known`.
std::vector<std::string> NearNames(std::string_view name, std::vector<std::string> known,
                                   size_t count);

// The nearest known name, if at most a quarter of the longer one differs; otherwise empty: it would
// be no help.
std::string NearName(std::string_view name, const std::vector<std::string>& known);

}  // namespace heddle
