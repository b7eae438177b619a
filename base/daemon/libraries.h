// What a daemon sets of the libraries that it uses, before it does anything else.
#pragma once

namespace heddle {

// gRPC says nothing on stderr: errors are the daemon's to tell, in one line (GRPC_VERBOSITY says
// otherwise). Abseil's mutexes do not look for deadlocks, as they do in Debian's build: one lock for the
// order of all locks takes a twentieth of the scheduler's time under load. Call it while there is one
// thread.
void SetUpLibraries();

}  // namespace heddle
