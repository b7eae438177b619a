// Strings that come in from outside. Internal to the importer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/onnx/model.h"
#include "compiler/onnx/problems.h"

namespace heddle::graph {

// What one input of strings is compared with.
struct StringKeys {
  std::map<std::string, int64_t> codes;  // at least one; the codes of a model are distinct

  // Bytes of an element of the input: one more than the longest key, so that no longer text equals one.
  int64_t Width() const;
};
using StringInputs = std::map<std::string, StringKeys>;

// A module has no strings. A model does two things with those of its inputs: it moves them about, and it compares them with keys,
// in encoders. So inside of the graph, a string is the code of the key that it equals, an i64, or -1 if it equals none. This function
// makes the model say so, before it is checked:
// - inputs of strings, and what only moves them about, are declared as int64;
// - keys of OneHotEncoder and LabelEncoder become codes; a CategoryMapper from strings becomes a LabelEncoder.
// Whatever else reads such a string is reported, and then the model stays as it is. Returns the inputs with their keys.
StringInputs CodeStrings(Model& model, Problems& problems);

// The codes i64 [..] of an input of strings, u8 [.., width], whose elements are texts with zeros behind them. Each byte of a text is
// compared with that of each key. Unimplemented: that takes more than kMostComparisons (node.h).
absl::StatusOr<ValueId> EmitCodes(GraphBuilder& out, ValueId bytes, const StringKeys& keys);

}  // namespace heddle::graph
