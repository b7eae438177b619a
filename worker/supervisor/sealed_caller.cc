#include "worker/supervisor/sealed_caller.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "proto/access/module_seal.h"
#include "proto/access/seal.h"
#include "proto/check_message.h"

namespace heddle::worker {
namespace {

std::string Statement(const std::string& job, int64_t candidate, int64_t attempt,
                      v1::Artifact artifact) {
  artifact.clear_seal();
  return absl::StrCat("heddle artifact 1\n", job, "\n", candidate, "\n", attempt, "\n",
                      Sha256Hex(artifact.SerializeAsString()));
}

}  // namespace

absl::Status Seal(const TlsFiles& builder, const std::string& job, int64_t candidate,
                  int64_t attempt, v1::Artifact* artifact) {
  HEDDLE_ASSIGN_OR_RETURN(std::string signature,
                          Sign(builder, Statement(job, candidate, attempt, *artifact)));
  v1::Seal& seal = *artifact->mutable_seal();
  seal.set_certificate(builder.certificate);
  seal.set_attempt_id(attempt);
  seal.set_signature(std::move(signature));
  return absl::OkStatus();
}

absl::Status CheckSeal(const TlsFiles& lab, const std::string& job, int64_t candidate,
                       const v1::Artifact& artifact) {
  const v1::Seal& seal = artifact.seal();
  const std::string subject =
      absl::StrCat("the artifact of candidate ", candidate, " of ", job, " is not measured: ");
  const absl::StatusOr<Identity> signer =
      SignerOf(lab, seal.certificate(), seal.signature(),
               Statement(job, candidate, seal.attempt_id(), artifact), absl::Now());
  if (!signer.ok())
    return absl::PermissionDeniedError(absl::StrCat(subject, signer.status().message()));
  if (signer->role != Role::kWorker)
    return absl::PermissionDeniedError(
        absl::StrCat(subject, ToText(*signer), " signed it, which is no worker"));
  return absl::OkStatus();
}

bool SealedCaller::Read(v1::StageInput* input) {
  if (!caller_->Read(input)) return false;
  if (!input->has_profile()) return true;
  absl::Status sealed = CheckMessage(*input);  // before a certificate is read in it
  if (sealed.ok()) {
    sealed = CheckSeal(*tls_, start_->job(), input->profile().candidate().id(),
                       input->profile().artifact());
  }
  if (!sealed.ok()) {
    session_->Stop(std::string(sealed.message()));
    return false;
  }
  input->mutable_profile()->mutable_artifact()->clear_seal();
  return true;
}

// The last chunk is followed by the trailer with the signature.
bool SealedCaller::WriteModule(const v1::StageEvent& event,
                               const std::function<void()>& meanwhile) {
  const v1::Chunk& chunk = event.chunk();
  std::unique_ptr<Passing>& passing = modules_[chunk.name()];
  if (passing == nullptr) passing = std::make_unique<Passing>();
  passing->content.Update(chunk.data());
  passing->file.Update(chunk.data());
  if (!chunk.last()) return caller_->Write(event, meanwhile);
  const std::unique_ptr<Passing> module = std::move(passing);
  modules_.erase(chunk.name());
  const std::string digest = module->content.Hex();
  // What is not what the stage says it is, is not signed; the caller refuses it.
  if (digest != chunk.sha256()) return caller_->Write(event, meanwhile);
  const absl::StatusOr<std::string> trailer =
      ModuleTrailer(*tls_, start_->job(), start_->attempt_id(), digest);
  if (!trailer.ok()) {
    session_->Stop(std::string(trailer.status().message()));
    return false;
  }
  v1::StageEvent end = event;
  end.mutable_chunk()->set_last(false);
  end.mutable_chunk()->clear_sha256();
  if (!caller_->Write(end, meanwhile)) return false;
  module->file.Update(*trailer);
  end.mutable_chunk()->set_data(*trailer);
  end.mutable_chunk()->set_last(true);
  end.mutable_chunk()->set_sha256(module->file.Hex());
  return caller_->Write(end, meanwhile);
}

bool SealedCaller::Write(const v1::StageEvent& event, const std::function<void()>& meanwhile) {
  if (event.has_chunk() && start_->kind() == v1::STAGE_COMPILE)
    return WriteModule(event, meanwhile);
  if (!event.has_built() || !event.built().has_artifact()) return caller_->Write(event, meanwhile);
  v1::StageEvent sealed = event;
  const absl::Status status =
      Seal(*tls_, start_->job(), event.built().candidate(), start_->attempt_id(),
           sealed.mutable_built()->mutable_artifact());
  if (!status.ok()) {
    session_->Stop(std::string(status.message()));
    return false;
  }
  return caller_->Write(sealed, meanwhile);
}

}  // namespace heddle::worker
