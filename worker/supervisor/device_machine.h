// What is known of the speed of this host's cores: measured once for each device key, in a process of
// its own, and kept in a file. The text means nothing here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace heddle::worker {

struct DeviceMachineOptions {
  std::string folder;  // keeps the files; made if it is not there
  // What the file is for. Another key, target, version or number of cores has another file.
  std::string device_key;
  std::string target;
  int version = 0;
  std::vector<int> cores;  // measured; no slot on them may be offered yet
  // Prints the text on stdout and ends with status 0 (ChildProcess appends its arguments).
  std::vector<std::string> command;
  std::function<absl::Status(const std::string& text)> check;  // refuses a text that is none
  bool again = false;                                          // measure even if there is a file
  absl::Duration limit = absl::Seconds(30);
};

struct DeviceMachine {
  std::string text;
  absl::Duration took;  // to measure it; zero: it was kept
};

// Unavailable: the process could not be started, failed or took too long. Otherwise as `check`. A file
// that cannot be read, or is refused, counts as none; one that cannot be written is only logged.
absl::StatusOr<DeviceMachine> MachineOfDevice(const DeviceMachineOptions& options);

}  // namespace heddle::worker
