// What a model says of each row of a table: labels, named scores, other numbers. Outputs of integers, such as labels, come first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/modules/npy.h"
#include "compiler/runtime/module.h"

namespace heddle::client {

class RowTable {
 public:
  // Whether all results have dimension 0 in common, and so rows.
  static bool HasRows(const std::vector<NpyArray>& results);
  // results[i] is of outputs[i]; HasRows(results).
  RowTable(const std::vector<runtime::TensorSpec>& outputs, const std::vector<NpyArray>& results);

  int64_t rows() const { return rows_; }
  // For people: at most 20 rows, and at most 12 columns of an output, and a line that tells how many there are more. `plain`: tab-separated, all of
  // them.
  std::string ToText(bool plain) const;
  // A column is named "output" if it has no name of its own and is alone, otherwise "output.name" or "output.0". The first column
  // is the number of the row, from 1. Floats have as many digits as it takes to read them back.
  std::string CsvHeader() const;
  std::string CsvRow(int64_t row) const;  // `row` from 0
  // {"schema_version", "row", "outputs": {output: number or label; [..]; or {name: ..} where columns have names}}. What is not
  // finite is null.
  std::string JsonRow(int64_t row) const;

 private:
  struct Output {
    std::string name;
    std::vector<std::string> columns;  // empty: they have no names
    std::vector<std::string> labels;
    int64_t width = 1;  // elements of a row
    std::string dtype;
    std::vector<double> floats;     // the elements, or
    std::vector<int64_t> integers;  // these; u64 by its bits
  };
  std::vector<std::string> Header(int64_t most) const;
  std::vector<std::string> Cells(int64_t row, int64_t most, bool exact) const;
  static std::string Text(const Output& output, size_t element, bool exact);
  static std::string Json(const Output& output, size_t element);

  std::vector<Output> outputs_;
  int64_t rows_ = 0;
};

}  // namespace heddle::client
