// The part of Abseil's StrCat that the runtime uses; see README.md of compiler/runtime/alone.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace absl {
inline namespace heddle_alone {

enum PadSpec : int { kNoPad = 1, kZeroPad16 = 16 };

// The hexadecimal digits of a number, small letters, at least `pad` of them.
struct Hex {
  explicit Hex(uint64_t number, PadSpec pad = kNoPad) : number(number), pad(pad) {}
  uint64_t number;
  PadSpec pad;
};

// What StrCat takes: a text, a whole number, a Hex. The text must outlive the object.
class AlphaNum {
 public:
  AlphaNum(std::string_view text) : text_(text) {}
  AlphaNum(const std::string& text) : text_(text) {}
  AlphaNum(const char* text) : text_(text != nullptr ? text : "") {}
  template <typename Int>
  requires(std::integral<Int> && !std::is_same_v<Int, bool> && !std::is_same_v<Int, char>)
      AlphaNum(Int number) {
    bool negative = false;
    if constexpr (std::is_signed_v<Int>) negative = number < 0;
    // The negation of the smallest number is itself, modulo 2^64.
    const auto bits = static_cast<uint64_t>(number);
    WriteDigits(negative ? 0 - bits : bits, 10, 1);
    if (negative) *--first_ = '-';
    text_ = {first_, static_cast<size_t>(digits_ + sizeof(digits_) - first_)};
  }
  AlphaNum(Hex hex) {
    WriteDigits(hex.number, 16, hex.pad);
    text_ = {first_, static_cast<size_t>(digits_ + sizeof(digits_) - first_)};
  }
  AlphaNum(const AlphaNum&) = delete;  // text_ may lie in digits_
  AlphaNum& operator=(const AlphaNum&) = delete;

  std::string_view text() const { return text_; }

 private:
  void WriteDigits(uint64_t number, unsigned base, int least) {
    for (int written = 0; written < least || number != 0; ++written, number /= base)
      *--first_ = "0123456789abcdef"[number % base];
  }

  char digits_[24];
  char* first_ = digits_ + sizeof(digits_);
  std::string_view text_;
};

template <typename... Parts>
void StrAppendTexts(std::string* out, const Parts&... parts) {
  out->reserve(out->size() + (size_t{0} + ... + parts.text().size()));
  (out->append(parts.text()), ...);
}

template <typename... Args>
void StrAppend(std::string* out, const Args&... args) {
  StrAppendTexts(out, AlphaNum(args)...);
}

template <typename... Args>
std::string StrCat(const Args&... args) {
  std::string out;
  StrAppend(&out, args...);
  return out;
}

}  // namespace heddle_alone
}  // namespace absl
