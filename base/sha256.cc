#include "base/sha256.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"

namespace heddle {
namespace {

// Looked up once: OpenSSL does that anew for each hash that names it, which takes as long as to hash a kilobyte.
const EVP_MD* Algorithm() {
  static const EVP_MD* const algorithm = [] {
    const EVP_MD* const found = EVP_MD_fetch(nullptr, "SHA256", nullptr);
    return found != nullptr ? found : EVP_sha256();
  }();
  return algorithm;
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) { EVP_DigestInit_ex(context_, Algorithm(), nullptr); }

Sha256::~Sha256() { EVP_MD_CTX_free(context_); }

void Sha256::Update(std::string_view bytes) {
  EVP_DigestUpdate(context_, bytes.data(), bytes.size());
}

std::string Sha256::Raw() {
  std::string digest(32, '\0');
  EVP_DigestFinal_ex(context_, reinterpret_cast<unsigned char*>(digest.data()), nullptr);
  return digest;
}

std::string Sha256::Hex() { return absl::BytesToHexString(Raw()); }

std::string Sha256Hex(std::string_view bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.Hex();
}

}  // namespace heddle
