// Options from files, in TOML: the project's heddle.toml, in the working directory or the nearest
// folder above it, and the user's config.toml.
//
//   server = "10.0.0.1:9190"     an option of every command
//
//   [tune]                       options of one command, with the names that they have there
//   trials = 128
//   no-winograd = true           a flag
//   shape = ["x=1x3x224x224"]    an option that may be repeated
//
//   [records.export]             a command of a command
//   best = true
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::client {

struct Setting {
  std::string command;              // "tune", "records export"; empty: every command
  std::string option;               // without dashes: "trials"
  std::vector<std::string> values;  // as on the command line; "true" or "false" for a flag
  std::string file;                 // where it was read
  int line = 0;
};

// "trials", or "tune.trials".
std::string KeyOf(const Setting& setting);
// "FILE:LINE".
std::string OriginOf(const Setting& setting);

// The user's file: $XDG_CONFIG_HOME/heddle/config.toml, or the one in ~/.config.
std::string UserConfigPath();
// heddle.toml in `directory` or the nearest folder above; empty: there is none.
std::string FindProjectConfig(const std::string& directory);

// InvalidArgument "FILE:LINE: ..": it is no TOML, or a value is not one that an option may have.
absl::StatusOr<std::vector<Setting>> ParseConfig(const std::string& text, const std::string& path);

// All settings that are in force, the project's before the user's: where both have a key, only the
// project's is returned. A project's file may come with somebody else's project, so it must belong to this
// user or to root and be writable by nobody else, or it is left out, and `warning` says so. And it
// may not say whom to trust, nor where to write (InvalidArgument).
absl::StatusOr<std::vector<Setting>> ReadConfig(const std::string& directory, std::string* warning);

}  // namespace heddle::client
