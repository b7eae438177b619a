// What an ONNX file holds, as far as it can be told without translating it. Any file that parses
// has a summary, so that a refused model can be looked at, too.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/onnx/import.h"

namespace heddle::graph {

struct OnnxSummary {
  struct Value {
    std::string name;
    std::string type;   // "float"; "sequence" and the like for what is no tensor
    std::string shape;  // "[batch,3,224,224]"
  };
  struct Opset {
    std::string domain;  // "ai.onnx" is the standard's
    int64_t version = 0;
  };
  struct Operator {
    std::string name;
    std::string domain;  // empty: the standard's
    int nodes = 0;       // in the graph, its subgraphs and its functions
    bool known = false;  // the importer has a translation, or the model defines it as a function
    std::string limits;  // what the importer does not support of it; empty: nothing
  };

  std::string producer;  // "pytorch 2.4"; may be empty
  int64_t ir_version = 0;
  std::vector<Opset> opsets;
  std::vector<Value> inputs;  // without those that have an initializer; with the seed, if any
  std::vector<Value> outputs;
  std::vector<Operator> operators;  // the most frequent first
  int functions = 0;                // that the model defines
  // Constants of the file, wherever they are stored.
  int64_t parameters = 0;  // elements
  int64_t parameter_bytes = 0;
  std::map<std::string, int64_t> bytes_by_type;  // parts of parameter_bytes
};

// InvalidArgument: the bytes are not an ONNX file.
absl::StatusOr<OnnxSummary> SummarizeOnnx(std::string_view bytes);

// Shapes that would fit the inputs that the model and `options` leave open, by input name. They are
// guesses from the names of dimensions. None where a model of independent rows may have any number of them. Errors as SummarizeOnnx.
absl::StatusOr<std::map<std::string, std::vector<int64_t>>> LikelyShapes(
    std::string_view bytes, const ImportOptions& options);

}  // namespace heddle::graph
