// Fixes the shapes of a model's inputs, and compares what a model declares with what it computes.
// Internal to the importer.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "compiler/graph/core/graph.h"
#include "compiler/onnx/import.h"
#include "compiler/onnx/model.h"

namespace heddle::graph {

// Makes every dimension of every input a number, from the options or from the model itself.
// InvalidArgument, in one line:
// - a name of the options is neither an input nor a symbolic dimension of one;
// - a symbolic dimension has several extents in the options;
// - a shape does not fit the declared one;
// - dimensions are still open: all such inputs are named, with a --shape that would fit.
absl::Status FixShapes(Model& model, const ImportOptions& options);

// The dimension that counts the rows of a pipeline (IsPipeline), if its number may be any: it comes first in every input, and nothing
// else is open. Empty if there is none, or if the options fix it.
std::string OpenRows(const Model& model, const ImportOptions& options);

// Shapes that would fit the inputs that FixShapes would name as open, by input name.
std::map<std::string, Shape> ProposeShapes(const Model& model, const ImportOptions& options);

// "[N,3]", as the model declares it; "[unknown rank]" without a shape.
std::string DeclaredShape(const onnx::ValueInfoProto& info);

// Whether a shape agrees with a declaration, as far as it fixes the dimensions. Old tools write 0 for
// an open dimension.
bool FitsDeclaration(const Shape& shape, const onnx::ValueInfoProto& info);

}  // namespace heddle::graph
