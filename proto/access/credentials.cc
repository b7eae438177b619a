#include "proto/access/credentials.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <ctime>
#include <fstream>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace heddle {
namespace {

constexpr size_t kMaxFileBytes = 64 << 10;  // certificates and tokens are far smaller
constexpr std::string_view kScheme = "heddle://";

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.gcount() == 0)
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cannot be read (`heddle-ca issue` makes it)"));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes)
    return absl::InvalidArgumentError(absl::StrCat(path, ": has more than 64 KiB"));
  return text;
}

absl::Status CheckPrivate(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0 && (info.st_mode & 077) != 0)
    return absl::InvalidArgumentError(absl::StrCat(path, ": others can read it; chmod 600 ", path));
  return absl::OkStatus();
}

bool Exists(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0;
}

absl::StatusOr<TlsFiles> ReadTlsFiles(const std::string& directory) {
  TlsFiles files;
  files.revoked = directory + "/revoked";
  HEDDLE_ASSIGN_OR_RETURN(files.ca, ReadSmallFile(directory + "/ca.pem"));
  const std::string certificate = directory + "/cert.pem", key = directory + "/key.pem";
  if (!Exists(certificate) && !Exists(key)) return files;
  HEDDLE_ASSIGN_OR_RETURN(files.certificate, ReadSmallFile(certificate));
  HEDDLE_ASSIGN_OR_RETURN(files.key, ReadSmallFile(key));
  HEDDLE_RETURN_IF_ERROR(CheckPrivate(key));
  absl::StatusOr<Identity> identity = IdentityOfCertificate(files.certificate, absl::Now());
  if (!identity.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(certificate, ": ", identity.status().message()));
  }
  files.identity = *std::move(identity);
  return files;
}

}  // namespace

absl::StatusOr<Identity> IdentityOfCertificate(const std::string& pem, absl::Time now) {
  BIO* bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  X509* certificate = bio == nullptr ? nullptr : PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  const absl::Cleanup free_both = [&] {
    X509_free(certificate);
    BIO_free(bio);
  };
  if (certificate == nullptr) return absl::InvalidArgumentError("is no certificate (PEM)");
  std::tm end = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1)
    return absl::InvalidArgumentError("does not say when it expires");
  const absl::Time expires = absl::FromTM(end, absl::UTCTimeZone());
  if (expires <= now) {
    return absl::InvalidArgumentError(
        absl::StrCat("expired on ", absl::FormatTime("%Y-%m-%d", expires, absl::UTCTimeZone()),
                     "; `heddle-ca issue` makes a new one"));
  }
  auto* names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  const absl::Cleanup free_names = [&] { GENERAL_NAMES_free(names); };
  std::vector<std::string> uris;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
    std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                     static_cast<size_t>(ASN1_STRING_length(uri)));
    if (text.starts_with(kScheme)) uris.push_back(std::move(text));
  }
  if (uris.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", uris.size(),
                     " identities (heddle://ROLE/NAME), not one; `heddle-ca issue` makes it"));
  }
  return ParseIdentity(uris.front());
}

absl::StatusOr<Credentials> LoadCredentials(const std::string& tls_directory,
                                            const std::string& token_file) {
  Credentials credentials;
  if (!tls_directory.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(credentials.tls, ReadTlsFiles(tls_directory));
  }
  if (!token_file.empty()) {
    HEDDLE_RETURN_IF_ERROR(CheckPrivate(token_file));
    HEDDLE_ASSIGN_OR_RETURN(std::string text, ReadSmallFile(token_file));
    credentials.token = std::string(absl::StripAsciiWhitespace(text));
    for (const char c : credentials.token) {
      if (!absl::ascii_isgraph(static_cast<unsigned char>(c)))
        return absl::InvalidArgumentError(
            absl::StrCat(token_file, ": holds more than one token (`heddle-ca token` makes one)"));
    }
  }
  return credentials;
}

absl::StatusOr<Credentials> LoadDaemonCredentials(const std::string& tls_directory, Role role) {
  HEDDLE_ASSIGN_OR_RETURN(Credentials credentials, LoadCredentials(tls_directory, ""));
  if (!credentials.tls || credentials.tls->identity.role == role) return credentials;
  return absl::InvalidArgumentError(absl::StrCat(
      "--tls-dir ", tls_directory, ": the certificate is of ", ToText(credentials.tls->identity),
      "; this program needs the role ", RoleName(role), " (heddle-ca issue CA_DIR --role ",
      RoleName(role), " --name NAME)"));
}

}  // namespace heddle
