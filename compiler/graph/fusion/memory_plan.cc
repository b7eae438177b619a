#include "compiler/graph/fusion/memory_plan.h"

#include <iterator>
#include <optional>
#include <set>

#include "base/alignment.h"

namespace heddle::graph {
namespace {

int64_t AlignedBytes(const Graph& graph, ValueId v) {
  const TensorType& type = graph.values[v].type;
  return AlignUp(NumElements(type) * ir::SizeOf(type.dtype));
}

// The free ranges of the arena by offset, with adjacent ranges joined. Allocation takes the
// smallest range that fits. If none does, the arena grows; a free range at its end is used and only
// the rest is added.
class Arena {
 public:
  int64_t Take(int64_t bytes) {
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second >= bytes && (best == free_.end() || it->second < best->second)) best = it;
    }
    if (best == free_.end()) {
      int64_t offset = size_;
      if (!free_.empty()) {
        auto last = std::prev(free_.end());
        if (last->first + last->second == size_) {
          offset = last->first;
          free_.erase(last);
        }
      }
      size_ = offset + bytes;
      return offset;
    }
    const auto [offset, length] = *best;
    free_.erase(best);
    if (length > bytes) free_[offset + bytes] = length - bytes;
    return offset;
  }

  void Give(int64_t offset, int64_t bytes) {
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && offset + bytes == next->first) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      auto previous = std::prev(next);
      if (previous->first + previous->second == offset) {
        previous->second += bytes;
        return;
      }
    }
    free_[offset] = bytes;
  }

  int64_t size() const { return size_; }

 private:
  std::map<int64_t, int64_t> free_;
  int64_t size_ = 0;
};

}  // namespace

MemoryPlan PlanMemory(const FusedGraph& fused, const MemoryPlanOptions& options) {
  const Graph& graph = fused.graph;
  std::set<ValueId> graph_outputs;  // their memory belongs to the model, not to the arena
  for (ValueId v : graph.outputs) graph_outputs.insert(fused.MemoryOf(v));
  std::map<ValueId, int> reads_left;
  for (const Group& group : fused.groups) {
    for (ValueId v : group.inputs) ++reads_left[fused.MemoryOf(v)];
  }
  MemoryPlan plan;
  Arena arena;
  for (size_t g = 0; g < fused.groups.size(); ++g) {
    const Group& group = fused.groups[g];
    std::set<ValueId> overwritten;
    // The place of an input that `output` may take over. The input must not be read later, nor as
    // another input of this group.
    const auto in_place = [&](int output) -> std::optional<int64_t> {
      if (!options.share || options.may_overwrite.empty()) return std::nullopt;
      for (const auto& [written, read] : options.may_overwrite[g]) {
        if (written != output) continue;
        const ValueId v = fused.MemoryOf(group.inputs[static_cast<size_t>(read)]);
        const auto it = plan.offsets.find(v);
        if (it == plan.offsets.end() || reads_left[v] != 1 || overwritten.count(v)) continue;
        if (AlignedBytes(graph, v) !=
            AlignedBytes(graph, group.outputs[static_cast<size_t>(output)]))
          continue;
        overwritten.insert(v);
        return it->second;
      }
      return std::nullopt;
    };
    for (size_t o = 0; o < group.outputs.size(); ++o) {
      const ValueId v = group.outputs[o];
      if (graph_outputs.count(v)) continue;
      const int64_t bytes = AlignedBytes(graph, v);
      plan.unshared_bytes += bytes;
      const std::optional<int64_t> place = in_place(static_cast<int>(o));
      plan.in_place += place.has_value();
      plan.offsets[v] = place ? *place : arena.Take(bytes);
    }
    for (ValueId input : group.inputs) {
      const ValueId v = fused.MemoryOf(input);
      if (--reads_left[v] > 0 || !options.share || overwritten.count(v)) continue;
      if (auto it = plan.offsets.find(v); it != plan.offsets.end())
        arena.Give(it->second, AlignedBytes(graph, v));
    }
    // A result that nobody reads keeps its place. Dead code is removed before.
  }
  plan.arena_bytes = arena.size();
  return plan;
}

int64_t InferenceBytes(const FusedGraph& fused) {
  int64_t bytes = PlanMemory(fused).arena_bytes;
  std::set<const char*> constants;  // values may share their bytes
  for (const auto& [v, data] : fused.graph.constants) {
    if (constants.insert(data.bytes->data()).second)
      bytes += static_cast<int64_t>(data.bytes->size());
  }
  for (const auto* values : {&fused.graph.inputs, &fused.graph.outputs}) {
    for (ValueId v : *values) bytes += AlignedBytes(fused.graph, v);
  }
  return bytes;
}

}  // namespace heddle::graph
