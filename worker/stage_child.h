// The disposable process of one stage, seen from inside: frames on stdin and stdout, one stage,
// then the end.
//
// Whatever runs here may crash, hang or eat memory: the supervisor outlives it (stage_runner.h).
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "proto/worker.pb.h"

namespace heddle::worker {

// What a stage sees of the world.
class StageIo {
 public:
  virtual ~StageIo() = default;
  // Waits for the next input after `start`; false at the end of the input.
  virtual bool Read(v1::StageInput* input) = 0;
  virtual void Write(const v1::StageEvent& event) = 0;
  // One line for people; ends up in StageFinished.
  virtual void Warn(const std::string& line) = 0;
};

// Performs a stage. The status becomes the stage's fault: InvalidArgument, NotFound, OutOfRange,
// FailedPrecondition and Unimplemented are the user's, the rest infrastructure. What goes wrong
// with one candidate is written as its result instead.
using StageFunction = std::function<absl::Status(const v1::StageStart& start, StageIo& io)>;

// Means "this process is a stage's child" as first command line argument.
inline constexpr char kStageChildFlag[] = "--stage-child";

// The child's main: confines the process (memory, core dumps, privileges, death of the parent),
// then runs the stage. Returns the exit status. argv as the supervisor gave it: PROGRAM
// --stage-child MEMORY_LIMIT_BYTES PARENT_PID.
int StageChildMain(int argc, char** argv, const StageFunction& run);

v1::Fault ToFault(const absl::Status& status);

}  // namespace heddle::worker
