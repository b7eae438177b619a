// How a model's inputs and outputs are read as tables. Internal to the importer.
#pragma once

#include "compiler/graph/core/graph.h"
#include "compiler/onnx/model.h"
#include "compiler/onnx/pipelines/labels.h"
#include "compiler/onnx/pipelines/strings.h"

namespace heddle::graph {

// Whether the model is one of tables (Model::of_tables), and does the same for any number of rows (row_counts.h). A graph holds a fixed
// number of them, so it would not show that.
bool IsPipeline(const Model& model);

// The tables of `graph`, which was imported from `model`:
// - Outputs that hold places of a list of strings have its strings as labels (`lists`).
// - Outputs that hold a score for each class of a classifier or a ZipMap have the classes as names of their columns. Operators
//   that compute each element of a row by itself, or that norm a row, keep the names.
// - Inputs of strings are texts (`strings`).
// - The columns of an input that is a map in the file have its keys as names.
// - Of several inputs, each that has one column is named by its input, as exporters do that give each column an input.
// - Rows are independent if the operators say so (independent_rows.h).
//
// A model is a table if its inputs and outputs are vectors or matrices. Any other model has texts and labels only.
Tables TablesOf(const Model& model, const StringInputs& strings, const StringLists& lists,
                const Graph& graph);

}  // namespace heddle::graph
