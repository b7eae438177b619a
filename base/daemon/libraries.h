// What a daemon sets of the libraries that it uses, before it does anything else.
#pragma once

namespace heddle {

// gRPC says nothing on stderr: errors are the daemon's to tell, in one line (GRPC_VERBOSITY says
// otherwise). Abseil's search for deadlocks is turned off: Debian's build has it on, and then every lock of a mutex
// also locks one mutex of the whole process. Call this before other threads are started.
void SetUpLibraries();

}  // namespace heddle
