// Random legal schedules, for tests of everything that comes after a schedule.
#include <algorithm>
#include <iterator>

#include "compiler/ir/verify/verifier.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/primitives/primitives.h"
#include "compiler/schedule/space.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

using ir::As;
using ir::For;
using ir::Stmt;

namespace {

// Attempts per wanted step: most random requests are refused.
constexpr int kAttemptsPerStep = 8;
// Loops longer than this are not unrolled or vectorized, to keep programs small.
constexpr int64_t kLongestCopied = 16;

// Draws steps that have a chance to be legal for one program.
class Drawer {
 public:
  Drawer(const ir::Program& program, Rng& rng) : program_(program), rng_(rng) {
    ir::VisitStmt(program.body, [&](const Stmt& s) {
      if (As<For>(s)) loops_.push_back(s);
      return true;
    });
    blocks_ = AllBlocks(program.body);
  }

  Step Draw() {
    switch (Below(20)) {
      case 0:
      case 1:
      case 2:
        return DrawSplit();
      case 3:
        return DrawFuse();
      case 4:
      case 5:
        return DrawReorder();
      case 6:
      case 7:
        return {Primitive::kComputeAt, {AnyBlock(), AnyLoop()}, {}};
      case 8:
      case 9:
        return DrawReverseComputeAt();
      case 10:
        return {Primitive::kComputeInline, {AnyBlock()}, {}};
      case 11:
        return {Primitive::kReverseComputeInline, {AnyBlock()}, {}};
      case 12:
        return DrawCacheRead();
      case 13:
        return {Primitive::kCacheWrite, {AnyBlock(), AnyScope()}, {}};
      case 14:
        return DrawOfBlock(Primitive::kDecomposeReduction);
      case 15:
        return DrawOfBlock(Primitive::kRfactor);
      case 16:
        return {Primitive::kParallel, {AnyLoop()}, {}};
      case 17:
        return {Primitive::kVectorize, {AnyShortLoop()}, {}};
      case 18:
        return {Primitive::kUnroll, {AnyShortLoop()}, {}};
      default:
        if (Below(2)) return {Primitive::kSetScope, {AnyBlock(), AnyScope()}, {}};
        return {Primitive::kBind, {AnyLoop(), AnyAxis()}, {}};
    }
  }

 private:
  int64_t Below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(rng_); }
  const For& PickLoop() { return *As<For>(loops_[Below(static_cast<int64_t>(loops_.size()))]); }
  const Path& PickBlock() { return blocks_[Below(static_cast<int64_t>(blocks_.size()))]; }
  std::string AnyLoop() { return PickLoop().var->name; }
  std::string AnyBlock() { return PickBlock().block().name; }
  std::string AnyShortLoop() {
    const For* loop = &PickLoop();
    for (int tries = 0; tries < 8 && loop->extent > kLongestCopied; ++tries) loop = &PickLoop();
    return loop->var->name;
  }
  std::string AnyScope() {
    static const char* const kScopes[] = {"local", "global", "local", "shared"};
    return kScopes[Below(std::size(kScopes))];
  }
  std::string AnyAxis() {
    static const char* const kAxes[] = {"blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.y",
                                        "vthread"};
    return kAxes[Below(std::size(kAxes))];
  }

  Step DrawSplit() {
    const For& loop = PickLoop();
    int64_t inner = 1 + Below(std::min<int64_t>(loop.extent, 8));
    if (Below(3) != 0) {
      while (loop.extent % inner != 0) --inner;
    }
    int64_t outer = (loop.extent + inner - 1) / inner;
    Step step{Primitive::kSplit, {loop.var->name}, {}};
    if (Below(4) == 0 && outer > 1) {
      int64_t middle = 1 + Below(outer);
      while (outer % middle != 0) --middle;
      step.ints = {outer / middle, middle, inner};
    } else {
      step.ints = {outer, inner};
    }
    return step;
  }

