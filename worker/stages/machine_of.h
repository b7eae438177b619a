// The machine that a stage compiles and searches for.
#pragma once

#include <optional>

#include "compiler/machine/measured_machine.h"
#include "proto/worker.pb.h"
#include "worker/child/stage_child.h"

namespace heddle::worker {

// StageStart.machine; nullopt if there is none, or none that this worker can read, of which it warns.
std::optional<machine::MeasuredMachine> MachineOf(const v1::StageStart& start, StageIo& io);

}  // namespace heddle::worker
