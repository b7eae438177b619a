// The part of Abseil's StrJoin that the runtime uses; see README.md of compiler/runtime/alone.
#pragma once

#include <string>
#include <string_view>

namespace absl {
inline namespace heddle_alone {

// The texts of a range, with `separator` between them.
template <typename Range>
std::string StrJoin(const Range& range, std::string_view separator) {
  std::string out;
  bool first = true;
  for (const auto& text : range) {
    if (!first) out.append(separator);
    first = false;
    out.append(text);
  }
  return out;
}

}  // namespace heddle_alone
}  // namespace absl
