// A check of markup for tests.
#pragma once

#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"

namespace heddle::views {

// Text of a stranger.
inline constexpr char kHostile[] = "<script>x</script>\"'&\x1b\xff";

// Empty if every tag that is opened is closed in order, every attribute has a quoted value, and every
// '&' begins a reference; otherwise what is wrong, with the place.
inline std::string Malformed(std::string_view markup) {
  std::vector<std::string> open;
  const auto at = [&](size_t i) { return std::string(markup.substr(i, 60)); };
  for (size_t i = 0; i < markup.size(); ++i) {
    if (markup[i] == '>') return absl::StrCat("a lone '>' at ", at(i));
    if (markup[i] == '&') {
      const size_t end = markup.find(';', i);
      if (end == std::string_view::npos || end - i > 7)
        return absl::StrCat("a lone '&' at ", at(i));
    }
    if (markup[i] != '<') continue;
    if (markup.substr(i).starts_with("<!DOCTYPE")) {
      i = markup.find('>', i);
      continue;
    }
    const size_t begin = i;
    const bool closing = i + 1 < markup.size() && markup[i + 1] == '/';
    i += closing ? 2 : 1;
    std::string name;
    while (i < markup.size() && (isalnum(static_cast<unsigned char>(markup[i])) != 0))
      name += markup[i++];
    if (name.empty()) return absl::StrCat("no tag at ", at(begin));
    bool quoted = false;
    while (i < markup.size() && (quoted || markup[i] != '>')) {
      if (markup[i] == '"') quoted = !quoted;
      if (markup[i] == '<') return absl::StrCat("a '<' in the tag at ", at(begin));
      if (!quoted && markup[i] == '=' && (i + 1 == markup.size() || markup[i + 1] != '"'))
        return absl::StrCat("an attribute without quotes at ", at(begin));
      ++i;
    }
    if (i >= markup.size()) return absl::StrCat("a tag without an end at ", at(begin));
    if (closing) {
      if (open.empty() || open.back() != name) return absl::StrCat("not open: ", at(begin));
      open.pop_back();
    } else if (markup[i - 1] != '/') {
      open.push_back(name);
    }
  }
  return open.empty() ? "" : absl::StrCat("not closed: ", open.back());
}

}  // namespace heddle::views
