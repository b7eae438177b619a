// Random numbers: operators that draw them take a seed, which is an input of the module. Internal to
// the importer.
#pragma once

#include <string>

#include "compiler/onnx/format/onnx_format.pb.h"

namespace heddle::graph {

// Adds an input, a scalar of type int64, to a model that has a node that draws random numbers, anywhere
// in the file, and returns its name: "seed", or with a number if the model has that name. Otherwise
// returns nothing.
std::string AddSeedInput(onnx::ModelProto& model);

}  // namespace heddle::graph
