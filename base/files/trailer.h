// A text behind the content of a file, such as who signed it. Whoever reads the content by lengths that it
// gives itself need not know of trailers.
//
//   content | text | length of the text, 8 bytes, little endian | "HEDTRAIL"
//
// In a header, so that a library for deployment needs no further source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace heddle {

inline constexpr std::string_view kTrailerMark = "HEDTRAIL";
inline constexpr size_t kTrailerLengthBytes = 8;

// What to write behind the content.
inline std::string TrailerOf(std::string_view text) {
  std::string trailer(text);
  for (size_t i = 0; i < kTrailerLengthBytes; ++i)
    trailer += static_cast<char>((static_cast<uint64_t>(text.size()) >> (8 * i)) & 0xff);
  trailer += kTrailerMark;
  return trailer;
}

struct SplitFile {
  std::string_view content;
  std::string_view text;  // empty: there is no trailer, and the content is all
};

inline SplitFile SplitTrailer(std::string_view file) {
  constexpr size_t kEnd = kTrailerLengthBytes + kTrailerMark.size();
  if (file.size() < kEnd || !file.ends_with(kTrailerMark)) return {file, {}};
  const std::string_view rest = file.substr(0, file.size() - kEnd);
  uint64_t length = 0;
  for (size_t i = 0; i < kTrailerLengthBytes; ++i)
    length |= static_cast<uint64_t>(static_cast<unsigned char>(file[rest.size() + i])) << (8 * i);
  if (length > rest.size()) return {file, {}};
  return {rest.substr(0, rest.size() - length), rest.substr(rest.size() - length)};
}

}  // namespace heddle
