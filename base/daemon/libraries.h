// What a daemon sets of the libraries that it uses, before it does anything else.
#pragma once

namespace heddle {

// gRPC says nothing on stderr: errors are the daemon's to tell, in one line (GRPC_VERBOSITY says
// otherwise). Abseil's mutexes do not look for deadlocks. In Debian's build they would, and each lock would
// take a lock of the whole process for that. Call it while there is one thread.
void SetUpLibraries();

}  // namespace heddle
