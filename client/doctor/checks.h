// The checks of `heddle doctor`, by what they look at. doctor.cc has the table of all.
#pragma once

#include "client/doctor/doctor.h"

namespace heddle::client::doctor {

// ---- Processors, memory, clocks (machine_checks.cc) ----

Verdict CheckProcessor(const DoctorOptions& options, const Surroundings& here);
Verdict CheckCores(const DoctorOptions& options, const Surroundings& here);
Verdict CheckQuota(const DoctorOptions& options, const Surroundings& here);
Verdict CheckGovernor(const DoctorOptions& options, const Surroundings& here);
Verdict CheckLoad(const DoctorOptions& options, const Surroundings& here);
Verdict CheckSteal(const DoctorOptions& options, const Surroundings& here);
Verdict CheckClock(const DoctorOptions& options, const Surroundings& here);
Verdict CheckDate(const DoctorOptions& options, const Surroundings& here);
Verdict CheckMemory(const DoctorOptions& options, const Surroundings& here);
Verdict CheckOpenFiles(const DoctorOptions& options, const Surroundings& here);
Verdict CheckToolchain(const DoctorOptions& options, const Surroundings& here);
Verdict CheckGpu(const DoctorOptions& options, const Surroundings& here);
Verdict CheckKernel(const DoctorOptions& options, const Surroundings& here);

// ---- Programs and files (file_checks.cc) ----

Verdict CheckPrograms(const DoctorOptions& options, const Surroundings& here);
Verdict CheckVersions(const DoctorOptions& options, const Surroundings& here);
Verdict CheckConfinement(const DoctorOptions& options, const Surroundings& here);
Verdict CheckTemporary(const DoctorOptions& options, const Surroundings& here);
Verdict CheckDataDirectory(const DoctorOptions& options, const Surroundings& here);
Verdict CheckSocketPath(const DoctorOptions& options, const Surroundings& here);
Verdict CheckDiskSpace(const DoctorOptions& options, const Surroundings& here);
Verdict CheckDiskKind(const DoctorOptions& options, const Surroundings& here);

// ---- The service and the way to it (service_checks.cc) ----

Verdict CheckCertificates(const DoctorOptions& options, const Surroundings& here);
Verdict CheckToken(const DoctorOptions& options, const Surroundings& here);
Verdict CheckService(const DoctorOptions& options, const Surroundings& here);
Verdict CheckTracker(const DoctorOptions& options, const Surroundings& here);
Verdict CheckDevices(const DoctorOptions& options, const Surroundings& here);
Verdict CheckQuarantine(const DoctorOptions& options, const Surroundings& here);

}  // namespace heddle::client::doctor
