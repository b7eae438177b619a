// Lets a worker of a lab run only what a worker of the lab has built. Artifacts and modules go from the
// worker that builds them to the one that measures them by way of the scheduler. The builder seals each
// artifact for its candidate, and signs each module for its job (proto/access/module_seal.h). The
// measuring worker refuses what has no such seal; modules are checked before their stage starts
// (RunnerOptions.check_module).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/sha256.h"
#include "proto/access/credentials.h"
#include "proto/worker.pb.h"
#include "worker/supervisor/stage_session.h"

namespace heddle::worker {

// Sets `artifact.seal`: the builder's certificate, and its signature over job, candidate, attempt and
// the digest of the artifact. InvalidArgument: the key cannot sign.
absl::Status Seal(const TlsFiles& builder, const std::string& job, int64_t candidate,
                  int64_t attempt, v1::Artifact* artifact);
// Whether a worker of the lab sealed the artifact for this candidate of this job. Any attempt will do: a
// candidate keeps its trace, so what an earlier attempt built of it is the same code, and a later one may
// measure it. PermissionDenied names the candidate, and what is wrong.
absl::Status CheckSeal(const TlsFiles& lab, const std::string& job, int64_t candidate,
                       const v1::Artifact& artifact);

// Stands between a stage and its caller. Seals what the stage has built, artifacts and modules; ends the
// session if the caller sends an artifact without a seal, or in a message that it must not send (CheckMessage).
class SealedCaller final : public StageCaller {
 public:
  // All must outlive this.
  SealedCaller(const TlsFiles* tls, const v1::StageStart* start, StageCaller* caller,
               StageSession* session)
      : tls_(tls), start_(start), caller_(caller), session_(session) {}

  bool Read(v1::StageInput* input) override;
  bool InputEnded() override { return caller_->InputEnded(); }
  bool Gone() override { return caller_->Gone(); }
  bool Write(const v1::StageEvent& event, const std::function<void()>& meanwhile) override;

 private:
  // A module on its way.
  struct Passing {
    Sha256 content;  // of what the stage sends
    Sha256 file;     // of what the caller gets
  };
  bool WriteModule(const v1::StageEvent& event, const std::function<void()>& meanwhile);

  const TlsFiles* const tls_;
  const v1::StageStart* const start_;
  StageCaller* const caller_;
  StageSession* const session_;
  std::map<std::string, std::unique_ptr<Passing>> modules_;  // by the names of their chunks
};

}  // namespace heddle::worker
