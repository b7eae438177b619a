// What the protobuf library itself has to say. It writes a line to stderr for each text field that is
// no UTF-8, so a peer that sends such messages could fill a disk with them.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace heddle {

struct LogLimit {
  int lines = 10;
  absl::Duration per = absl::Minutes(1);
};

// From now on gives each message of the library, as one line of at most 300 bytes, to `log`, but no
// more lines than the limit says. The first line of the next period tells how many were left out.
// `log` is called from any thread, one at a time. Once, before the process has other threads.
void RouteProtobufLog(void (*log)(const std::string& line), const LogLimit& limit = {});

}  // namespace heddle
