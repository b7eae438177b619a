#include "client/config/config_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_split.h"
#include "base/near_names.h"
#include "base/status_macros.h"
#include "client/views/json.h"

namespace heddle::client {
namespace {

absl::Status BadSetting(const Setting& setting, const std::string& why) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", OriginOf(setting), why));
}

// ", did you mean 'trials'?"; empty if no name is near.
std::string Suggestion(const std::string& name, const std::vector<std::string>& known) {
  const std::string near = NearName(name, known);
  return near.empty() ? "" : fmt::format(", did you mean '{}'?", near);
}

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

// Long names of the options that a file may set.
std::vector<std::string> OptionsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (name != "help" && name != "version") names.push_back(name);
    }
  }
  return names;
}

// The command that a setting is about.
absl::StatusOr<CLI::App*> CommandOf(const Setting& setting, CLI::App* app) {
  const std::vector<std::string> words = absl::StrSplit(setting.command, ' ', absl::SkipEmpty());
  for (const std::string& word : words) {
    CLI::App* found = nullptr;
    for (CLI::App* command : app->get_subcommands({})) {
      if (command->get_name() == word) found = command;
    }
    if (found == nullptr) {
      return BadSetting(setting, fmt::format("there is no command '{}'{}", Printable(word),
                                             Suggestion(word, CommandsOf(*app))));
    }
    app = found;
  }
  return app;
}

bool IsFlag(const CLI::Option& option) { return option.get_expected_max() == 0; }

bool IsAmong(const std::string& option, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [&option](const std::string& word) {
    return word == "--" + option || word.starts_with("--" + option + "=");
  });
}

absl::Status Apply(const Setting& setting, const std::vector<std::string>& words, CLI::App* app) {
  HEDDLE_ASSIGN_OR_RETURN(CLI::App* const command, CommandOf(setting, app));
  const std::string& name = setting.option;
  const std::vector<std::string> known = OptionsOf(*command);
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    const std::string whose =
        setting.command.empty() ? "every command" : "`heddle " + setting.command + "`";
    // An option of one command at the top of the file is a likely mistake.
    std::string place = Suggestion(name, known);
    for (CLI::App* other : command->get_subcommands({})) {
      if (!place.empty() || other->get_option_no_throw("--" + name) == nullptr) continue;
      place = fmt::format("; `heddle {0}` has it: write it below a line [{0}]", other->get_name());
    }
    return BadSetting(setting,
                      fmt::format("'{}' is no option of {}{}", Printable(name), whose, place));
  }
  CLI::Option* option = command->get_option_no_throw("--" + name);
  try {
    if (option->get_items_expected_max() > 1) {
      if (IsAmong(name, words)) return absl::OkStatus();
      option->add_result(setting.values);
      return absl::OkStatus();
    }
    if (setting.values.size() != 1)
      return BadSetting(setting, fmt::format("'{}' takes one value", name));
    const std::string& value = setting.values.front();
    option->run_callback_for_default();
    if (!IsFlag(*option)) {
      option->default_val(value);
      return absl::OkStatus();
    }
    option->default_val(option->get_flag_value(name, value));
  } catch (const CLI::Error& error) {
    return BadSetting(setting, fmt::format("'{}': {}", name, error.what()));
  }
  return absl::OkStatus();
}

// An option with the value that an environment variable gives it.
std::vector<Setting> FromEnvironment(const CLI::App& app) {
  std::vector<Setting> settings;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_envname().empty() || option->get_lnames().empty()) continue;
    const char* value = std::getenv(option->get_envname().c_str());
    if (value == nullptr || *value == '\0') continue;
    settings.push_back({"", option->get_lnames().front(), {value}, option->get_envname(), 0});
  }
  return settings;
}

// The value as it would stand in a file.
std::string TomlOf(const Setting& setting) {
  const auto quoted = [](const std::string& word) {
    return nlohmann::json(word).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  if (setting.values.size() == 1) return quoted(setting.values.front());
  std::string list;
  for (const std::string& value : setting.values)
    list += (list.empty() ? "" : ", ") + quoted(value);
  return "[" + list + "]";
}

std::string WhereFrom(const Setting& setting) {
  return setting.line == 0 ? "environment variable " + setting.file : OriginOf(setting);
}

}  // namespace

absl::Status ApplyConfig(const std::vector<Setting>& settings,
                         const std::vector<std::string>& words, CLI::App* app) {
  for (const Setting& setting : settings) HEDDLE_RETURN_IF_ERROR(Apply(setting, words, app));
  return absl::OkStatus();
}

int ShowConfig(const std::vector<Setting>& settings, const CLI::App& app, bool origin,
               const OutputOptions& output) {
  std::vector<Setting> all = FromEnvironment(app);
  std::set<std::string> known;
  for (const Setting& setting : all) known.insert(KeyOf(setting));
  for (const Setting& setting : settings) {
    if (known.insert(KeyOf(setting)).second) all.push_back(setting);
  }
  // Options of every command stand before those of one.
  std::stable_sort(all.begin(), all.end(),
                   [](const Setting& a, const Setting& b) { return a.command < b.command; });
  if (output.json) {
    nlohmann::json list = nlohmann::json::array();
    for (const Setting& setting : all) {
      list.push_back(
          {{"key", KeyOf(setting)}, {"values", setting.values}, {"origin", WhereFrom(setting)}});
    }
    const nlohmann::json object = {{"schema_version", kJsonSchemaVersion}, {"settings", list}};
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return kDone;
  }
  if (all.empty()) {
    const std::string path = UserConfigPath();
    fmt::print(stderr, "nothing is set; heddle.toml here or above{} would be read\n",
               path.empty() ? "" : ", and " + path + ",");
    return kDone;
  }
  if (origin) {
    Table table({"option", "value", "from"});
    for (const Setting& setting : all)
      table.Add({KeyOf(setting), TomlOf(setting), WhereFrom(setting)});
    fmt::print("{}", table.ToText(output.plain));
    return kDone;
  }
  std::string command;
  for (const Setting& setting : all) {
    if (setting.command != command) {
      command = setting.command;
      std::string name = command;
      std::replace(name.begin(), name.end(), ' ', '.');
      fmt::print("\n[{}]\n", name);
    }
    fmt::print("{} = {}\n", setting.option, TomlOf(setting));
  }
  return kDone;
}

}  // namespace heddle::client
