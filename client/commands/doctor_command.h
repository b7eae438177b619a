// heddle doctor: prints what client/doctor finds.
#pragma once

#include "client/commands/commands.h"
#include "client/doctor/doctor.h"

namespace heddle::client {

// One line where all is well; otherwise two for each finding, with its remedy. With -v, also what is
// well. The exit status: kDone if all is well, kUsage if anything was found.
int Doctor(const GlobalOptions& global, const DoctorOptions& options);

}  // namespace heddle::client
