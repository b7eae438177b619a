#include "client/config/config_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "base/status_macros.h"

namespace heddle::client {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{1} << 20;
constexpr int kMostFolders = 256;  // looked through on the way up
constexpr size_t kMostDepth = 2;   // of commands

// What only the user's own file may say.
const std::set<std::string>& OnlyTheUsers() {
  static const std::set<std::string> options = {"tls-dir", "token-file", "data",
                                                "http",    "output",     "plot"};
  return options;
}

// Options whose values are paths. Relative ones begin in the folder of the file.
const std::set<std::string>& Paths() {
  static const std::set<std::string> options = {"tls-dir", "token-file", "data", "records"};
  return options;
}

absl::Status Bad(const std::string& path, int line, const std::string& why) {
  return absl::InvalidArgumentError(fmt::format("{}:{}: {}", path, line, why));
}

// The value as it is written on a command line; nullopt if no option has such a value.
std::optional<std::string> WordOf(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto flag = node.value_exact<bool>()) return *flag ? "true" : "false";
  if (const auto number = node.value_exact<int64_t>()) return fmt::format("{}", *number);
  if (const auto number = node.value_exact<double>()) return fmt::format("{}", *number);
  return std::nullopt;
}

std::string Resolved(const std::string& option, const std::string& value, const std::string& file) {
  if (!Paths().contains(option) || value.empty() || value[0] == '/') return value;
  if (value.starts_with("~/")) {
    const char* home = std::getenv("HOME");
    return home == nullptr ? value : home + value.substr(1);
  }
  return (fs::path(file).parent_path() / value).lexically_normal();
}

absl::Status ReadTable(const toml::table& table, const std::string& command, size_t depth,
                       const std::string& path, std::vector<Setting>* settings) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const int line = static_cast<int>(key.source().begin.line);
    if (const toml::table* inner = node.as_table()) {
      if (depth == kMostDepth) return Bad(path, line, "no command has commands of commands");
      HEDDLE_RETURN_IF_ERROR(ReadTable(*inner, command.empty() ? name : command + " " + name,
                                       depth + 1, path, settings));
      continue;
    }
    Setting setting{command, name, {}, path, line};
    const toml::array* list = node.as_array();
    const auto add = [&](const toml::node& value) -> absl::Status {
      const std::optional<std::string> word = WordOf(value);
      if (!word) {
        return Bad(
            path, line,
            fmt::format("'{}' is a text, a number, true or false, or a list of these", name));
      }
      setting.values.push_back(Resolved(name, *word, path));
      return absl::OkStatus();
    };
    if (list == nullptr) HEDDLE_RETURN_IF_ERROR(add(node));
    for (size_t i = 0; list != nullptr && i < list->size(); ++i)
      HEDDLE_RETURN_IF_ERROR(add(*list->get(i)));
    settings->push_back(std::move(setting));
  }
  return absl::OkStatus();
}

// Nothing if the file is not there.
absl::StatusOr<std::vector<Setting>> ReadFileIfThere(const std::string& path) {
  std::error_code ignored;
  if (path.empty() || !fs::exists(path, ignored)) return std::vector<Setting>{};
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (!fs::is_regular_file(path, ignored) || !file || !(text << file.rdbuf()) ||
      text.view().size() > kMostBytes) {
    // An empty file gives no text, which is no error.
    if (fs::is_regular_file(path, ignored) && fs::file_size(path, ignored) == 0)
      return std::vector<Setting>{};
    return absl::InvalidArgumentError(
        fmt::format("{}: cannot be read, or has more than 1 MiB; mend or remove it", path));
  }
  return ParseConfig(text.str(), path);
}

}  // namespace

std::string KeyOf(const Setting& setting) {
  std::string key = setting.command;
  std::replace(key.begin(), key.end(), ' ', '.');
  return key.empty() ? setting.option : key + "." + setting.option;
}

std::string OriginOf(const Setting& setting) {
  return fmt::format("{}:{}", setting.file, setting.line);
}

std::string UserConfigPath() {
  if (const char* folder = std::getenv("XDG_CONFIG_HOME"); folder != nullptr && *folder != '\0')
    return std::string(folder) + "/heddle/config.toml";
  const char* home = std::getenv("HOME");
  return home == nullptr ? "" : std::string(home) + "/.config/heddle/config.toml";
}

std::string FindProjectConfig(const std::string& directory) {
  std::error_code ignored;
  fs::path folder = fs::absolute(directory, ignored);
  for (int i = 0; i < kMostFolders; ++i) {
    const fs::path file = folder / "heddle.toml";
    if (fs::is_regular_file(file, ignored)) return file;
    if (!folder.has_parent_path() || folder == folder.parent_path()) break;
    folder = folder.parent_path();
  }
  return "";
}

absl::StatusOr<std::vector<Setting>> ParseConfig(const std::string& text, const std::string& path) {
  std::vector<Setting> settings;
  try {
    const toml::table table = toml::parse(text, path);
    HEDDLE_RETURN_IF_ERROR(ReadTable(table, "", 0, path, &settings));
  } catch (const toml::parse_error& error) {
    return Bad(path, static_cast<int>(error.source().begin.line), std::string(error.description()));
  }
  // In the order of the file: a table's own is that of the alphabet.
  std::stable_sort(settings.begin(), settings.end(),
                   [](const Setting& a, const Setting& b) { return a.line < b.line; });
  return settings;
}

absl::StatusOr<std::vector<Setting>> ReadConfig(const std::string& directory,
                                                std::string* warning) {
  std::vector<Setting> settings;
  const std::string project = FindProjectConfig(directory);
  struct stat info = {};
  if (!project.empty() && stat(project.c_str(), &info) == 0) {
    const bool own = info.st_uid == geteuid() || info.st_uid == 0;
    if (own && (info.st_mode & 022) == 0) {
      HEDDLE_ASSIGN_OR_RETURN(settings, ReadFileIfThere(project));
    } else {
      *warning = fmt::format(
          "{} is left out, since others may write to it; chown it to you and chmod 644 it",
          project);
    }
  }
  for (const Setting& setting : settings) {
    if (!OnlyTheUsers().contains(setting.option)) continue;
    return Bad(
        project, setting.line,
        fmt::format("'{}' is not for a project's file, which may be somebody else's: it says "
                    "whom to trust, where to write or who may look; move it to {}",
                    setting.option, UserConfigPath()));
  }
  std::set<std::string> known;
  for (const Setting& setting : settings) known.insert(KeyOf(setting));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Setting> users, ReadFileIfThere(UserConfigPath()));
  for (const Setting& setting : users) {
    if (!known.contains(KeyOf(setting))) settings.push_back(setting);
  }
  return settings;
}

}  // namespace heddle::client
