#include "worker/stages/machine_of.h"

#include "absl/strings/str_cat.h"

namespace heddle::worker {

std::optional<machine::MeasuredMachine> MachineOf(const v1::StageStart& start, StageIo& io) {
  if (start.machine().empty()) return std::nullopt;
  absl::StatusOr<machine::MeasuredMachine> machine = machine::ParseMeasuredMachine(start.machine());
  if (machine.ok()) return *std::move(machine);
  io.Warn(
      absl::StrCat("what was measured of the device is not used: ", machine.status().message()));
  return std::nullopt;
}

}  // namespace heddle::worker
