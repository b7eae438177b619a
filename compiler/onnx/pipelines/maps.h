// Maps that come in from outside. Internal to the importer.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/onnx/format/onnx_format.pb.h"

namespace heddle::graph {

// By the name of an input: what its columns are called.
using MapColumns = std::map<std::string, std::vector<std::string>>;

// A module has no maps. A model looks up a list of keys in a map that goes in, so the input becomes a table: one row for each map, and one
// column for each key, in the order of the list, which the caller fills with zeros where a map lacks the key. This function makes the model say
// so. It looks at inputs of maps to numbers that nothing reads but DictVectorizer, with one list of keys, or CastMap with
// map_form=SPARSE, whose keys are 0 to max_map - 1. Other inputs of maps stay, and the checker refuses them.
//
// The rows are open, as those of the first tensor among the inputs if there is one, else called "rows".
MapColumns TakeMaps(onnx::GraphProto& graph);

}  // namespace heddle::graph
