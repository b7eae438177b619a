#include "base/one_line.h"

#include <cstdint>

namespace heddle {
namespace {

// The bytes of the character that `text` begins with; 0 if it begins with none. Overlong forms, surrogates and what is beyond Unicode
// are none.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0};
  };
  const auto follows = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const uint8_t first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4 || !follows(1)) return 0;
  if (first < 0xe0) return 2;
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || !follows(2)) return 0;
  if (first < 0xf0) return 3;
  if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f) || !follows(3)) return 0;
  return 4;
}

}  // namespace

std::string OneLine(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    if (bytes == 0)
      line += '?';
    else if (ControlBytes(text) > 0)
      line += ' ';
    else
      line += text.substr(0, bytes);
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return line;
}

std::string OneLine(const absl::Status& status) {
  return OneLine(std::string_view(status.message().data(), status.message().size()));
}

std::string ValidText(std::string_view text) {
  std::string valid(text);
  for (size_t at = 0; at < valid.size();) {
    const size_t bytes = CharacterBytes(std::string_view(valid).substr(at));
    if (bytes == 0 || valid[at] == '\0') valid[at] = '?';
    at += bytes == 0 ? 1 : bytes;
  }
  return valid;
}

}  // namespace heddle
