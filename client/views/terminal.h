// Output for people (tables, colours, units) and exit statuses for scripts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "views/format.h"

namespace heddle::client {

// Exit statuses, the same for every command.
enum ExitCode {
  kDone = 0,
  kInternal = 1,
  kUsage = 2,  // usage or bad input
  kNothingValid = 3,
  kNotFound = 4,
  kUnreachable = 5,
  kTimeout = 6,
  kCancelled = 7,
  kInterrupted = 130,
};
ExitCode ExitCodeFor(const absl::Status& status);
// "heddle: <message>" on stderr; returns the exit code.
int Fail(const absl::Status& status);
// The same for an exit code that is known.
int Fail(int exit_code, std::string_view message);
// From now on, errors are JSON, one line each: {"error":"<message>","exit_status":4,"schema_version":1}.
void TellErrorsAsJson();

// The text with control characters written out ("\\x1b", "\\n"), for what others named: it must neither
// move the cursor of a terminal nor break a table.
std::string Printable(std::string_view text);

// The text in at most `width` columns (1 or more): cut at the end, or in the middle, where "~" stands.
std::string Clip(const std::string& text, size_t width);
std::string ClipMiddle(const std::string& text, size_t width);

struct OutputOptions {
  bool json = false;
  bool plain = false;  // no colour, no animation, tab-separated tables
  int verbosity = 0;
};

// True if stderr is a terminal that may be redrawn (not --plain, not TERM=dumb).
bool CanAnimate(const OutputOptions& options);
// True if colour may be used on stdout (a terminal, no NO_COLOR, not --plain, not TERM=dumb).
bool CanColor(const OutputOptions& options);

// A table whose columns are as wide as their widest cell; numbers align right. Cells are made
// Printable.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  void Add(std::vector<std::string> row);
  void AddRule();  // a horizontal line
  std::string ToText(bool plain = false) const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the first is the header; an empty row is a rule
};

// Ctrl-C: the first sets a flag that long commands poll; the second ends the process at once.
void InstallInterruptHandler();
bool Interrupted();

// Columns of the terminal at stderr, 100 if it is none.
int TerminalWidth();
int TerminalHeight();

}  // namespace heddle::client
