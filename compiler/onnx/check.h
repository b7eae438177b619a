// Checks a model against the ONNX standard. Internal to the importer.
#pragma once

#include <map>
#include <string>

#include "compiler/onnx/model.h"
#include "compiler/onnx/problems.h"

namespace heddle::graph {

// Element types (TensorProto::DataType) of the values of a graph; 0 where the standard does not tell,
// and for sequences and optionals.
using ElementTypesByName = std::map<std::string, int>;
// Those of the model's graph and of each subgraph, which has its own values only.
using ElementTypesByGraph = std::map<const onnx::GraphProto*, ElementTypesByName>;

// Reports everything that breaks the rules of the model's opset or is out of reach of the importer,
// before any node is translated:
// - opsets that are missing, too new, or below 1; operators that do not exist in the opset, have no
//   translation, or belong to another domain;
// - attributes that the opset does not know, of the wrong type, or missing; too few or too many
//   operands; element types that the operator does not take, or Heddle does not have;
// - names that are used before they are defined, never defined, or defined twice, with the scopes of
//   subgraphs; declared element types that contradict the computed ones;
// - tensors in other files, and parts of the file that belong to a newer version of the format.
// Shapes are checked during translation. So is what a subgraph asks for and Heddle does not have,
// because the subgraph may be a branch that is never taken. Functions are inlined before (inline.h).
ElementTypesByGraph CheckModel(const Model& model, Problems& problems);

}  // namespace heddle::graph
