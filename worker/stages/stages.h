// One function per kind of stage: a thin layer between messages and the compiler or the search.
// Runs only in a child (stage_child.h), since models and candidates are untrusted.
#pragma once

#include "absl/status/status.h"
#include "proto/worker.pb.h"
#include "worker/child/stage_child.h"

namespace heddle::worker {

// Performs the stage that start.kind() names. A StageFunction.
absl::Status RunStage(const v1::StageStart& start, StageIo& io);

// stages_model.cc
absl::Status RunImport(const v1::StageStart& start, StageIo& io);
absl::Status RunPlan(const v1::StageStart& start, StageIo& io);
absl::Status RunCompile(const v1::StageStart& start, StageIo& io);
// stages_compare.cc
absl::Status RunCompare(const v1::StageStart& start, StageIo& io);
// stages_search.cc
absl::Status RunPropose(const v1::StageStart& start, StageIo& io);
absl::Status RunUpdate(const v1::StageStart& start, StageIo& io);
// stages_candidates.cc
absl::Status RunBuild(const v1::StageStart& start, StageIo& io);
absl::Status RunProfile(const v1::StageStart& start, StageIo& io);
// stages_gpu.cc
absl::Status RunProfileOnGpu(const v1::StageStart& start, StageIo& io);

}  // namespace heddle::worker
