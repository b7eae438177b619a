// Values of inputs that lead through all parts of a model: those that its trees compare them with. Internal to the importer.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/graph/core/graph.h"

namespace heddle::graph {

class NodeImport;

// Collects values while a model is translated.
class SampleTable {
 public:
  // `values`: of each element of a row of the input.
  void Add(const std::string& input, const std::vector<std::vector<double>>& values);
  // What TensorNames::samples says of an input. Empty, too, if it is no f32 or its rows have another number of elements than was added.
  std::vector<std::vector<float>> Of(const std::string& input, const TensorType& type) const;

 private:
  std::map<std::string, std::vector<std::vector<double>>> values_;
};

// Adds to `table` the values of inputs from which the columns of x [rows, columns] become these, one list for each column. They go back
// through scalers, imputers, selections and concatenations of columns, and casts. Behind any other operator, nothing is added.
void AddSamples(const NodeImport& n, ValueId x, std::vector<std::vector<double>> values,
                SampleTable* table);

}  // namespace heddle::graph
