// The disposable process of one stage, from inside: frames on stdin and stdout, one stage, then
// exit.
//
// The code that runs here may crash, hang or exhaust memory. The supervisor survives it
// (stage_runner.h).
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "proto/worker.pb.h"

namespace heddle::worker {

// The interface of a stage to its caller.
class StageIo {
 public:
  virtual ~StageIo() = default;
  // Waits for the next input after `start`; false at the end of the input.
  virtual bool Read(v1::StageInput* input) = 0;
  virtual void Write(const v1::StageEvent& event) = 0;
  // One line for people, reported in StageFinished.
  virtual void Warn(const std::string& line) = 0;
};

// Performs a stage. The status becomes the stage's fault: InvalidArgument, NotFound, OutOfRange,
// FailedPrecondition and Unimplemented are user faults, all others infrastructure faults. A failure
// of one candidate is written as its result instead.
using StageFunction = std::function<absl::Status(const v1::StageStart& start, StageIo& io)>;

// As the first command line argument, marks the process as the child of a stage.
inline constexpr char kStageChildFlag[] = "--stage-child";

// The child's main: limits the process (memory, files, core dumps, privileges, death of the parent),
// reads what it shall do, confines itself (confine/confine.h) and runs the stage. Returns the exit
// status. argv, from the supervisor: PROGRAM --stage-child MEMORY_LIMIT_BYTES PARENT_PID CONFINEMENT,
// the last as confine::ToText says it. The working directory is the stage's own folder
// (confine/stage_folder.h).
//
// The first message is read before the process is confined: it says for what. The supervisor has read
// and written it itself, so it is as safe to read here as it was there.
int StageChildMain(int argc, char** argv, const StageFunction& run);

v1::Fault ToFault(const absl::Status& status);

}  // namespace heddle::worker
