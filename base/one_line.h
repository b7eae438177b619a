// Text of unknown origin, made fit for a message: a line for people, and a string of Protobuf, whose parser refuses a whole message for
// one byte that is no UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace heddle {

// The bytes of the control character that `text` begins with, in ASCII or as the two bytes of U+0080 to U+009F; 0 if it begins with none.
inline size_t ControlBytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x20 || first == 0x7f) return 1;
  if (first != 0xc2 || text.size() == 1) return 0;
  const auto second = static_cast<unsigned char>(text[1]);
  return second >= 0x80 && second < 0xa0 ? 2 : 0;
}

// `text` with a blank for each control character, and with '?' for each byte that is no UTF-8.
std::string OneLine(std::string_view text);
// The same of its message.
std::string OneLine(const absl::Status& status);

// `text` with '?' for each zero byte and for each byte that is no UTF-8: what every database takes as text.
std::string ValidText(std::string_view text);

}  // namespace heddle
