// A scheduler with its tracker and workers, started for the duration of one command.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace heddle::client {

// The processes end with this object, and with this process however it ends.
class EmbeddedService {
 public:
  // Starts `heddle-scheduler --embedded` (the binary beside this one, else from PATH) on a free
  // loopback port and waits until it serves. `data` empty: the service's default. Unavailable with
  // the service's last words if it does not come up in 30 s.
  static absl::StatusOr<std::unique_ptr<EmbeddedService>> Start(const std::string& data);
  ~EmbeddedService();
  const std::string& address() const { return address_; }
  // Unavailable, with the service's last words and the place of its log, once it has ended by
  // itself.
  absl::Status CheckAlive();

 private:
  EmbeddedService(pid_t pid, std::string directory) : pid_(pid), directory_(std::move(directory)) {}
  pid_t pid_;
  std::string directory_;  // port file and log
  bool keep_directory_ = false;
  std::string address_;
};

}  // namespace heddle::client
