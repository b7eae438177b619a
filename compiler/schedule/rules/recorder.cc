#include "compiler/schedule/rules/recorder.h"

#include "base/status_macros.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

namespace {

std::vector<std::string> NamesOf(const std::vector<Loop>& loops) {
  std::vector<std::string> names;
  names.reserve(loops.size());
  for (const Loop& loop : loops) names.push_back(loop.name);
  return names;
}

}  // namespace

absl::Status Recorder::Do(Step step) {
  if (known_ != nullptr) {
    Replayer::State* next = known_->Next(at_, step);
    HEDDLE_RETURN_IF_ERROR(next->status);
    at_ = next;
  } else {
    HEDDLE_ASSIGN_OR_RETURN(here_, ApplyStep(here_.program, step));
  }
  trace_.steps.push_back(std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Loop>> Recorder::Split(const Loop& loop, std::vector<int64_t> factors) {
  HEDDLE_RETURN_IF_ERROR(Do(Primitive::kSplit, {loop.name}, std::move(factors)));
  return last().loops;
}

absl::StatusOr<Loop> Recorder::Fuse(const std::vector<Loop>& loops) {
  if (loops.empty()) return absl::FailedPreconditionError("no loop to fuse");
  if (loops.size() == 1) return loops[0];
  HEDDLE_RETURN_IF_ERROR(Do(Primitive::kFuse, NamesOf(loops)));
  return last().loops[0];
}

absl::Status Recorder::Reorder(const std::vector<Loop>& loops) {
  return loops.size() < 2 ? absl::OkStatus() : Do(Primitive::kReorder, NamesOf(loops));
}

absl::Status Recorder::Bind(const Loop& loop, ir::LoopKind axis) {
  return Do(Primitive::kBind, {loop.name, std::string(ir::Name(axis))});
}

absl::StatusOr<std::vector<Loop>> Recorder::ComputeAt(const std::string& block, const Loop& loop) {
  HEDDLE_RETURN_IF_ERROR(Do(Primitive::kComputeAt, {block, loop.name}));
  return last().loops;
}

absl::StatusOr<std::vector<Loop>> Recorder::ReverseComputeAt(const std::string& block,
                                                             const Loop& loop) {
  HEDDLE_RETURN_IF_ERROR(Do(Primitive::kReverseComputeAt, {block, loop.name}));
  return last().loops;
}

absl::StatusOr<NewBlock> Recorder::CacheRead(const std::string& block, const std::string& buffer,
                                             ir::Scope scope) {
  HEDDLE_RETURN_IF_ERROR(Do(Primitive::kCacheRead, {block, buffer, ScopeWord(scope)}));
  return last().blocks[0];
}

absl::StatusOr<NewBlock> Recorder::CacheWrite(const std::string& block, ir::Scope scope) {
  HEDDLE_RETURN_IF_ERROR(Do(Primitive::kCacheWrite, {block, ScopeWord(scope)}));
  return last().blocks[0];
}

absl::Status Recorder::SetScope(const std::string& block, ir::Scope scope) {
  return Do(Primitive::kSetScope, {block, ScopeWord(scope)});
}

absl::StatusOr<Recorder::Factored> Recorder::Rfactor(const std::string& block, const Loop& loop) {
  HEDDLE_RETURN_IF_ERROR(Do(Primitive::kRfactor, {block, loop.name}));
  return Factored{last().blocks[0].name, last().loops};
}

absl::StatusOr<std::vector<NewBlock>> Recorder::Winograd(const std::string& block, int64_t m) {
  HEDDLE_RETURN_IF_ERROR(Do(Primitive::kWinograd, {block}, {m}));
  return last().blocks;
}

}  // namespace heddle::schedule
