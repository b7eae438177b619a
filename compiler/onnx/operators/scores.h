// Operands, scores and labels of classical models. Internal to the importer.
#pragma once

#include <string_view>
#include <vector>

#include "compiler/classical/forest.h"
#include "compiler/onnx/node.h"

namespace heddle::graph {

// Operand 0 of a model as f32 [rows, features]; a vector is one row. ExactRowsOf leaves f64 as it is.
ValueId RowsOf(NodeImport& n);
ValueId ExactRowsOf(NodeImport& n);

// The attribute post_transform, which is a word.
classical::Transform TransformOf(NodeImport& n);
// Scores [rows, scores] after the transform.
ValueId Transformed(NodeImport& n, ValueId scores, classical::Transform transform);

// The labels of the classes: integers, or the places 0, 1, .. of strings (labels.h). Fails unless the
// node has one of the two attributes.
std::vector<int64_t> ClassLabels(NodeImport& n, std::string_view integers,
                                 std::string_view strings);
// Sets output 0 to the labels of the classes with the numbers `classes`, i64 [rows].
void SetLabels(NodeImport& n, ValueId classes, const std::vector<int64_t>& labels);
// The number of the highest score of each row, the first one of equal ones: i64 [rows].
ValueId Best(NodeImport& n, ValueId scores);

// Sets both outputs of a classifier with two classes and one score [rows, 1], that of the second class. The
// first class has the score 1 - score if `complement` is set, and then the second class has to exceed
// 0.5. Otherwise it has -score, and the second class has to exceed 0.
void SetTwoClasses(NodeImport& n, ValueId score, bool complement, classical::Transform transform,
                   const std::vector<int64_t>& labels);

}  // namespace heddle::graph
