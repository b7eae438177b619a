// Replaces the calls of a model's own functions. Internal to the importer.
#pragma once

#include "compiler/onnx/model.h"
#include "compiler/onnx/problems.h"

namespace heddle::graph {

// Afterwards, no node of the graph or of its subgraphs calls a function of the model:
// - a call is replaced by the nodes of the function, and their calls are replaced in turn;
// - operands and results get the names of the call, and all other names are new;
// - an attribute that refers to one of the function has the value of the call, or the function's
//   default, or is left out;
// - every node from a function keeps the opset that the function imports (Model::Opset).
// Reports as invalid: functions that call themselves or are defined twice, calls with operands,
// results or attributes that the function does not have, and names that a function uses without
// defining them. Such calls stay. Reports as unsupported what becomes too large.
void InlineFunctions(Model& model, Problems& problems);

}  // namespace heddle::graph
