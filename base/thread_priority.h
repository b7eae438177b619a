// Which threads of a process run first where there are not enough cores for all.
#pragma once

namespace heddle {

// Lets the calling thread, and threads that it starts later, run before those of usual priority (a
// nice value of -5). Takes the right to do so, which root and a service with LimitNICE=-5 have.
// False: this process has no such right, and nothing changes.
bool RunBeforeOthers();
// Lets the calling thread run only where nobody else wants the core (a nice value of 19).
void RunAfterOthers();

}  // namespace heddle
