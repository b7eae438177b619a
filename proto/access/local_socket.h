// UNIX sockets by which the processes of one user find each other on one machine. The kernel lets
// nobody else in: the folder of a socket is its owner's alone.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace heddle {

// Whether an address is that of a UNIX socket, "unix:/path".
bool IsUnixAddress(std::string_view address);
// "/path" of that address.
std::string SocketPath(const std::string& unix_address);
// Whether it is loopback: 127.0.0.1, ::1 or localhost, with a port.
bool IsLoopbackAddress(std::string_view address);

// Whether the text ends in ":PORT" with a port from 0 to 65535.
bool HasPort(std::string_view address);
// Whether a daemon can listen there. InvalidArgument with an example if the text is neither "unix:PATH" nor
// "HOST:PORT" with a port from 0 to 65535. Without a host it stands for all of this machine's addresses.
absl::Status CheckListenAddress(std::string_view address);

// The scheduler's data directory where none is given: $XDG_DATA_HOME/heddle, or the one in $HOME.
std::string DefaultDataDirectory();
// Where the scheduler of a data directory listens unless it is told otherwise: "unix:DATA/sockets/scheduler".
std::string SchedulerSocket(const std::string& data_directory);

// Makes the folder of a UNIX address where it is missing, for its owner alone, and checks that the
// socket can be there. InvalidArgument: the path is too long for a socket (107 bytes), others can
// enter the folder, or a process serves there already.
absl::Status PrepareSocket(const std::string& unix_address);

// A folder for the sockets of `data_directory`: DATA/sockets, or a new one under /tmp if its path
// would be too long for sockets.
absl::StatusOr<std::string> SocketFolder(const std::string& data_directory);

}  // namespace heddle
