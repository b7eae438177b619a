// A scheduler with its tracker and workers, started for the duration of one command.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "client/service_client.h"

namespace heddle::client {

// Whether a command may start a service of its own where the one it asked did not serve: not if that one
// refused it, nor if the user showed a certificate or a token, and so meant a certain service.
bool MayStartService(const ServerAccess& server, const absl::Status& serving);

// The processes end with this object, and when this process ends for any reason.
class EmbeddedService {
 public:
  // Starts `heddle-scheduler --embedded` (the binary beside this one, otherwise from PATH) on a
  // UNIX socket that only this user reaches, and waits until it serves. `data` is its data directory; empty: the
  // service's default. Unavailable with the service's last message if it does not serve within 30
  // s.
  static absl::StatusOr<std::unique_ptr<EmbeddedService>> Start(const std::string& data);
  ~EmbeddedService();
  const std::string& address() const { return address_; }
  // Unavailable, with the service's last message and the path of its log, if it has ended by
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
