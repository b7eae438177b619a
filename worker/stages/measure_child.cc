#include "worker/stages/measure_child.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "compiler/measure/measure_machine.h"
#include "worker/slots.h"

namespace heddle::worker {

int MeasureChildMain(int argc, char** argv) {
  pid_t parent = 0;
  if (argc == 5 && absl::SimpleAtoi(argv[3], &parent)) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) return 3;  // the parent died before the call above
  }
  const absl::StatusOr<machine::MeasuredMachine> machine =
      MeasureMachine(Target{}, {.cpus = UsableCores()});
  if (!machine.ok()) {
    std::fprintf(stderr, "%s\n", std::string(machine.status().message()).c_str());
    return 1;
  }
  std::fputs(machine::ToText(*machine).c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace heddle::worker
