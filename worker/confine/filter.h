// The list of system calls that a stage may make; the kernel refuses all others with EPERM (seccomp).
//
// The list has what the C and C++ libraries, LLVM, lld, OpenMP, XGBoost and our executor need to compute,
// to start threads, and to work with files. So a process cannot be started or replaced, a process
// cannot be signalled or looked into, nothing can be mounted, and there are no sockets. What a call
// may be asked is limited where it needs to be: `clone` makes threads only, `kill` reaches the process
// itself only, `ioctl` asks whether something is a terminal. The driver of a GPU needs more, see
// filter.cc.
//
// The filter is checked by the kernel at each call. A kernel calls nothing while it computes, and since
// 5.11 the kernel remembers which calls are always allowed, so kernels are not slower. The filter does
// not switch off speculation past stores (SECCOMP_FILTER_FLAG_SPEC_ALLOW), as kernels before 5.16 do
// otherwise: that would slow down all that computes, and protects secrets within one process, of
// which a stage has none that its own code may not read.
#pragma once

#include "absl/status/status.h"

namespace heddle::worker::confine {

// Puts the filter on the calling thread, and on those that it starts later, for good. `gpu`: with the
// calls of a GPU's driver. The process must not be able to gain privileges (PR_SET_NO_NEW_PRIVS).
absl::Status ApplyFilter(bool gpu);

}  // namespace heddle::worker::confine
