// The disposable process that measures this host's cores, from inside.
#pragma once

namespace heddle::worker {

// As the first command line argument, makes the program measure the cores that it may run on, and
// print what it finds (compiler/machine/measured_machine.h). People may do so, too.
inline constexpr char kMeasureFlag[] = "--measure-machine";

// Returns the exit status: 1, with one line on stderr, if nothing could be measured. argv: PROGRAM
// --measure-machine, and if a worker starts it MEMORY_LIMIT_BYTES PARENT_PID CONFINEMENT, of which
// it uses the second.
int MeasureChildMain(int argc, char** argv);

}  // namespace heddle::worker
