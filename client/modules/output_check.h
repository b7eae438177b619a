// Compares the outputs of a module with the interpreter's.
#pragma once

#include <string>
#include <vector>

#include "client/commands/commands.h"
#include "compiler/runtime/executor.h"

namespace heddle::client {

// Elements of any type as doubles; `dtype` as in a module.
std::vector<double> ToDoubles(const std::string& bytes, const std::string& dtype);

// How far an output of that type may be from the interpreter's, relative to its largest magnitude.
double OutputTolerance(const runtime::Manifest& manifest, const std::string& dtype);

// Interprets options.check on `inputs` and prints the relative error of each output of the last
// run. Returns 0 if all are within the tolerance, kUsage if the file is not the module's model, and
// otherwise a failure.
int CheckAgainstInterpreter(const RunOptions& options, const std::vector<std::string>& inputs,
                            const runtime::Executor& executor, const OutputOptions& output);

}  // namespace heddle::client
