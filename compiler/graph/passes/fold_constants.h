#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// Remembers what operators give for constants, for many graphs that share these constants, such as the
// candidates of a search. It keeps the constants themselves, too. Not for several threads.
class FoldMemo {
 public:
  // The result of such a node for these operands; null if it is not known.
  const TensorData* Find(const Node& node, const std::vector<TensorData>& operands) const;
  void Keep(const Node& node, const std::vector<TensorData>& operands, const TensorData& result);

 private:
  struct Entry {
    std::vector<TensorData> operands;  // keeps their addresses, which are in the key, in use
    TensorData result;
  };
  std::map<std::string, Entry> entries_;  // by operator, attributes and operands
};

// After: a node whose operands are all constants is a constant, unless computing it would take
// seconds or its result would be much larger than its operands. A graph output stays the output of
// a node, a copy of the constant. With `memo`, which is optional, the result is the same.
absl::StatusOr<Graph> FoldConstants(const Graph& graph, FoldMemo* memo = nullptr);

}  // namespace heddle::graph
