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
// refused it, nor if the user showed a certificate or a token, or named several schedulers, and so meant a
// certain service.
bool MayStartService(const ServerAccess& server, const absl::Status& serving);

// The path of another program of Heddle: beside this one, otherwise its name, to be looked for in PATH.
std::string SiblingBinary(const std::string& name);

// The processes end with this object, and when this process ends for any reason.
class EmbeddedService {
 public:
  // Starts `heddle-scheduler --embedded` (the binary beside this one, otherwise from PATH) on the
  // UNIX socket of its data directory `data`, which only this user reaches, and waits until it serves.
  // Where that path is too long for a socket, it is one in a temporary directory, and no other command finds
  // it. `http`: its --http; empty: it has no page. Unavailable with the service's last message if it does
  // not serve within 30 s. FailedPrecondition: it ended at once, for instance because another service uses
  // the data, or because it cannot serve at `http`.
  static absl::StatusOr<std::unique_ptr<EmbeddedService>> Start(const std::string& data,
                                                                const std::string& http = "");
  ~EmbeddedService();
  const std::string& address() const { return address_; }
  // What it says of its page: "page at http://127.0.0.1:34567/"; empty: it has none.
  std::string Page() const;
  // Unavailable, with the service's last message and the path of its log, if it has ended by
  // itself.
  absl::Status CheckAlive();

 private:
  EmbeddedService(pid_t pid, std::string directory) : pid_(pid), directory_(std::move(directory)) {}
  pid_t pid_;
  std::string directory_;  // port file and log
  std::string marker_;     // file with the process id; empty: none
  bool keep_directory_ = false;
  std::string address_;
};

// The service that a command uses which may start one: the service that it was told of, one that another
// command has started on the same data, or one of its own. A service that a command started ends with that
// command. Whoever else uses it then starts it again on the same data, where its jobs go on.
class CommandService {
 public:
  // `data` is the data directory of a service that is started; empty: the default one. `http` is the address
  // at which a service that is started serves its page; empty: it serves none. Prints on stderr which service is started
  // or found, and the address of the page.
  // Errors are those of `server`, which is not replaced if it refused the
  // command, nor where MayStartService says so; and those of EmbeddedService::Start.
  static absl::StatusOr<std::unique_ptr<CommandService>> Find(const ServerAccess& server,
                                                              const std::string& data,
                                                              const std::string& http = "");
  const ServerAccess& server() const { return server_; }
  // Whether the service ends with a command, this one or another.
  bool is_private() const { return own_ != nullptr || lender_ > 0; }
  // To be called about ten times a second. Starts the service again if the command that had started it has
  // ended. Unavailable: it ended, and cannot be started.
  absl::Status CheckAlive();

 private:
  CommandService(ServerAccess server, std::string data, std::string http)
      : server_(std::move(server)), data_(std::move(data)), http_(std::move(http)) {}
  // Uses the service at the data directory's socket, or starts it.
  absl::Status BorrowOrStart();
  // Says so if a page is wanted of a service that this command did not start.
  void TellMissingPage() const;

  ServerAccess server_;
  const std::string data_;
  const std::string http_;
  std::unique_ptr<EmbeddedService> own_;
  pid_t lender_ = 0;  // the scheduler that another command started; 0: none
};

}  // namespace heddle::client
