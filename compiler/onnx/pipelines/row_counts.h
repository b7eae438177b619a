// Where a model asks how many rows there are. Internal to the importer.
#pragma once

#include <set>
#include <string>

#include "compiler/onnx/format/onnx_format.pb.h"

namespace heddle::graph {

// The graph of an import has a fixed number of rows, in which a number that a model computes with cannot be told from one that it
// asked for. So the model itself is looked at.
struct RowCounts {
  // Whether what the model asks (Shape, Size) becomes nothing but shapes: it is moved about, and read as the shape of a Reshape, an Expand or
  // a ConstantOfShape. Then the model does the same for any number of rows. False also if a node may do something else for other
  // numbers: branches and loops, unless a Scan goes over constants.
  bool are_shapes = true;
  // Results of the ConstantOfShape nodes among them. Import keeps them as operators, since their rows would become numbers again if a node
  // that adds them up were computed at import.
  std::set<std::string> filled;
};

RowCounts CountRows(const onnx::GraphProto& graph);

}  // namespace heddle::graph
