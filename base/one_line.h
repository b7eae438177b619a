// Text of unknown origin, made fit for a message: a line for people, and a string of Protobuf, whose parser refuses a whole message for
// one byte that is no UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

// `text` with a blank for each control character, and with '?' for each byte that is no UTF-8.
std::string OneLine(std::string_view text);

}  // namespace heddle
