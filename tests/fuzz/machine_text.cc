// What was measured of a device, as text (compiler/machine/measured_machine.h): in every heartbeat of a worker.
#include "compiler/machine/measured_machine.h"
#include "tests/fuzz/fuzz_target.h"

namespace heddle::fuzz {

void Run(std::string_view input) {
  const absl::StatusOr<machine::MeasuredMachine> machine = machine::ParseMeasuredMachine(input);
  if (!machine.ok()) return;
  const absl::StatusOr<machine::MeasuredMachine> again =
      machine::ParseMeasuredMachine(machine::ToText(*machine));
  Require(again.ok() && *again == *machine, "the figures round-trip");
  (void)machine::Summary(*machine);
  for (const int threads : {1, 2, 256}) {
    machine::TargetInfo info;
    info.target.threads = threads;
    machine::PutMeasured(*machine, &info);
  }
}

}  // namespace heddle::fuzz