  // The loop and those directly nested below it.
  std::vector<std::string> Chain(const For& top) {
    std::vector<std::string> chain{top.var->name};
    for (const auto* loop = As<For>(top.body); loop != nullptr; loop = As<For>(loop->body)) {
      chain.push_back(loop->var->name);
    }
    return chain;
  }

  Step DrawFuse() {
    std::vector<std::string> chain = Chain(PickLoop());
    chain.resize(std::min<size_t>(chain.size(), 2 + static_cast<size_t>(Below(2))));
    return {Primitive::kFuse, chain, {}};
  }

  Step DrawReorder() {
    std::vector<std::string> chain = Chain(PickLoop());
    std::shuffle(chain.begin(), chain.end(), rng_);
    size_t keep = 2 + static_cast<size_t>(Below(static_cast<int64_t>(chain.size()) + 1));
    chain.resize(std::min(chain.size(), keep));
    return {Primitive::kReorder, chain, {}};
  }

  Step DrawReverseComputeAt() {
    const ir::Block& consumer = PickBlock().block();
    // Half of the time a loop around one of its producers.
    std::vector<std::string> loops;
    for (const Path& path : blocks_) {
      if (!Reads(consumer, path.block().store.buffer.get())) continue;
      for (const For* loop : path.Loops()) loops.push_back(loop->var->name);
    }
    std::string loop =
        loops.empty() || Below(2) ? AnyLoop() : loops[Below(static_cast<int64_t>(loops.size()))];
    return {Primitive::kReverseComputeAt, {consumer.name, loop}, {}};
  }

  Step DrawCacheRead() {
    const ir::Block& reader = PickBlock().block();
    std::vector<std::string> buffers;
    ForEachLoad(reader, [&](const ir::Expr& load) { buffers.push_back(load->buffer->name); });
    std::string buffer =
        buffers.empty() ? "none" : buffers[Below(static_cast<int64_t>(buffers.size()))];
    return {Primitive::kCacheRead, {reader.name, buffer, AnyScope()}, {}};
  }

  Step DrawOfBlock(Primitive primitive) {
    const Path& path = PickBlock();
    std::vector<const For*> loops = path.Loops();
    std::string loop =
        loops.empty() ? AnyLoop() : loops[Below(static_cast<int64_t>(loops.size()))]->var->name;
    return {primitive, {path.block().name, loop}, {}};
  }

  const ir::Program& program_;
  Rng& rng_;
  std::vector<Stmt> loops_;
  std::vector<Path> blocks_;
};

// Rules of GPU programs (threads inside blocks, shared memory inside blocks) concern the program as
// a whole; no primitive can promise them.
bool NeedsWholeCheck(const Step& step) {
  return step.primitive == Primitive::kBind ||
         std::find(step.names.begin(), step.names.end(), "shared") != step.names.end();
}

bool HasGpuNotions(const Trace& trace) {
  return std::any_of(trace.steps.begin(), trace.steps.end(), NeedsWholeCheck);
}

}  // namespace

absl::StatusOr<Trace> RandomTrace(const ir::Program& naive, int max_steps, Rng& rng) {
  Trace trace;
  ir::Program program = naive;
  for (int attempt = 0; attempt < kAttemptsPerStep * max_steps; ++attempt) {
    if (static_cast<int>(trace.steps.size()) >= max_steps) break;
    Drawer drawer(program, rng);
    Step step = drawer.Draw();
    auto next = ApplyStep(program, step);
    if (!next.ok()) {
      if (next.status().code() == absl::StatusCode::kInternal) return next.status();
      continue;
    }
    if ((HasGpuNotions(trace) || NeedsWholeCheck(step)) && !ir::Verify(next->program).ok())
      continue;
    trace.steps.push_back(std::move(step));
    program = std::move(next->program);
  }
  return trace;
}

}  // namespace heddle::schedule
