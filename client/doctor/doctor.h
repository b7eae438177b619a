// `heddle doctor`: looks at everything on this machine that tuning depends on, from the clock of the
// processors to the certificates, and says what is wrong and what to do about it.
//
// Each check is one row of the table in doctor.cc: a name and a function that returns a verdict.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/vocabulary/target.h"
#include "client/service_client.h"

namespace heddle::client {

enum class Health {
  kWell,
  kWarning,  // it works, but measurements are worse for it, or it will soon break
  kProblem,  // something does not work
};

struct Verdict {
  Health health = Health::kWell;
  std::string found;   // one line: what was seen
  std::string remedy;  // one line: what to do about it; empty if all is well
};

Verdict Well(std::string found);
Verdict Warning(std::string found, std::string remedy);
Verdict Problem(std::string found, std::string remedy);

struct Finding {
  std::string check;  // its name: "governor"
  Verdict verdict;
};

// A file system, as the kernel describes it.
struct DiskFacts {
  int64_t free_bytes = 0;
  std::string kind;  // "nfs", "tmpfs"; empty: one that is fit for a database
};

// A small network that was compiled for this machine and run.
struct KernelFacts {
  absl::Duration build;            // time to compile it
  std::vector<double> samples_ns;  // times of one inference
};

// How the checks see the machine. Tests replace parts of it to plant problems.
struct Surroundings {
  std::string root;        // stands before /proc, /sys and /dev; empty: this machine's own
  std::string programs;    // folder of heddle-scheduler, heddle-tracker and heddle-worker
  std::string temporary;   // folder for temporary files
  std::vector<int> cores;  // that this process may use
  int64_t open_files = 0;  // that a process may have at a time
  absl::Time now;
  // Lets some time pass between two readings of what the processors did.
  std::function<void()> wait;
  std::function<absl::StatusOr<DiskFacts>(const std::string& path)> disk;
  // Whether there is a compiler for a kind of targets.
  std::function<absl::Status(TargetKind)> toolchain;
  std::function<absl::StatusOr<KernelFacts>(const Target& resolved)> kernel;
};
Surroundings ThisMachine();

struct DoctorOptions {
  ServerAccess server;
  bool server_is_default = true;  // nobody named the server, so none needs to run
  std::string data;               // data directory of a service on this machine
  std::string target = "llvm -mcpu=native";
  std::string version;  // of this program, "0.1.0"
};

// Makes all checks, in the order of the table.
std::vector<Finding> Examine(const DoctorOptions& options, const Surroundings& here);

// Names of all checks, in that order.
std::vector<std::string> CheckNames();

}  // namespace heddle::client
