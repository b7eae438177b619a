// Random numbers: operators that draw them take a seed, which is an input of the module. Internal to
// the importer.
#pragma once

#include <string>

#include "compiler/onnx/format/onnx_format.pb.h"

namespace heddle::graph {

// Adds an input, a scalar of type int64, to a model that may draw random numbers by a node anywhere in
// the file, and returns its name: "seed", or with a number if the model has that name. Otherwise
// returns nothing. A graph has the input only if something draws.
std::string AddSeedInput(onnx::ModelProto& model);

}  // namespace heddle::graph
