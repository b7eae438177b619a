#include "compiler/codegen/workspace.h"

#include "compiler/ir/visit.h"

namespace heddle::codegen {

namespace {

struct Planner {
  WorkspacePlan plan;
  int threads;
  int64_t stack = 0;

  void Visit(const ir::Stmt& s, bool in_parallel) {
    auto* loop = ir::As<ir::For>(s);
    in_parallel |= loop && loop->kind == ir::LoopKind::kParallel;
    if (auto* alloc = ir::As<ir::Alloc>(s)) Assign(*alloc->buffer, in_parallel);
    ir::ForEachChild(s, [&](const ir::Stmt& child) { Visit(child, in_parallel); });
  }

  void Assign(const ir::Buffer& buffer, bool in_parallel) {
    int64_t size = PaddedSize(buffer);
    bool private_to_thread = in_parallel || buffer.scope == ir::Scope::kLocal;
    if (private_to_thread && size <= kMaxStackBuffer && stack + size <= kMaxStackTotal) {
      stack += size;
      plan.placements[&buffer] = {Place::kStack, 0};
      return;
    }
    plan.placements[&buffer] = {in_parallel ? Place::kWorkspacePerWorker : Place::kWorkspace,
                                plan.bytes};
    plan.bytes += in_parallel ? size * threads : size;
  }
};

}  // namespace

int64_t PaddedSize(const ir::Buffer& buffer) { return AlignUp(buffer.SizeBytes()); }

WorkspacePlan PlanWorkspace(const ir::Program& program, int threads) {
  Planner planner{.plan = {}, .threads = threads};
  planner.Visit(program.body, false);
  return std::move(planner.plan);
}

}  // namespace heddle::codegen
