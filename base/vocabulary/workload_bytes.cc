#include "base/vocabulary/workload_bytes.h"

#include <charconv>
#include <limits>
#include <system_error>

namespace heddle {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// A whole number that is the whole text, but for blanks around it; -1: it is none.
int64_t NumberOf(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0 ? number : -1;
}

// Bytes of an element of the type "bool", "i8", "bf16", ..; -1: there is no such type.
int64_t ElementBytes(std::string_view type) {
  if (type == "bool") return 1;
  const size_t digits = type.find_first_of("0123456789");
  if (digits == std::string_view::npos) return -1;
  const std::string_view kind = type.substr(0, digits);
  if (kind != "i" && kind != "u" && kind != "f" && kind != "bf") return -1;
  const int64_t bits = NumberOf(type.substr(digits));
  return bits == 8 || bits == 16 || bits == 32 || bits == 64 ? bits / 8 : -1;
}

}  // namespace

int64_t BytesOfWorkload(std::string_view text) {
  constexpr std::string_view kBegin = "program ";
  if (text.substr(0, kBegin.size()) != kBegin) return 0;
  const std::string_view head = text.substr(0, text.find('{'));
  int64_t sum = 0;
  // Each buffer is "NAME: TYPE[EXTENT, ..]".
  for (size_t at = head.find(": "); at != std::string_view::npos; at = head.find(": ", at)) {
    at += 2;
    const size_t open = head.find('[', at), close = head.find(']', at);
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) return 0;
    int64_t bytes = ElementBytes(head.substr(at, open - at));
    if (bytes < 0) return 0;
    std::string_view shape = head.substr(open + 1, close - open - 1);
    while (!shape.empty()) {
      const size_t comma = shape.find(',');
      const int64_t extent = NumberOf(shape.substr(0, comma));
      if (extent < 0 || (extent > 0 && bytes > kMost / extent)) return 0;
      bytes *= extent;
      shape = comma == std::string_view::npos ? std::string_view() : shape.substr(comma + 1);
    }
    if (bytes > kMost - sum) return 0;
    sum += bytes;
    at = close;
  }
  return sum;
}

}  // namespace heddle
