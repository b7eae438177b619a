#include "compiler/codegen/workspace.h"

namespace heddle::codegen {

namespace {

struct Planner {
  WorkspacePlan plan;
  int threads;
  int64_t stack = 0;

  void Visit(const ir::Stmt& s, bool in_parallel) {
    if (auto* seq = ir::As<ir::Seq>(s)) {
      for (const ir::Stmt& child : seq->stmts) Visit(child, in_parallel);
    } else if (auto* loop = ir::As<ir::For>(s)) {
      Visit(loop->body, in_parallel || loop->kind == ir::LoopKind::kParallel);
    } else if (auto* branch = ir::As<ir::If>(s)) {
      Visit(branch->body, in_parallel);
    } else if (auto* alloc = ir::As<ir::Alloc>(s)) {
      Assign(*alloc->buffer, in_parallel);
      Visit(alloc->body, in_parallel);
    }
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

int64_t PaddedSize(const ir::Buffer& buffer) {
  return (buffer.SizeBytes() + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

WorkspacePlan PlanWorkspace(const ir::Program& program, int threads) {
  Planner planner{.plan = {}, .threads = threads};
  planner.Visit(program.body, false);
  return std::move(planner.plan);
}

}  // namespace heddle::codegen
