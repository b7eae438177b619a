#include "tests/codegen/cuda/gpu_testing.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/codegen/backend.h"
#include "compiler/codegen/cuda/cuda_backend.h"
#include "compiler/codegen/cuda/locals.h"
#include "compiler/interpreter/interpreter.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/lower.h"
#include "compiler/runtime/cubins.h"
#include "compiler/schedule/trace.h"

namespace heddle::testing {

namespace {

absl::Status At(const absl::Status& status, const std::string& what) {
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

}  // namespace

namespace {

// What the back end makes of local buffers (locals.h) in a form that runs as plain loops: each
// gets a dimension for each thread axis, and is accessed at the thread that runs.
class ThreadDimensions {
 public:
  absl::StatusOr<ir::Program> Run(const ir::Program& program) {
    ir::Program result = program;
    absl::Status status;
    result.body = Launches(program.body, &status);
    if (!status.ok()) return status;
    return result;
  }

 private:
  ir::Stmt Launches(const ir::Stmt& s, absl::Status* status) {
    if (const auto* seq = ir::As<ir::Seq>(s)) {
      std::vector<ir::Stmt> stmts;
      for (const ir::Stmt& child : seq->stmts) stmts.push_back(Launches(child, status));
      return ir::MakeSeq(std::move(stmts));
    }
    if (const auto* alloc = ir::As<ir::Alloc>(s))
      return ir::MakeStmt(ir::Alloc{alloc->buffer, Launches(alloc->body, status)});
    const auto* loop = ir::As<ir::For>(s);
    if (loop == nullptr || !ir::IsGpuBlock(loop->kind)) return s;
    const auto spread = codegen::SpreadLocals(s);
    status->Update(spread.status());
    return spread.ok() ? Visit(*spread, 0) : s;
  }

  ir::Expr Access(const ir::Expr& e) const {
    return ir::RewriteExpr(e, [&](const ir::Expr& x) {
      const auto it =
          x->kind == ir::ExprKind::kLoad ? buffers_.find(x->buffer.get()) : buffers_.end();
      return it == buffers_.end() ? x : ir::Load(it->second, At(x->args));
    });
  }
  std::vector<ir::Expr> At(std::vector<ir::Expr> indices) const {
    indices.insert(indices.begin(), threads_, threads_ + 3);
    return indices;
  }

  ir::Stmt Visit(const ir::Stmt& s, int depth) {
    if (const auto* seq = ir::As<ir::Seq>(s)) {
      std::vector<ir::Stmt> stmts;
      for (const ir::Stmt& child : seq->stmts) stmts.push_back(Visit(child, depth));
      return ir::MakeSeq(std::move(stmts));
    }
    if (const auto* branch = ir::As<ir::If>(s))
      return ir::MakeStmt(ir::If{Access(branch->condition), Visit(branch->body, depth)});
    if (const auto* store = ir::As<ir::Store>(s)) {
      ir::Store moved{store->buffer, {}, Access(store->value)};
      for (const ir::Expr& index : store->indices) moved.indices.push_back(Access(index));
      if (auto it = buffers_.find(store->buffer.get()); it != buffers_.end())
        moved = {it->second, At(moved.indices), moved.value};
      return ir::MakeStmt(std::move(moved));
    }
    if (const auto* loop = ir::As<ir::For>(s)) {
      const bool thread = ir::IsGpuThread(loop->kind);
      const int axis = static_cast<int>(loop->kind) - static_cast<int>(ir::LoopKind::kThreadX);
      if (thread) threads_[axis] = ir::VarExpr(loop->var);
      ir::Stmt body = Visit(loop->body, depth + thread);
      if (thread) threads_[axis] = ir::Int(0);
      return ir::MakeStmt(ir::For{loop->var, loop->extent, loop->kind, std::move(body)});
    }
    const auto* alloc = ir::As<ir::Alloc>(s);
    if (alloc == nullptr) return s;
    if (alloc->buffer->scope != ir::Scope::kLocal || depth > 0)
      return ir::MakeStmt(ir::Alloc{alloc->buffer, Visit(alloc->body, depth)});
    auto own = std::make_shared<ir::Buffer>(*alloc->buffer);
    int64_t extents[3] = {1, 1, 1};
    ir::VisitStmt(alloc->body, [&](const ir::Stmt& x) {
      const auto* loop = ir::As<ir::For>(x);
      if (loop && ir::IsGpuThread(loop->kind)) {
        int64_t& extent =
            extents[static_cast<int>(loop->kind) - static_cast<int>(ir::LoopKind::kThreadX)];
        extent = std::max(extent, loop->extent);
      }
      return true;
    });
    own->shape.insert(own->shape.begin(), extents, extents + 3);
    buffers_[alloc->buffer.get()] = own;
    return ir::MakeStmt(ir::Alloc{own, Visit(alloc->body, depth)});
  }

