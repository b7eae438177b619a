#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// Remembers what operators give for constants, for many graphs that share these constants, such as the
// candidates of a search. It keeps the constants themselves, too. Several threads may use it at once.
class FoldMemo {
 public:
  // The result of such a node for these operands; nullopt if it is not known.
  std::optional<TensorData> Find(const Node& node, const std::vector<TensorData>& operands) const;
  // Keeps the result and returns it, or the one that is known already, which another thread may have computed.
  TensorData Keep(const Node& node, const std::vector<TensorData>& operands, TensorData result);

 private:
  struct Entry {
    std::vector<TensorData> operands;  // keeps their addresses, which are in the key, in use
    TensorData result;
  };
  mutable absl::Mutex mutex_;
  std::map<std::string, Entry> entries_
      ABSL_GUARDED_BY(mutex_);  // by operator, attributes and operands
};

// After: a node whose operands are all constants is a constant, unless computing it would take
// seconds or its result would be much larger than its operands. A graph output stays the output of
// a node, a copy of the constant. With `memo`, which is optional, the result is the same.
absl::StatusOr<Graph> FoldConstants(const Graph& graph, FoldMemo* memo = nullptr);

}  // namespace heddle::graph
