// A text behind the content of a file, such as who signed it. Whoever reads the content by lengths that it
// gives itself need not know of trailers.
//
//   content | text | length of the text, 8 bytes, little endian | "HEDTRAIL"
#pragma once

#include <string>
#include <string_view>

namespace heddle {

// What to write behind the content.
std::string TrailerOf(std::string_view text);

struct SplitFile {
  std::string_view content;
  std::string_view text;  // empty: there is no trailer, and the content is all
};
SplitFile SplitTrailer(std::string_view file);

}  // namespace heddle
