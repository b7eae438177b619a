#include "compiler/driver/places.h"

#include <map>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/alignment.h"
#include "base/status_macros.h"

namespace heddle::internal {
namespace {

using graph::ValueId;
using runtime::BufferSlot;
using runtime::Place;

class Placer {
 public:
  Placer(const graph::FusedGraph& fused, const graph::MemoryPlan& plan)
      : fused_(fused), graph_(fused.graph), groups_(fused.groups), plan_(plan) {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      input_index_[graph_.inputs[i]] = static_cast<int64_t>(i);
    }
  }

  absl::StatusOr<Places> Run() {
    PlaceOutputs();
    for (const graph::Group& group : groups_) {
      for (const auto* values : {&group.inputs, &group.outputs}) {
        for (ValueId v : *values) HEDDLE_RETURN_IF_ERROR(Assign(v));
      }
    }
    for (const auto& [v, slot] : places_.copies) HEDDLE_RETURN_IF_ERROR(Assign(v));
    return std::move(places_);
  }

 private:
  int64_t Bytes(ValueId v) const {
    const graph::TensorType& type = graph_.values[v].type;
    return graph::NumElements(type) * ir::SizeOf(type.dtype);
  }

  bool IsGiven(ValueId v) const { return input_index_.contains(v) || graph_.constants.contains(v); }

  // Lets the producing kernel write an output of the model directly if possible.
  void PlaceOutputs() {
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId v = fused_.MemoryOf(graph_.outputs[i]);
      const BufferSlot slot{Place::kOutput, static_cast<int64_t>(i), Bytes(v)};
      if (slot.bytes == 0) continue;
      if (IsGiven(v) || written_.contains(v)) {
        places_.copies.push_back({v, slot});
      } else {
        written_[v] = slot;
      }
    }
  }

  absl::Status Assign(ValueId v) {
    if (places_.slots.contains(v)) return absl::OkStatus();
    HEDDLE_ASSIGN_OR_RETURN(places_.slots[v], SlotOf(fused_.MemoryOf(v)));
    return absl::OkStatus();
  }

  absl::StatusOr<BufferSlot> SlotOf(ValueId v) {
    if (const auto it = written_.find(v); it != written_.end()) return it->second;
    if (const auto it = input_index_.find(v); it != input_index_.end()) {
      return BufferSlot{Place::kInput, it->second, Bytes(v)};
    }
    if (const auto it = graph_.constants.find(v); it != graph_.constants.end()) {
      return BufferSlot{Place::kParam, ParamOffset(it->second), Bytes(v)};
    }
    const auto it = plan_.offsets.find(v);
    if (it == plan_.offsets.end()) {
      return absl::InternalError(
          absl::StrCat("value '", graph_.values[v].name, "' has no place in the memory plan"));
    }
    return BufferSlot{Place::kArena, it->second, Bytes(v)};
  }

  // Keys are views of the graph's constants, which outlive this object.
  int64_t ParamOffset(const graph::TensorData& constant) {
    const SharedBytes& bytes = constant.bytes;
    const auto [it, is_new] = param_offsets_.try_emplace(*bytes, AlignUp(params_end_));
    if (is_new) {
      places_.params.push_back(bytes);
      const graph::TensorType& type = constant.type;
      if (auto packed = runtime::FindPacking(*bytes, ir::Name(type.dtype), type.shape)) {
        packed->offset = it->second;
        places_.packed.push_back(*std::move(packed));
      }
      params_end_ = it->second + static_cast<int64_t>(bytes->size());
    }
    return it->second;
  }

  const graph::FusedGraph& fused_;
  const graph::Graph& graph_;
  const std::vector<graph::Group>& groups_;
  const graph::MemoryPlan& plan_;
  std::map<ValueId, int64_t> input_index_;
  std::map<ValueId, BufferSlot> written_;              // model outputs that a kernel writes
  std::map<std::string_view, int64_t> param_offsets_;  // views of places_.params
  int64_t params_end_ = 0;
  Places places_;
};

}  // namespace

absl::StatusOr<Places> AssignPlaces(const graph::FusedGraph& fused, const graph::MemoryPlan& plan) {
  return Placer(fused, plan).Run();
}

}  // namespace heddle::internal
