// Strings that a model gives out of a list of its own, such as class labels. Internal to the importer.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/onnx/model.h"
#include "compiler/onnx/problems.h"

namespace heddle::graph {

// A list of strings, which many values may share.
using StringList = std::shared_ptr<const std::vector<std::string>>;
using StringLists = std::map<std::string, StringList>;  // by the name of a value

// Modules have no strings. Where a model's graph gives strings out of a list, the module gives their
// places in the list, from 0 on, as int64. This function makes the model say so, before it is checked:
// - the results of classifiers with string labels, of encoders that give strings, and what only moves
//   these results about (Reshape, Identity, ..), are declared as int64;
// - a list of strings that is an initializer, and that nodes only pick from, becomes the numbers from 0
//   on.
// - encoders that read these results look up places instead of strings.
// Operators whose attributes hold the list give numbers by their translation. All other strings stay,
// and the checker refuses them. An encoder of strings in a tensor is reported.
//
// Returns the list of each value of the model's graph that holds places of one.
StringLists NumberLabels(Model& model, Problems& problems);

}  // namespace heddle::graph
