#include "compiler/codegen/cuda/emitter.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/codegen/cuda/launch.h"
#include "compiler/codegen/cuda/locals.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/overwrite.h"

namespace heddle::codegen {

using namespace ir;

namespace {

constexpr int64_t kWorkspaceAlignment = 256;

bool HasLaunch(const Stmt& s) {
  bool found = false;
  VisitStmt(s, [&](const Stmt& node) {
    const For* loop = As<For>(node);
    found |= loop && (IsGpuBlock(loop->kind) || IsGpuThread(loop->kind));
    return !found;
  });
  return found;
}

// The buffers that a launch needs from outside, in order of first appearance, and those among them
// that it writes.
struct Uses {
  std::vector<const Buffer*> buffers;
  std::unordered_set<const Buffer*> written;
};

Uses UsesOf(const Stmt& launch) {
  Uses uses;
  std::unordered_set<const Buffer*> seen;
  VisitStmt(launch, [&](const Stmt& s) {
    if (const Alloc* alloc = As<Alloc>(s)) seen.insert(alloc->buffer.get());
    return true;
  });
  const auto use = [&](const Buffer* buffer) {
    if (seen.insert(buffer).second) uses.buffers.push_back(buffer);
  };
  VisitStmt(launch, [&](const Stmt& s) {
    if (const Store* store = As<Store>(s)) {
      use(store->buffer.get());
      uses.written.insert(store->buffer.get());
    }
    return true;
  });
  VisitStmtExprs(launch, [&](const Expr& e) {
    VisitExpr(e, [&](const Expr& x) {
      if (x->kind == ExprKind::kLoad) use(x->buffer.get());
    });
  });
  return uses;
}

class ProgramEmitter {
 public:
  ProgramEmitter(const Program& program, const std::string& symbol, bool groups)
      : symbol_(symbol), groups_(groups) {
    int index = 0;
    for (const auto* list : {&program.inputs, &program.outputs}) {
      for (const BufferRef& buffer : *list) places_[buffer.get()] = {index++, 0};
    }
    // The caller may give these the same memory.
    for (const pass::Overwrite& pair : pass::FindOverwrites(program)) {
      overlapping_.insert(program.outputs[static_cast<size_t>(pair.output)].get());
      overlapping_.insert(program.inputs[static_cast<size_t>(pair.input)].get());
    }
  }

  absl::StatusOr<CudaKernel> Run(const Stmt& body) {
    HEDDLE_RETURN_IF_ERROR(Visit(body));
    HEDDLE_RETURN_IF_ERROR(EndSingle());
    return std::move(kernel_);
  }

 private:
  absl::Status Visit(const Stmt& s) {
    if (const Seq* seq = As<Seq>(s)) {
      for (const Stmt& child : seq->stmts) HEDDLE_RETURN_IF_ERROR(Visit(child));
      return absl::OkStatus();
    }
    if (const Alloc* alloc = As<Alloc>(s)) {
      Place(alloc->buffer.get(), alloc->buffer->SizeBytes());
      return Visit(alloc->body);
    }
    const For* loop = As<For>(s);
    if (loop && IsGpuBlock(loop->kind)) {
      HEDDLE_RETURN_IF_ERROR(EndSingle());
      return Launch(s);
    }
    if (HasLaunch(s)) return absl::UnimplementedError("a GPU launch inside a loop or a condition");
    single_.push_back(s);
    return absl::OkStatus();
  }

  void Place(const Buffer* buffer, int64_t bytes) {
    places_[buffer] = {-1, kernel_.workspace_bytes};
    kernel_.workspace_bytes +=
        (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  }

  absl::Status EndSingle() {
    if (single_.empty()) return absl::OkStatus();
    const Stmt s = MakeSeq(std::move(single_));
    single_.clear();
    return Launch(s);
  }

  absl::Status Launch(const Stmt& whole) {
    HEDDLE_ASSIGN_OR_RETURN(const Stmt s, SpreadLocals(whole));
    CudaLaunch launch(absl::StrCat(symbol_, "_", kernel_.launches.size()), groups_);
    const Uses uses = UsesOf(s);
    runtime::GpuLaunch& info = kernel_.launches.emplace_back();
    for (const Buffer* buffer : uses.buffers) {
      launch.AddParameter(*buffer, uses.written.count(buffer) > 0, !overlapping_.count(buffer));
      info.arguments.push_back(places_.at(buffer));
    }
    // Allocations of a single thread lie in the workspace, like all global memory.
    if (!HasLaunch(s)) {
      VisitStmt(s, [&](const Stmt& node) {
        const Alloc* alloc = As<Alloc>(node);
        if (alloc == nullptr || alloc->buffer->scope != Scope::kGlobal) return true;
        Place(alloc->buffer.get(), alloc->buffer->SizeBytes());
        launch.AddParameter(*alloc->buffer, true, true);
        info.arguments.push_back(places_.at(alloc->buffer.get()));
        return true;
      });
    }
    HEDDLE_RETURN_IF_ERROR(launch.Emit(s));
    // Memory that is named again is a map (runtime/cuda/device.h, CudaBox).
    for (const Buffer* buffer : launch.mapped()) info.arguments.push_back(places_.at(buffer));
    absl::StrAppend(&kernel_.source, launch.source());
    kernel_.demands.push_back(launch.demand());
    info.symbol = launch.symbol();
    info.grid = launch.grid();
    info.block = launch.block();
    info.static_shared_bytes = launch.static_shared_bytes();
    info.dynamic_shared_bytes = launch.dynamic_shared_bytes();
    return absl::OkStatus();
  }

  std::string symbol_;
  bool groups_;  // whether the target makes products of four warps
  CudaKernel kernel_;
  std::map<const Buffer*, runtime::GpuArgument> places_;
  std::unordered_set<const Buffer*> overlapping_;  // inputs and outputs that may share memory
  std::vector<Stmt> single_;  // statements for one thread, up to the next launch
};

}  // namespace

absl::StatusOr<CudaKernel> EmitCuda(const Program& lowered, const std::string& symbol,
                                    bool groups) {
  return ProgramEmitter(lowered, symbol, groups).Run(lowered.body);
}

}  // namespace heddle::codegen
