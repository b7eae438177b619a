// Writes a trace while it is applied. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/cursor.h"
#include "compiler/schedule/replayer.h"
#include "compiler/schedule/trace.h"

namespace heddle::schedule {

// A program and the steps that made it. Each primitive (primitives/primitives.h) is a method that
// applies it, records the step, and returns what the primitive makes. A refused step changes
// nothing.
class Recorder {
 public:
  explicit Recorder(ir::Program program) : here_(std::move(program)) {}
  // Starts at the naive program of `known`, which remembers the results of steps. `known` must
  // outlive the recorder, and nobody may call its Begin meanwhile.
  explicit Recorder(Replayer& known) : known_(&known), at_(known.Begin()) {}

  absl::Status Do(Step step);

  absl::StatusOr<std::vector<Loop>> Split(const Loop& loop, std::vector<int64_t> factors);
  // A single loop stays as it is. FailedPrecondition if there is no loop.
  absl::StatusOr<Loop> Fuse(const std::vector<Loop>& loops);
  // Does nothing for fewer than two loops.
  absl::Status Reorder(const std::vector<Loop>& loops);
  absl::Status Parallel(const Loop& loop) { return Do(Primitive::kParallel, {loop.name}); }
  absl::Status Vectorize(const Loop& loop) { return Do(Primitive::kVectorize, {loop.name}); }
  absl::Status Unroll(const Loop& loop) { return Do(Primitive::kUnroll, {loop.name}); }
  absl::Status Bind(const Loop& loop, ir::LoopKind axis);
  absl::StatusOr<std::vector<Loop>> ComputeAt(const std::string& block, const Loop& loop);
  absl::StatusOr<std::vector<Loop>> ReverseComputeAt(const std::string& block, const Loop& loop);
  absl::Status ComputeInline(const std::string& block) {
    return Do(Primitive::kComputeInline, {block});
  }
  absl::StatusOr<NewBlock> CacheRead(const std::string& block, const std::string& buffer,
                                     ir::Scope scope);
  absl::StatusOr<NewBlock> CacheWrite(const std::string& block, ir::Scope scope);
  absl::Status SetScope(const std::string& block, ir::Scope scope);
  absl::Status Pack(const std::string& block, const std::string& buffer,
                    std::vector<int64_t> numbers) {
    return Do(Primitive::kPack, {block, buffer}, std::move(numbers));
  }
  absl::Status DecomposeReduction(const std::string& block, const Loop& loop) {
    return Do(Primitive::kDecomposeReduction, {block, loop.name});
  }
  // The block that keeps the name adds up the results of the other one, the partial block.
  struct Factored {
    std::string partial;
    std::vector<Loop> merge;  // around the block that keeps the name; the last one is reduced
  };
  absl::StatusOr<Factored> Rfactor(const std::string& block, const Loop& loop);
  // The stages, in the order of primitives.h.
  absl::StatusOr<std::vector<NewBlock>> Winograd(const std::string& block, int64_t m);
  absl::Status Tf32(const std::string& block) { return Do(Primitive::kTf32, {block}); }
  absl::Status Tensorize(const Loop& loop) { return Do(Primitive::kTensorize, {loop.name}); }

  const ir::Program& program() const { return last().program; }
  const Trace& trace() const { return trace_; }
  Trace TakeTrace() && { return std::move(trace_); }

 private:
  absl::Status Do(Primitive primitive, std::vector<std::string> names,
                  std::vector<int64_t> ints = {}) {
    return Do(Step{primitive, std::move(names), std::move(ints)});
  }
  // The result of the last step.
  const Rewritten& last() const { return known_ != nullptr ? at_->made : here_; }

  Replayer* known_ = nullptr;
  Replayer::State* at_ = nullptr;
  Rewritten here_;  // used without `known_`
  Trace trace_;
};

}  // namespace heddle::schedule
