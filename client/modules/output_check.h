// What a module computed, beside what the interpreter does.
#pragma once

#include <string>
#include <vector>

#include "client/commands/commands.h"
#include "compiler/runtime/executor.h"

namespace heddle::client {

// The bytes of an output after a run.
std::string OutputBytes(const runtime::Executor& executor, int index);
// Elements of any type; `dtype` as a module names it.
std::vector<double> ToDoubles(const std::string& bytes, const std::string& dtype);

// How far an output of that type may be from the interpreter's, relative to its largest magnitude.
double OutputTolerance(const runtime::Manifest& manifest, const std::string& dtype);

// Interprets options.check on `inputs` and prints the relative error of each output of the run that
// has been made. 0 when all are within the tolerance, else a failure; that of the usage if the file
// is not the model that the module was made from.
int CheckAgainstInterpreter(const RunOptions& options, const std::vector<std::string>& inputs,
                            const runtime::Executor& executor, const OutputOptions& output);

}  // namespace heddle::client
