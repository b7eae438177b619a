#include "tests/fingerprint/fingerprint.h"

#include <openssl/sha.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace heddle::fingerprint {

std::string Digest(std::string_view text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), 8));
}

Sink Lines(std::vector<std::string>* lines) {
  return [lines](const std::string& name, std::string_view text) {
    lines->push_back(absl::StrCat(Digest(text), " ", name));
  };
}

}  // namespace heddle::fingerprint
