#include "proto/access/seal.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/access/revoked.h"

namespace heddle {
namespace {

template <auto kFree>
struct Freer {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using Bio = std::unique_ptr<BIO, Freer<BIO_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Digest = std::unique_ptr<EVP_MD_CTX, Freer<EVP_MD_CTX_free>>;
using Store = std::unique_ptr<X509_STORE, Freer<X509_STORE_free>>;
using Check = std::unique_ptr<X509_STORE_CTX, Freer<X509_STORE_CTX_free>>;

Bio BioOf(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

Certificate CertificateOf(const std::string& pem) {
  const Bio bio = BioOf(pem);
  return Certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
}

const unsigned char* BytesOf(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

bool IsOfLab(const std::string& ca_pem, X509* certificate) {
  const Certificate authority = CertificateOf(ca_pem);
  const Store store(X509_STORE_new());
  const Check check(X509_STORE_CTX_new());
  return authority != nullptr && X509_STORE_add_cert(store.get(), authority.get()) == 1 &&
         X509_STORE_CTX_init(check.get(), store.get(), certificate, nullptr) == 1 &&
         X509_verify_cert(check.get()) == 1;
}

absl::Status CheckNotRevoked(const TlsFiles& lab, const Identity& signer) {
  if (lab.revoked.empty()) return absl::OkStatus();
  const absl::StatusOr<bool> revoked = RevokedList(lab.revoked).Has(signer);
  if (!revoked.ok())
    return absl::PermissionDeniedError(
        absl::StrCat("whether its signer ", ToText(signer), " is revoked is not known, since ",
                     lab.revoked, " cannot be used: ", revoked.status().message()));
  if (!*revoked) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("its signer ", ToText(signer), " is revoked (", lab.revoked,
                   "); submit the model again, so that another worker makes it"));
}

}  // namespace

absl::StatusOr<std::string> Sign(const TlsFiles& signer, std::string_view statement) {
  const Bio bio = BioOf(signer.key);
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  const Digest digest(EVP_MD_CTX_new());
  size_t size = 0;
  if (key == nullptr ||
      EVP_DigestSignInit(digest.get(), nullptr, EVP_sha256(), nullptr, key.get()) != 1 ||
      EVP_DigestSign(digest.get(), nullptr, &size, BytesOf(statement), statement.size()) != 1)
    return absl::InvalidArgumentError("key.pem cannot sign; `heddle-ca issue` makes one that can");
  std::string signature(size, '\0');
  if (EVP_DigestSign(digest.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                     BytesOf(statement), statement.size()) != 1)
    return absl::InvalidArgumentError("key.pem cannot sign; `heddle-ca issue` makes one that can");
  signature.resize(size);
  return signature;
}

absl::StatusOr<Identity> SignerOf(const TlsFiles& lab, const std::string& certificate_pem,
                                  std::string_view signature, std::string_view statement,
                                  absl::Time now) {
  const Certificate certificate = CertificateOf(certificate_pem);
  if (certificate == nullptr) return absl::PermissionDeniedError("it is not signed");
  if (!IsOfLab(lab.ca, certificate.get()))
    return absl::PermissionDeniedError("its signer is not of this lab");
  const absl::StatusOr<Identity> signer = IdentityOfCertificate(certificate_pem, now);
  if (!signer.ok())
    return absl::PermissionDeniedError(
        absl::StrCat("the certificate of its signer ", signer.status().message()));
  const Digest digest(EVP_MD_CTX_new());
  if (EVP_DigestVerifyInit(digest.get(), nullptr, EVP_sha256(), nullptr,
                           X509_get0_pubkey(certificate.get())) != 1 ||
      EVP_DigestVerify(digest.get(), BytesOf(signature), signature.size(), BytesOf(statement),
                       statement.size()) != 1)
    return absl::PermissionDeniedError("its signature is of something else");
  HEDDLE_RETURN_IF_ERROR(CheckNotRevoked(lab, *signer));
  return signer;
}

}  // namespace heddle
