// Which threads of a process run first where there are not enough cores for all.
#pragma once

namespace heddle {

// Lets the calling thread, and threads that it starts later, run before those of usual priority (a
// nice value of -5). Takes the right to do so, which root and a service with LimitNICE=-5 have.
// False: this process has no such right, and nothing changes.
bool RunBeforeOthers();
// As RunBeforeOthers, for a thread of gRPC. Each callback calls this first, since gRPC does not tell when it starts a thread.
void RunCallbacksBeforeOthers();
// Gives the calling thread about a tenth of the share of one of usual priority (a nice value of 10). It must hold no lock
// for which others wait: they would wait while it has no core.
void RunWithLess();
// Gives the calling thread the lowest priority (a nice value of 19), so that it hardly takes time from others.
void RunAfterOthers();

}  // namespace heddle
