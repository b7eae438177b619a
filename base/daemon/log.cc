#include "base/daemon/log.h"

#include <fcntl.h>
#include <spdlog/formatter.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/one_line.h"

namespace heddle {
namespace {

constexpr size_t kMaxFileBytes = 16 << 20;
constexpr size_t kOldFiles = 3;

// The fields of the line that this thread logs. spdlog formats a line on the thread that logs it.
thread_local const std::vector<LogField>* current_fields = nullptr;

spdlog::level::level_enum LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

nlohmann::ordered_json ToJson(const LogField& field) {
  return std::visit(
      [](const auto& value) -> nlohmann::ordered_json {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
          return OneLine(value);
        } else {
          return value;
        }
      },
      field.value);
}

// A word as it is; anything else, such as "a b" or "", in quotes.
std::string ToText(const LogField& field) {
  if (const auto* number = std::get_if<double>(&field.value))
    return absl::StrCat(std::round(*number * 1000) / 1000);
  const nlohmann::ordered_json json = ToJson(field);
  if (!json.is_string()) return Dump(json);
  const std::string& text = json.get_ref<const std::string&>();
  const bool word = !text.empty() && text.find_first_of(" =\"\\") == std::string::npos;
  return word ? text : Dump(json);
}

class LineFormatter final : public spdlog::formatter {
 public:
  explicit LineFormatter(bool json) : json_(json) {}

  void format(const spdlog::details::log_msg& line, spdlog::memory_buf_t& out) override {
    static const std::vector<LogField> kNone;
    const std::vector<LogField>& fields = current_fields == nullptr ? kNone : *current_fields;
    std::string text = OneLine(std::string_view(line.payload.data(), line.payload.size()));
    if (!json_) {
      for (const LogField& field : fields)
        absl::StrAppend(&text, " ", field.name, "=", ToText(field));
      spdlog::details::log_msg whole = line;
      whole.payload = spdlog::string_view_t(text.data(), text.size());
      text_.format(whole, out);
      return;
    }
    const spdlog::string_view_t level = spdlog::level::to_string_view(line.level);
    nlohmann::ordered_json object = {
        {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromChrono(line.time),
                                  absl::UTCTimeZone())},
        {"level", std::string(level.data(), level.size())},
        {"program", std::string(line.logger_name.data(), line.logger_name.size())},
        {"message", text}};
    for (const LogField& field : fields) object[field.name] = ToJson(field);
    const std::string dumped = Dump(object) + "\n";
    out.append(dumped.data(), dumped.data() + dumped.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<LineFormatter>(json_);
  }

 private:
  const bool json_;
  spdlog::pattern_formatter text_;
};

std::string LevelName(const LogOptions& options) {
  if (!options.level.empty()) return options.level;
  return options.verbose ? "debug" : "info";
}

// Makes the file if it is missing, and says whether it is a regular one.
absl::StatusOr<bool> PrepareFile(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0640);
  struct stat info = {};
  if (file < 0 || fstat(file, &info) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--log-file ", path, ": ", std::strerror(errno),
                                                   "; name a file that can be written"));
  }
  close(file);
  return S_ISREG(info.st_mode);
}

absl::StatusOr<spdlog::sink_ptr> MakeSink(const std::string& path) {
  if (path.empty()) return std::make_shared<spdlog::sinks::stderr_sink_mt>();
  const absl::StatusOr<bool> regular = PrepareFile(path);
  if (!regular.ok()) return regular.status();
  try {
    // A device or a pipe must not be renamed.
    if (!*regular) return std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    return std::make_shared<spdlog::sinks::rotating_file_sink_mt>(path, kMaxFileBytes, kOldFiles);
  } catch (const spdlog::spdlog_ex& error) {
    return absl::InvalidArgumentError(absl::StrCat("--log-file ", path, ": ", error.what()));
  }
}

}  // namespace

void AddLogFlags(CLI::App* app, LogOptions* options) {
  app->add_option("--log-format", options->format, "text: lines for people; json: an object a line")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app->add_option("--log-level", options->level, "Least that is logged (default: info)")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  app->add_option("--log-file", options->file,
                  "File that the log goes to instead of stderr; the newest 64 MiB are kept");
  app->add_flag("-v,--verbose", options->verbose, "The same as --log-level debug");
}

std::vector<std::string> LogFlags(const LogOptions& options, const std::string& child) {
  std::vector<std::string> flags = {"--log-format", options.format, "--log-level",
                                    LevelName(options)};
  if (!options.file.empty())
    flags.insert(flags.end(), {"--log-file", absl::StrCat(options.file, ".", child)});
  return flags;
}

absl::Status StartLog(const std::string& program, const LogOptions& options) {
  absl::StatusOr<spdlog::sink_ptr> sink = MakeSink(options.file);
  if (!sink.ok()) return sink.status();
  auto logger = std::make_shared<spdlog::logger>(program, *std::move(sink));
  logger->set_formatter(std::make_unique<LineFormatter>(options.format == "json"));
  logger->set_level(spdlog::level::from_str(LevelName(options)));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

void Log(LogLevel level, const std::string& message, const std::vector<LogField>& fields) {
  spdlog::logger* const logger = spdlog::default_logger_raw();
  if (!logger->should_log(LevelOf(level))) return;
  current_fields = &fields;
  logger->log(LevelOf(level), spdlog::string_view_t(message.data(), message.size()));
  current_fields = nullptr;
}

}  // namespace heddle
