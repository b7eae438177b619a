#include "compiler/schedule/rules/shared_steps.h"

#include "base/status_macros.h"
#include "compiler/schedule/rules/rules.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

namespace {

absl::Status VectorizeLast(const std::vector<Loop>& loops, int64_t lanes, Recorder& out) {
  if (loops.empty()) return absl::FailedPreconditionError("one element has no loop to vectorize");
  const Loop& last = loops.back();
  const int64_t width = PowerOfTwoDivisor(last.extent, lanes);
  if (width == last.extent) return VectorizeLanes(last, out);
  if (width == 1) return absl::OkStatus();
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> parts,
                          out.Split(last, {last.extent / width, width}));
  return out.Vectorize(parts[1]);
}

absl::Status ScheduleAtRoot(const std::string& producer, const machine::TargetInfo& target,
                            Recorder& out) {
  HEDDLE_ASSIGN_OR_RETURN(const Path path, FindBlock(out.program().body, producer));
  StageView view;
  return ViewStage(path, &view) ? ApplyPlain(view, path.block(), target, out) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> Accumulate(const Stage& stage, Recorder& out) {
  if (stage.epilogue.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(const NewBlock copy,
                            out.CacheWrite(stage.view.block, ir::Scope::kLocal));
    return copy.name;
  }
  HEDDLE_RETURN_IF_ERROR(out.SetScope(stage.view.block, ir::Scope::kLocal));
  return stage.epilogue;
}

absl::Status PlaceProducers(const Stage& stage, const std::vector<ProducerPlace>& places,
                            const machine::TargetInfo& target, Recorder& out) {
  const int64_t lanes = LanesOf(target, stage.block->store.buffer->dtype);
  for (size_t i = 0; i < places.size(); ++i) {
    const std::string& producer = stage.producers[i];
    switch (places[i].kind) {
      case ProducerPlace::kInlined:
        HEDDLE_RETURN_IF_ERROR(out.ComputeInline(producer));
        break;
      case ProducerPlace::kAtRoot:
        HEDDLE_RETURN_IF_ERROR(ScheduleAtRoot(producer, target, out));
        break;
      case ProducerPlace::kInLoop: {
        HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> loops,
                                out.ComputeAt(producer, places[i].loop));
        HEDDLE_RETURN_IF_ERROR(VectorizeLast(loops, lanes, out));
        break;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status InlineProducers(const Stage& stage, Recorder& out) {
  for (const std::string& producer : stage.producers)
    HEDDLE_RETURN_IF_ERROR(out.ComputeInline(producer));
  return absl::OkStatus();
}

absl::Status FuseParallel(const std::vector<Loop>& loops, Recorder& out) {
  if (loops.empty()) return absl::OkStatus();
  HEDDLE_ASSIGN_OR_RETURN(const Loop fused, out.Fuse(loops));
  return out.Parallel(fused);
}

absl::Status UnrollAll(const std::vector<Loop>& loops, Recorder& out) {
  for (const Loop& loop : loops) HEDDLE_RETURN_IF_ERROR(out.Unroll(loop));
  return absl::OkStatus();
}

absl::Status VectorizeLanes(const Loop& loop, Recorder& out) {
  return loop.extent > 1 ? out.Vectorize(loop) : absl::OkStatus();
}

absl::Status UnrollTile(const std::vector<Loop>& tile, const Loop& lanes,
                        const std::vector<Loop>& copy, Recorder& out) {
  for (size_t k = 0; k < tile.size(); ++k)
    HEDDLE_RETURN_IF_ERROR(UnrollAll({tile[k], copy[k]}, out));
  HEDDLE_RETURN_IF_ERROR(VectorizeLanes(lanes, out));
  return VectorizeLanes(copy[tile.size()], out);
}

std::vector<Loop> Concat(std::initializer_list<absl::Span<const Loop>> parts) {
  size_t size = 0;
  for (const absl::Span<const Loop> part : parts) size += part.size();
  std::vector<Loop> all;
  all.reserve(size);
  for (const absl::Span<const Loop> part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace heddle::schedule
