#include "worker/stages/stages.h"

namespace heddle::worker {

absl::Status RunStage(const v1::StageStart& start, StageIo& io) {
  switch (start.kind()) {
    case v1::STAGE_IMPORT:
      return RunImport(start, io);
    case v1::STAGE_PROPOSE:
      return RunPropose(start, io);
    case v1::STAGE_BUILD:
      return RunBuild(start, io);
    case v1::STAGE_PROFILE:
      return RunProfile(start, io);
    case v1::STAGE_UPDATE:
      return RunUpdate(start, io);
    case v1::STAGE_COMPILE:
      return RunCompile(start, io);
    case v1::STAGE_PLAN:
      return RunPlan(start, io);
    case v1::STAGE_COMPARE:
      return RunCompare(start, io);
    default:
      return absl::InvalidArgumentError("unknown stage kind");
  }
}

}  // namespace heddle::worker
