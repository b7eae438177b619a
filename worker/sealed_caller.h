// Lets a worker of a lab run only what a worker of the lab has built. Artifacts go from the worker that
// builds them to the one that measures them by way of the scheduler; the builder seals each one for
// its candidate, and the measuring worker refuses what has no such seal.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/access/credentials.h"
#include "proto/worker.pb.h"
#include "worker/stage_session.h"

namespace heddle::worker {

// Sets `artifact.seal`: the builder's certificate, and its signature over job, candidate, attempt and
// the digest of the artifact. InvalidArgument: the key cannot sign.
absl::Status Seal(const TlsFiles& builder, const std::string& job, int64_t candidate,
                  int64_t attempt, v1::Artifact* artifact);
// Whether a worker of the lab sealed the artifact for this candidate of this job. PermissionDenied names
// the candidate, and what is wrong.
absl::Status CheckSeal(const TlsFiles& lab, const std::string& job, int64_t candidate,
                       const v1::Artifact& artifact);

// Stands between a stage and its caller. Seals what the stage has built; ends the session if the
// caller sends an artifact without a seal, or in a message that it must not send (CheckMessage).
class SealedCaller final : public StageCaller {
 public:
  // All must outlive this.
  SealedCaller(const TlsFiles* tls, const v1::StageStart* start, StageCaller* caller,
               StageSession* session)
      : tls_(tls), start_(start), caller_(caller), session_(session) {}

  bool Read(v1::StageInput* input) override;
  bool InputEnded() override { return caller_->InputEnded(); }
  bool Gone() override { return caller_->Gone(); }
  bool Write(const v1::StageEvent& event) override;

 private:
  const TlsFiles* const tls_;
  const v1::StageStart* const start_;
  StageCaller* const caller_;
  StageSession* const session_;
};

}  // namespace heddle::worker
