#include "proto/access/module_seal.h"

#include "absl/strings/str_cat.h"
#include "base/files/trailer.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "proto/access/seal.h"
#include "proto/common.pb.h"

namespace heddle {
namespace {

std::string Statement(const std::string& job, int64_t attempt, const std::string& content_sha256) {
  return absl::StrCat("heddle module 1\n", job, "\n", attempt, "\n", content_sha256);
}

}  // namespace

absl::StatusOr<std::string> ModuleTrailer(const TlsFiles& maker, const std::string& job,
                                          int64_t attempt, const std::string& content_sha256) {
  v1::Seal seal;
  HEDDLE_ASSIGN_OR_RETURN(std::string signature,
                          Sign(maker, Statement(job, attempt, content_sha256)));
  seal.set_certificate(maker.certificate);
  seal.set_attempt_id(attempt);
  seal.set_signature(std::move(signature));
  seal.set_job(job);
  return TrailerOf(seal.SerializeAsString());
}

absl::StatusOr<ModuleMaker> MakerOfModule(const TlsFiles& lab, std::string_view file,
                                          absl::Time now) {
  const auto [content, text] = SplitTrailer(file);
  if (text.empty()) return absl::NotFoundError("the module is not signed");
  v1::Seal seal;
  if (!seal.ParseFromArray(text.data(), static_cast<int>(text.size())))
    return absl::PermissionDeniedError("the module's signature is not readable");
  const absl::StatusOr<Identity> signer =
      SignerOf(lab, seal.certificate(), seal.signature(),
               Statement(seal.job(), seal.attempt_id(), Sha256Hex(content)), now);
  if (!signer.ok())
    return absl::PermissionDeniedError(absl::StrCat("the module: ", signer.status().message()));
  if (signer->role != Role::kWorker)
    return absl::PermissionDeniedError(
        absl::StrCat("the module: ", ToText(*signer), " signed it, which is no worker"));
  return ModuleMaker{*signer, seal.job(), seal.attempt_id()};
}

absl::Status CheckMaker(const TlsFiles& lab, std::string_view file, const std::string& job,
                        absl::Time now) {
  const absl::StatusOr<ModuleMaker> maker = MakerOfModule(lab, file, now);
  if (!maker.ok()) return absl::PermissionDeniedError(maker.status().message());
  if (maker->job == job) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the module was made for job ", maker->job, ", not for ", job));
}

}  // namespace heddle
