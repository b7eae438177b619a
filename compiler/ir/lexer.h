// Tokens of the IR's text form. Private to parse.cc.
#pragma once

#include <string>
#include <string_view>

namespace heddle::ir {

enum class TokenKind { kName, kNumber, kSymbol, kEnd, kBad };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;  // points into the source
  int line = 1;
  int column = 1;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Token Next() {
    SkipBlank();
    Token token;
    token.line = line_;
    token.column = static_cast<int>(pos_ - line_start_) + 1;
    if (pos_ == source_.size()) return token;
    const size_t begin = pos_;
    if (IsNameStart(source_[pos_])) {
      token.kind = TokenKind::kName;
      while (pos_ < source_.size() && IsNameChar(source_[pos_])) ++pos_;
    } else if (IsDigit(source_[pos_])) {
      token.kind = TokenKind::kNumber;
      SkipNumber();
    } else {
      token.kind = SymbolLength() == 0 ? TokenKind::kBad : TokenKind::kSymbol;
      pos_ += SymbolLength() == 0 ? 1 : SymbolLength();
    }
    token.text = source_.substr(begin, pos_ - begin);
    return token;
  }

  static bool IsDigit(char c) { return c >= '0' && c <= '9'; }
  static bool IsNameStart(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  }
  static bool IsNameChar(char c) {
    return IsNameStart(c) || IsDigit(c) || c == '.' || c == '@' || c == '*';
  }

 private:
  void SkipBlank() {
    while (pos_ < source_.size()) {
      const char c = source_[pos_];
      if (c == '\n') {
        ++line_;
        line_start_ = ++pos_;
      } else if (c == ' ' || c == '\t' || c == '\r') {
        ++pos_;
      } else if (c == '#') {
        while (pos_ < source_.size() && source_[pos_] != '\n') ++pos_;
      } else {
        return;
      }
    }
  }

  // Digits, fraction, exponent, and a type suffix such as i32 or f64.
  void SkipNumber() {
    const auto digits = [&] {
      while (pos_ < source_.size() && IsDigit(source_[pos_])) ++pos_;
    };
    digits();
    if (pos_ < source_.size() && source_[pos_] == '.') {
      ++pos_;
      digits();
    }
    if (pos_ < source_.size() && source_[pos_] == 'e') {
      ++pos_;
      if (pos_ < source_.size() && (source_[pos_] == '+' || source_[pos_] == '-')) ++pos_;
      digits();
    }
    while (pos_ < source_.size() && (IsNameStart(source_[pos_]) || IsDigit(source_[pos_]))) ++pos_;
  }

  size_t SymbolLength() const {
    static constexpr std::string_view kTwo[] = {"->", "//", "<=", "==", "!=", "&&", "||"};
    const std::string_view rest = source_.substr(pos_);
    for (std::string_view two : kTwo) {
      if (rest.substr(0, 2) == two) return 2;
    }
    return std::string_view("(){}[]:,=<+-*/%").find(rest[0]) == std::string_view::npos ? 0 : 1;
  }

  std::string_view source_;
  size_t pos_ = 0;
  size_t line_start_ = 0;
  int line_ = 1;
};

}  // namespace heddle::ir
