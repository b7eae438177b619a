#include "tests/fingerprint/fingerprint.h"

#include "absl/strings/str_cat.h"
#include "base/sha256.h"

namespace heddle::fingerprint {

std::string Digest(std::string_view text) { return Sha256Hex(text).substr(0, 16); }

Sink Lines(std::vector<std::string>* lines) {
  return [lines](const std::string& name, std::string_view text) {
    lines->push_back(absl::StrCat(Digest(text), " ", name));
  };
}

}  // namespace heddle::fingerprint
