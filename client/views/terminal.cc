#include "client/views/terminal.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "client/views/json.h"

#include "base/one_line.h"

namespace heddle::client {
namespace {

volatile sig_atomic_t g_interrupted = 0;
bool g_json_errors = false;

bool DumbTerminal() {
  const char* term = std::getenv("TERM");
  return term == nullptr || std::strcmp(term, "dumb") == 0 || *term == '\0';
}

// Code points, not bytes: tables may hold UTF-8.
size_t DisplayWidth(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

// Where the code point number `n` begins; the size of the text where it has fewer.
size_t BeginOf(const std::string& text, size_t n) {
  size_t at = 0;
  while (at < text.size() && ((text[at] & 0xC0) == 0x80 || n-- > 0)) ++at;
  return at;
}

bool LooksNumeric(const std::string& cell) {
  return !cell.empty() && (std::isdigit(static_cast<unsigned char>(cell[0])) || cell[0] == '-');
}

}  // namespace

ExitCode ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kDone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return kUsage;
    case absl::StatusCode::kNotFound:
      return kNotFound;
    case absl::StatusCode::kUnavailable:
      return kUnreachable;
    case absl::StatusCode::kDeadlineExceeded:
      return kTimeout;
    case absl::StatusCode::kCancelled:
      return kCancelled;
    default:
      return kInternal;
  }
}

std::string Printable(std::string_view text) {
  std::string printable;
  while (!text.empty()) {
    const size_t control = ControlBytes(text);
    if (text[0] == '\n') {
      printable += "\\n";
    } else if (text[0] == '\t') {
      printable += "\\t";
    } else if (control > 0) {
      printable += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[control - 1]));
    } else {
      printable += text[0];
    }
    text.remove_prefix(std::max<size_t>(1, control));
  }
  return printable;
}

std::string Clip(const std::string& text, size_t width) {
  if (DisplayWidth(text) <= width) return text;
  return text.substr(0, BeginOf(text, width - 1)) + "~";
}

std::string ClipMiddle(const std::string& text, size_t width) {
  const size_t columns = DisplayWidth(text);
  if (columns <= width) return text;
  const size_t tail = width / 2;
  return text.substr(0, BeginOf(text, width - 1 - tail)) + "~" +
         text.substr(BeginOf(text, columns - tail));
}

int Fail(const absl::Status& status) {
  return Fail(ExitCodeFor(status), std::string(status.message()));
}

int Fail(int exit_code, std::string_view message) {
  if (g_json_errors) {
    const nlohmann::json object = {
        {"schema_version", kJsonSchemaVersion}, {"error", message}, {"exit_status", exit_code}};
    fmt::print(stderr, "{}\n",
               object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print(stderr, "heddle: {}\n", Printable(message));
  }
  return exit_code;
}

void TellErrorsAsJson() { g_json_errors = true; }

bool CanAnimate(const OutputOptions& options) {
  return !options.plain && !options.json && isatty(STDERR_FILENO) && !DumbTerminal();
}

bool CanColor(const OutputOptions& options) {
  return !options.plain && isatty(STDOUT_FILENO) && !DumbTerminal() &&
         std::getenv("NO_COLOR") == nullptr;
}

Table::Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void Table::Add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = Printable(cell);
  rows_.push_back(std::move(row));
}

void Table::AddRule() { rows_.emplace_back(); }

std::string Table::ToText(bool plain) const {
  std::string text;
  if (plain) {
    for (const auto& row : rows_) {
      if (row.empty()) continue;
      text += fmt::format("{}\n", fmt::join(row, "\t"));
    }
    return text;
  }
  std::vector<size_t> widths(rows_[0].size(), 0);
  std::vector<bool> right(rows_[0].size(), true);
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t c = 0; c < rows_[r].size(); ++c) {
      widths[c] = std::max(widths[c], DisplayWidth(rows_[r][c]));
      if (r > 0 && !rows_[r][c].empty() && !LooksNumeric(rows_[r][c])) right[c] = false;
    }
  }
  for (const auto& row : rows_) {
    std::string line;
    if (row.empty()) {
      for (size_t c = 0; c < widths.size(); ++c) line += std::string(widths[c], '-') + "  ";
    }
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string pad(widths[c] - DisplayWidth(row[c]), ' ');
      line += (right[c] ? pad + row[c] : row[c] + pad) + "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

void InstallInterruptHandler() {
  struct sigaction action {};
  action.sa_handler = [](int) {
    if (g_interrupted) _exit(kInterrupted);
    g_interrupted = 1;
  };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return g_interrupted != 0; }

int TerminalWidth() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 100;
}

int TerminalHeight() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 40;
}

}  // namespace heddle::client
