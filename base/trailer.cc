#include "base/trailer.h"

#include <cstdint>

namespace heddle {
namespace {

constexpr std::string_view kMark = "HEDTRAIL";
constexpr size_t kLengthBytes = 8;

}  // namespace

std::string TrailerOf(std::string_view text) {
  std::string trailer(text);
  for (size_t i = 0; i < kLengthBytes; ++i)
    trailer += static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i) & 0xff);
  trailer += kMark;
  return trailer;
}

SplitFile SplitTrailer(std::string_view file) {
  constexpr size_t kEnd = kLengthBytes + kMark.size();
  if (file.size() < kEnd || !file.ends_with(kMark)) return {file, {}};
  const std::string_view rest = file.substr(0, file.size() - kEnd);
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i)
    length |= static_cast<uint64_t>(static_cast<unsigned char>(file[rest.size() + i])) << (8 * i);
  if (length > rest.size()) return {file, {}};
  return {rest.substr(0, rest.size() - length), rest.substr(rest.size() - length)};
}

}  // namespace heddle
