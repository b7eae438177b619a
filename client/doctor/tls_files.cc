#include "client/doctor/tls_files.h"

#include <fmt/format.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <ctime>
#include <memory>
#include <string>

namespace heddle::client {
namespace {

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

Owned<BIO> BioOf(const std::string& pem) {
  return Owned<BIO>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

Owned<X509> CertificateOf(const std::string& pem) {
  const Owned<BIO> bio = BioOf(pem);
  return Owned<X509>(bio ? PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr) : nullptr);
}

// InvalidArgument: it has expired at `until`.
absl::Status CheckNotExpired(const X509* certificate, const char* file, absl::Time until) {
  std::tm end = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1)
    return absl::InvalidArgumentError(fmt::format("{} does not say when it expires", file));
  const absl::Time expires = absl::FromTM(end, absl::UTCTimeZone());
  if (expires > until) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "{} expires on {}", file, absl::FormatTime("%Y-%m-%d", expires, absl::UTCTimeZone())));
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files, absl::Time until) {
  const Owned<X509> authority = CertificateOf(files.ca);
  if (!authority) return absl::InvalidArgumentError("ca.pem is no certificate");
  if (!files.certificate.empty()) {
    const Owned<X509> certificate = CertificateOf(files.certificate);
    if (!certificate) return absl::InvalidArgumentError("cert.pem is no certificate");
    const Owned<BIO> bio = BioOf(files.key);
    const Owned<EVP_PKEY> key(bio ? PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr)
                                  : nullptr);
    if (!key) return absl::InvalidArgumentError("key.pem is no private key");
    if (X509_check_private_key(certificate.get(), key.get()) != 1)
      return absl::InvalidArgumentError("key.pem does not belong to cert.pem");
    if (X509_verify(certificate.get(), X509_get0_pubkey(authority.get())) != 1)
      return absl::InvalidArgumentError("cert.pem was not made by the authority of ca.pem");
    const absl::Status valid = CheckNotExpired(certificate.get(), "cert.pem", until);
    if (!valid.ok()) return valid;
  }
  return CheckNotExpired(authority.get(), "ca.pem", until);
}

}  // namespace heddle::client
