#include "client/doctor/doctor.h"

#include <iterator>
#include <utility>

#include "client/doctor/checks.h"

namespace heddle::client {
namespace {

struct Check {
  const char* name;
  Verdict (*perform)(const DoctorOptions& options, const Surroundings& here);
};

constexpr Check kChecks[] = {
    {"programs", doctor::CheckPrograms},
    {"versions", doctor::CheckVersions},
    {"toolchain", doctor::CheckToolchain},
    {"processor", doctor::CheckProcessor},
    {"gpu", doctor::CheckGpu},
    {"cores", doctor::CheckCores},
    {"cpu-quota", doctor::CheckQuota},
    {"governor", doctor::CheckGovernor},
    {"load", doctor::CheckLoad},
    {"steal", doctor::CheckSteal},
    {"clock", doctor::CheckClock},
    {"date", doctor::CheckDate},
    {"memory", doctor::CheckMemory},
    {"open-files", doctor::CheckOpenFiles},
    {"kernel", doctor::CheckKernel},
    {"confinement", doctor::CheckConfinement},
    {"temporary", doctor::CheckTemporary},
    {"data-directory", doctor::CheckDataDirectory},
    {"socket-path", doctor::CheckSocketPath},
    {"disk-space", doctor::CheckDiskSpace},
    {"disk-kind", doctor::CheckDiskKind},
    {"certificates", doctor::CheckCertificates},
    {"token", doctor::CheckToken},
    {"service", doctor::CheckService},
    {"tracker", doctor::CheckTracker},
    {"devices", doctor::CheckDevices},
    {"quarantine", doctor::CheckQuarantine},
};

}  // namespace

Verdict Well(std::string found) { return {Health::kWell, std::move(found), ""}; }

Verdict Warning(std::string found, std::string remedy) {
  return {Health::kWarning, std::move(found), std::move(remedy)};
}

Verdict Problem(std::string found, std::string remedy) {
  return {Health::kProblem, std::move(found), std::move(remedy)};
}

std::vector<Finding> Examine(const DoctorOptions& options, const Surroundings& here) {
  std::vector<Finding> findings;
  for (const Check& check : kChecks) findings.push_back({check.name, check.perform(options, here)});
  return findings;
}

std::vector<std::string> CheckNames() {
  std::vector<std::string> names;
  for (const Check& check : kChecks) names.push_back(check.name);
  return names;
}

}  // namespace heddle::client
