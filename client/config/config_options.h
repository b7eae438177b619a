// Gives the options of a command line the values of the configuration files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/config/config_file.h"
#include "client/views/terminal.h"

namespace CLI {
class App;
}

namespace heddle::client {

// To be called before the words are parsed. What a file says is a new default: an environment variable and
// the command line still win. `words` are those of the command line; an option that may be repeated and
// is among them takes nothing from a file. InvalidArgument "FILE:LINE: ..": there is no such option (the
// nearest one is named), or it does not take the value.
absl::Status ApplyConfig(const std::vector<Setting>& settings,
                         const std::vector<std::string>& words, CLI::App* app);

// Prints what files and environment variables set, as TOML, or with `origin` as a table that also
// says where each value comes from. `app` has the options.
int ShowConfig(const std::vector<Setting>& settings, const CLI::App& app, bool origin,
               const OutputOptions& output);

}  // namespace heddle::client
