// The graph: an imported network as operators over shaped tensors. It is immutable once built; a
// pass takes a graph and returns one. The operators are our own (op_kind.h lists them), not ONNX's:
// the importer translates and decomposes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/files/shared_bytes.h"
#include "compiler/graph/core/attributes.h"
#include "compiler/graph/core/op_kind.h"
#include "compiler/ir/ir.h"

namespace heddle::graph {

// A type without elements is that of a constant, of an input that no node reads, or of an output that
// is such a constant: nodes have only operands and results with elements.
struct TensorType {
  ir::DType dtype = ir::DType::kF32;
  Shape shape;  // every extent is known
  bool operator==(const TensorType&) const = default;
};
int64_t NumElements(const TensorType& type);  // saturates at INT64_MAX
// InvalidArgument: an extent is negative, or there are more elements than the loop IR allows
// (2^40).
absl::Status CheckSize(const TensorType& type);
std::string ToText(const TensorType& type);  // "f32[1,3,224,224]"

// A constant: dense row-major, native byte order, shared between graphs. Large ones are mapped files.
struct TensorData {
  TensorType type;
  SharedBytes bytes;
};

using ValueId = int32_t;  // index into Graph::values

struct Value {
  // Unique; the model's own name if it has one. An output may have the name of an input: a model's
  // input may be its output, too.
  std::string name;
  TensorType type;
};

struct Node {
  OpKind kind{};
  std::string name;  // unique; used in messages
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Attrs attrs;
};

// An output whose extent in dimension `axis` depends on data. Its type has the largest possible extent;
// what lies behind the extent has no meaning. Both numbers are positions in Graph::outputs.
struct OutputLength {
  int output = 0;
  int axis = 0;
  int length = 0;  // of the output that holds the extent, an i64 scalar
};

// Names for what an input or output holds, and values that it may hold.
struct TensorNames {
  // A u8 tensor may hold texts. Its last dimension then holds the bytes of one text, filled with zeros; a longer text is cut. A
  // table has one cell for each text, so this dimension is no part of the table's shape.
  bool text = false;
  // What each element of a row is called: a row has the elements of one index of dimension 0. Empty: they have no names.
  std::vector<std::string> columns = {};
  // What integers stand for: labels[k] is the meaning of the value k. Empty: a value means itself.
  std::vector<std::string> labels = {};
  // Inputs of f32 only: for each element of a row, finite values that lie on both sides of what the model compares it with, so that rows
  // drawn from them go through all of the model. An element without values may be any number; empty: so may all. At most kMostSamples.
  std::vector<std::vector<float>> samples = {};
  bool operator==(const TensorNames&) const = default;
};

// How the inputs and outputs are read as tables. No operator and no workload depends on it.
struct Tables {
  // Dimension 0 of every input and output counts the same rows, and what outputs have for a row depends on no other row.
  bool independent_rows = false;
  std::vector<TensorNames> inputs = {}, outputs = {};  // empty, or one for each input or output
  // Empty, or the graph holds the model once for each of these numbers of rows, largest first (row_blocks.h), at most kMostRowBlocks
  // (base/vocabulary/row_blocks.h). Inputs and outputs are those of the first block of rows, then those of the next one, and so on.
  std::vector<int64_t> blocks = {};
  bool operator==(const Tables&) const = default;
};
inline constexpr size_t kMostNames = size_t{1} << 20;  // columns or labels of a tensor
inline constexpr size_t kMostNameBytes = 1024;         // of one of them
inline constexpr size_t kMostSamples = size_t{1}
                                       << 16;  // values of a tensor (TensorNames::samples)

// Invariants (CheckGraph): nodes are in topological order; every value is an input, a constant, or
// one node's output; types and attributes agree with the operators' definitions; names are unique.
struct Graph {
  std::vector<Value> values;
  std::map<ValueId, TensorData> constants;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;  // of the model, and behind them those that only hold lengths
  std::vector<Node> nodes;
  std::vector<OutputLength> lengths = {};
  Tables tables = {};

  // The number of outputs that the model itself has.
  int NumResults() const;
};
absl::Status CheckGraph(const Graph& graph);
// The part of CheckGraph that is about `tables`. InvalidArgument: names do not fit the tensor, are too many or too long,
// rows cannot be independent, or blocks differ in more than their rows.
absl::Status CheckTables(const Graph& graph);
// One line per node: %3:f32[..] = conv2d(%1, %2) {strides=[2,2]}
std::string Print(const Graph& graph);

}  // namespace heddle::graph
