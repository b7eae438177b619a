// heddle sweep: runs one job for each combination of the given values.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/commands.h"

namespace heddle::client {

struct SweepParameter {
  std::string name;                 // a flag of submit without its dashes: "trials"
  bool flag = false;                // a flag without value; its values here are "on" and "off"
  std::vector<std::string> values;  // in the order given
};

struct SweepOptions {
  std::string model;
  std::string directory;  // of sweep.json, sweep.csv and sweep.svg
  std::string data;       // of an embedded service; empty: the service's default
  int parallel = 1;       // jobs at a time
  std::vector<SweepParameter> parameters;
  // Parses words of submit's command line (the model first). InvalidArgument as from submit itself.
  std::function<absl::StatusOr<SubmitOptions>(const std::vector<std::string>& words)> parse;
};

// Parses "8,16" as the values of a parameter. InvalidArgument: an empty or repeated value, or a
// flag's value that is neither on nor off.
absl::StatusOr<SweepParameter> ParseSweepParameter(const std::string& name, bool flag,
                                                   const std::string& text);

// Runs all combinations, each with new measurements, except those that sweep.json lists as done.
// The files are complete after every job, so the same command continues an interrupted sweep,
// including the jobs it left behind.
int Sweep(const GlobalOptions& global, const SweepOptions& options);

}  // namespace heddle::client