  ir::Expr threads_[3] = {ir::Int(0), ir::Int(0), ir::Int(0)};
  ir::BufferMap buffers_;
};

}  // namespace

machine::TargetInfo GpuTarget(const std::string& arch) {
  return *codegen::DescribeTarget(*ParseTarget("cuda -arch=" + arch));
}

absl::StatusOr<ir::Program> LowerForGpu(const ir::Program& naive, const schedule::Trace& trace,
                                        const std::string& arch) {
  absl::StatusOr<ir::Program> scheduled = schedule::Replay(naive, trace);
  if (!scheduled.ok()) return At(scheduled.status(), "replay");
  if (absl::Status s = ir::Verify(*scheduled); !s.ok())
    return At(s, absl::StrCat("scheduled ", ir::Print(*scheduled)));
  pass::LowerOptions options;
  options.target = GpuTarget(arch);
  absl::StatusOr<ir::Program> lowered = pass::Lower(*scheduled, options);
  if (!lowered.ok()) return At(lowered.status(), "lower");
  return lowered;
}

absl::Status CheckGpuProgram(const ir::Program& naive, const ir::Program& lowered, uint64_t seed) {
  const std::vector<HostTensor> inputs = MakeInputs(naive, seed);
  std::vector<HostTensor> expected = MakeOutputs(naive), found = MakeOutputs(naive);
  HEDDLE_RETURN_IF_ERROR(RunInterpreter(naive, inputs, expected));
  absl::Status status = RunInterpreter(lowered, inputs, found, {.check_races = true});
  if (status.ok()) status = Compare(naive, expected, found);
  if (!status.ok()) return At(status, ir::Print(lowered));
  HEDDLE_ASSIGN_OR_RETURN(const ir::Program spread, ThreadDimensions().Run(lowered));
  found = MakeOutputs(naive);
  status = RunInterpreter(spread, inputs, found, {.check_races = true});
  if (status.ok()) status = Compare(naive, expected, found);
  return status.ok() ? status : At(status, absl::StrCat("with spread locals ", ir::Print(spread)));
}

bool HasNvrtc() { return codegen::CudaBackend().FindToolchain().ok(); }

absl::Status CompileForGpu(const std::vector<ir::Program>& lowered, const std::string& arch) {
  if (!HasNvrtc() || lowered.empty()) return absl::OkStatus();
  HEDDLE_ASSIGN_OR_RETURN(const Target target, ParseTarget("cuda -arch=" + arch));
  std::string source;
  codegen::CudaOptions options;
  options.source = &source;
  const auto artifact = codegen::CompileCuda(lowered, target, options);
  if (!artifact.ok()) return At(artifact.status(), source);
  for (const codegen::KernelInfo& kernel : artifact->kernels) {
    for (const runtime::GpuLaunch& launch : kernel.launches) {
      if (launch.registers <= 0 || launch.registers > 255)
        return absl::InternalError(absl::StrCat(launch.symbol, " has no report of its registers"));
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<std::string_view> cubins,
                          runtime::SplitCubins(artifact->shared_object));
  for (const std::string_view cubin : cubins) {
    if (!cubin.starts_with("\x7f"
                           "ELF"))
      return absl::InternalError("a cubin is no ELF file");
  }
  return absl::OkStatus();
}

}  // namespace heddle::testing
