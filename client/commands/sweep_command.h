// heddle sweep: one job for each combination of the values given, unattended.
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
  bool flag = false;                // takes no value: its values are "on" and "off"
  std::vector<std::string> values;  // in the order given
};

struct SweepOptions {
  std::string model;
  std::string directory;  // of sweep.json, sweep.csv and sweep.svg
  std::string data;       // of an embedded service; empty: the service's default
  int parallel = 1;       // jobs at a time
  std::vector<SweepParameter> parameters;
  // Words of submit's command line (the model first) as its options. InvalidArgument: what submit
  // itself would say.
  std::function<absl::StatusOr<SubmitOptions>(const std::vector<std::string>& words)> parse;
};

// "8,16" as the values of a parameter. InvalidArgument: an empty value, one given twice, or a
// flag's value that is neither on nor off.
absl::StatusOr<SweepParameter> ParseSweepParameter(const std::string& name, bool flag,
                                                   const std::string& text);

// Runs all combinations, each measured anew; what sweep.json says is done is not done again. The
// files are whole after every job, so the same command goes on where an earlier one ended; jobs
// that one left behind when it was killed are taken up again.
int Sweep(const GlobalOptions& global, const SweepOptions& options);

}  // namespace heddle::client
