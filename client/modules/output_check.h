// Compares the outputs of a module with the interpreter's.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/commands.h"
#include "client/modules/npy.h"
#include "client/modules/run_rows.h"
#include "compiler/runtime/executor.h"

namespace heddle::client {

// Elements of any type as doubles; `dtype` as in a module.
std::vector<double> ToDoubles(const std::string& bytes, const std::string& dtype);

// How far an output of that type may be from the interpreter's, relative to its largest magnitude.
double OutputTolerance(const runtime::Manifest& manifest, const std::string& dtype);

// How far each output moves, relative to its largest magnitude, if every float of the inputs moves by
// up to 8 units in its last place: the most of 16 random moves. That is about what the order of sums
// does to the floats inside of a model. A model that rounds to 8 bits inside, or one that has a step,
// makes much more of it. `found` is what RunRows gives for `inputs`; the last run is with them again.
absl::StatusOr<std::vector<double>> Conditioning(const GivenInputs& inputs,
                                                 const std::vector<NpyArray>& found,
                                                 runtime::Executor& executor);

// Interprets options.check on `inputs` and prints the relative error of each output of `found`, which
// RunRows returned for the same inputs. Returns 0 if each error is within the tolerance, or within three times the output's
// conditioning (above). Returns kUsage if the file is not the module's model, and otherwise a failure.
int CheckAgainstInterpreter(const RunOptions& options, const GivenInputs& inputs,
                            const std::vector<NpyArray>& found, runtime::Executor& executor,
                            const OutputOptions& output);

}  // namespace heddle::client
