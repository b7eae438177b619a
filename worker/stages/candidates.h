// Shared by the stages that take candidates one by one.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/codegen/backend.h"
#include "compiler/ir/text.h"
#include "compiler/measure/measure.h"
#include "proto/worker.pb.h"
#include "worker/child/stage_child.h"

namespace heddle::worker {

v1::Artifact ArtifactToProto(codegen::Artifact artifact);
// The result is untrusted.
codegen::Artifact ArtifactFromProto(const v1::Artifact& proto);

void TellStarted(StageIo& io, int64_t candidate);
int64_t NanosSince(std::chrono::steady_clock::time_point begin);
// Outcome, samples and error of a candidate, or the outcome and message of a measurement that failed.
void SetResult(const absl::StatusOr<Measurement>& measured, v1::Measurement* measurement);

// Adds loops to the measurements of a stage for people to see (Measurement.loops).
class ShownLoops {
 public:
  explicit ShownLoops(const std::string& workload) : naive_(ir::Parse(workload)) {}
  // Of the default schedule, and of a candidate that is faster than all before it; unless the text is too
  // long, or the schedule does not replay. Takes a few milliseconds then.
  void Add(const v1::Candidate& candidate, v1::Measurement* measurement);

 private:
  const absl::StatusOr<ir::Program> naive_;
  double best_ns_ = 0;  // 0: nothing valid was measured
};

// InvalidArgument names a value that is out of range.
absl::StatusOr<MeasureOptions> OptionsOf(const v1::ProfileSpec& spec);

}  // namespace heddle::worker
