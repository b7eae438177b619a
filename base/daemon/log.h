// The log of a daemon: lines for people, or a JSON object a line for programs.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
}  // namespace CLI

namespace heddle {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

struct LogOptions {
  std::string format = "text";  // or "json"
  // "debug", "info", "warning" or "error". Empty: "debug" if verbose, and "info" otherwise.
  std::string level{};
  std::string file{};  // empty: stderr
  bool verbose = false;
};

// Adds --log-format, --log-level, --log-file and -v to the flags of a daemon.
void AddLogFlags(CLI::App* app, LogOptions* options);

// The same flags for a process that this one starts, called `child`. If there is a log file, the
// child's is beside it, with `.child` at the end of its name.
std::vector<std::string> LogFlags(const LogOptions& options, const std::string& child);

// From now on all lines of this process, also those by spdlog itself, go where the options say. A
// regular file that has grown to 16 MiB becomes FILE with .1 before its ending, and so on; there are
// at most four. InvalidArgument: the file cannot be written.
absl::Status StartLog(const std::string& program, const LogOptions& options);

// What a line is about: {"job", "j3"}. Names are the same everywhere: job, task, stage (its kind),
// attempt, worker, slot, reason, seconds.
struct LogField {
  std::string name;
  std::variant<std::string, int64_t, double> value;
};

// Logs one line. As text, the fields follow as `name=value`; in JSON they are members of the object,
// beside time, level, program and message. Texts may come from strangers: control characters become
// blanks, so that no text makes a second line or changes the terminal. Thread-safe.
void Log(LogLevel level, const std::string& message, const std::vector<LogField>& fields = {});

}  // namespace heddle
