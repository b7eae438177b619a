#include "compiler/codegen/cuda/launch.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "compiler/ir/analysis/fetch.h"
#include "compiler/ir/visit.h"

namespace heddle::codegen {

using namespace ir;

namespace {

constexpr const char* kAxisNames[] = {"blockIdx.x",  "blockIdx.y",  "blockIdx.z",
                                      "threadIdx.x", "threadIdx.y", "threadIdx.z"};
// A launch must request more shared memory than this explicitly.
constexpr int64_t kMaxStaticShared = 48 << 10;
constexpr int64_t kSharedAlignment = 16;
constexpr int64_t kCounterBytes = 8;  // of a counter of arrived bytes
// The swaps of a panel follow the address: 8 rows of 128 bytes.

int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

int AxisOf(LoopKind kind) {
  if (!IsGpuBlock(kind) && !IsGpuThread(kind)) return -1;
  return static_cast<int>(kind) - static_cast<int>(LoopKind::kBlockX);
}

// Whether a statement contains a loop over a GPU axis or a barrier, so that it is not for one
// thread alone.
bool HasAxisOrBarrier(const Stmt& s) {
  bool found = false;
  VisitStmt(s, [&](const Stmt& node) {
    const For* loop = As<For>(node);
    found |= As<Barrier>(node) != nullptr || (loop && AxisOf(loop->kind) >= 0);
    return !found;
  });
  return found;
}

// Collects the loads that every evaluation of the expression makes.
void SureLoads(const Expr& e, std::vector<Expr>* loads) {
  if (e->kind == ExprKind::kLoad) return loads->push_back(e);
  const bool lazy =
      e->kind == ExprKind::kOp && (e->op == Op::kSelect || e->op == Op::kAnd || e->op == Op::kOr);
  for (size_t i = 0; i < e->args.size(); ++i) {
    if (!lazy || i == 0) SureLoads(e->args[i], loads);
  }
}

// The load whose value a copy stores; null if the value is not a copy. If the copy has a condition,
// and stores zero where it does not hold, `*on` gets the condition.
Expr CopiedLoad(const Expr& value, Expr* on) {
  if (value->kind == ExprKind::kLoad) return value;
  if (value->kind != ExprKind::kOp || value->op != Op::kSelect) return nullptr;
  const Expr& other = value->args[2];
  const bool zero = (other->kind == ExprKind::kFloat && other->float_value == 0 &&
                     !std::signbit(other->float_value)) ||
                    (other->kind == ExprKind::kInt && other->int_value == 0);
  if (!zero || value->args[1]->kind != ExprKind::kLoad) return nullptr;
  *on = value->args[0];
  return value->args[1];
}

}  // namespace

void CudaLaunch::Line(const std::string& text) {
  body_.append(static_cast<size_t>(indent_) * 2, ' ');
  absl::StrAppend(&body_, text, "\n");
}
void CudaLaunch::Open(const std::string& text) {
  Line(text + "{");
  ++indent_;
}
void CudaLaunch::Close() {
  --indent_;
  Line("}");
}

void CudaLaunch::AddParameter(const Buffer& buffer, bool written, bool alone) {
  const std::string name = exprs_.Declare(buffer.name);
  exprs_.Bind(&buffer, name);
  ++buffers_;
  absl::StrAppend(&parameters_, parameters_.empty() ? "" : ", ", written ? "" : "const ",
                  CudaType(buffer.dtype), alone ? "* __restrict__ " : "* ", name);
}

absl::Status CudaLaunch::Measure(const Stmt& s) {
  absl::Status status;
  int64_t words = 0;
  bool single = true;
  VisitStmt(s, [&](const Stmt& node) {
    if (const For* loop = As<For>(node)) {
      const int axis = AxisOf(loop->kind);
      if (axis >= 0) extents_[axis] = std::max(extents_[axis], loop->extent);
      demand_.tensor_cores |= loop->kind == LoopKind::kTensor;
      single &= axis < 0;
    }
    const Alloc* alloc = As<Alloc>(node);
    if (alloc == nullptr) return true;
    const Buffer& buffer = *alloc->buffer;
    if (buffer.scope == Scope::kLocal) words += (buffer.SizeBytes() + 3) / 4;
    if (buffer.scope == Scope::kShared) {
      const int64_t alignment = exprs_.UsesPanels(&buffer) ? kPanelAlignment : kSharedAlignment;
      shared_bytes_ = RoundUp(shared_bytes_, alignment);
      shared_[&buffer] = shared_bytes_;
      shared_bytes_ += RoundUp(buffer.SizeBytes(), kSharedAlignment);
    }
    if (buffer.scope == Scope::kGlobal && !exprs_.Knows(&buffer)) {
      status = absl::UnimplementedError(
          absl::StrCat("global memory ", buffer.name, " allocated inside a launch"));
    }
    return true;
  });
  for (Box& box : boxes_) {
    box.offset = RoundUp(shared_bytes_, kCounterBytes);
    shared_bytes_ = box.offset + box.buffer->shape[0] * kCounterBytes;
  }
  dynamic_ = shared_bytes_ > kMaxStaticShared;
  demand_.group_products = !groups_.empty();
  demand_.threads_per_block = extents_[3] * extents_[4] * extents_[5];
  for (int axis = 0; axis < 3; ++axis) demand_.block[axis] = extents_[3 + axis];
  demand_.shared_bytes = shared_bytes_;
  // A launch of a single thread may keep its buffers in memory.
  demand_.register_words = single ? 0 : words + TensorWords(s);
  for (int axis = 0; axis < 3; ++axis) demand_.blocks[axis] = extents_[axis];
  return status;
}

void CudaLaunch::FindAsync(const Stmt& s) {
  std::unordered_set<const Buffer*> written;
  VisitStmt(s, [&](const Stmt& node) {
    if (const Store* store = As<Store>(node)) written.insert(store->buffer.get());
    if (const Barrier* barrier = As<Barrier>(node)) staged_ |= barrier->late > 0;
    return true;
  });
  VisitStmt(s, [&](const Stmt& node) {
    const For* loop = As<For>(node);
    if (loop == nullptr || !IsGpuThread(loop->kind)) return true;
    std::unordered_map<const Buffer*, int> touches;
    VisitStmt(node, [&](const Stmt& x) {
      if (const Store* store = As<Store>(x)) ++touches[store->buffer.get()];
      return true;
    });
    VisitStmtExprs(node, [&](const Expr& e) {
      VisitExpr(e, [&](const Expr& x) {
        if (x->kind == ExprKind::kLoad) ++touches[x->buffer.get()];
      });
    });
    VisitStmt(node, [&](const Stmt& x) {
      const Store* store = As<Store>(x);
      if (store == nullptr || store->buffer->scope != Scope::kShared) return true;
      Expr on;
      const Expr load = CopiedLoad(store->value, &on);
      if (load && load->buffer->scope == Scope::kGlobal && !written.count(load->buffer.get()) &&
          (SizeOf(load->dtype) == 4 || IsHalf(load->dtype)) && touches[store->buffer.get()] == 1) {
        async_.insert(store);
      }
      return true;
    });
    return false;
  });
}

bool CudaLaunch::AsyncStore(const Store& store) {
  if (!async_.count(&store) || SizeOf(store.buffer->dtype) != 4) return false;
  Expr on;
  const Expr load = CopiedLoad(store.value, &on);
  const std::string to = exprs_.Access(*store.buffer, store.indices);
  const auto position = exprs_.analyzer().Mark();
  std::string condition;
  if (on) {
    condition = exprs_.Value(on);
    exprs_.analyzer().Assume(on);
  }
  const std::string from = exprs_.Access(*load->buffer, load->args);
  exprs_.analyzer().Restore(position);
  if (!on) {
    Line(absl::StrCat("h_async4(&", to, ", &", from, ", true);"));
    return true;
  }
  Open("");
  Line(absl::StrCat("const bool h_on = ", condition, ";"));
  Line(absl::StrCat("h_async4(&", to, ", h_on ? &", from, " : ", exprs_.NameOf(load->buffer.get()),
                    ", h_on);"));
  Close();
  return true;
}

absl::Status CudaLaunch::Emit(const Stmt& s) {
  FindAsync(s);
  if (use_groups_) FindGroups(s);
  if (!groups_.empty()) FindBoxes(s);
  HEDDLE_RETURN_IF_ERROR(Measure(s));
  if (dynamic_) {
    Line("extern __shared__ __align__(1024) unsigned char h_shared[];");
  }
  DeclareBoxes();
  HEDDLE_RETURN_IF_ERROR(Visit(s));
  source_ = absl::StrCat(functions_, BoxTable(), "extern \"C\" __global__ void __launch_bounds__(",
                         demand_.threads_per_block, ") ", symbol_, "(", parameters_, ") {\n", body_,
                         "}\n");
  return absl::OkStatus();
}

absl::Status CudaLaunch::Visit(const Stmt& s) {
  if (!staged_ || in_fetch_ || !IsFetch(s)) return VisitAny(s);
  in_fetch_ = true;
  HEDDLE_RETURN_IF_ERROR(VisitAny(s));
  in_fetch_ = false;
  if (!async_.empty()) Line("h_async_commit();");
  return absl::OkStatus();
}

absl::Status CudaLaunch::VisitAny(const Stmt& s) {
  if (const For* loop = As<For>(s); loop && WarpReduction(*loop)) return absl::OkStatus();
  if (!guarded_ && !As<Seq>(s) && !As<Alloc>(s) && !HasAxisOrBarrier(s)) {
    std::vector<std::string> first;
    for (int axis = 0; axis < kAxes; ++axis) {
      if (extents_[axis] > 1 && !bound_[axis])
        first.push_back(absl::StrCat(kAxisNames[axis], " == 0"));
    }
    if (!first.empty()) {
      guarded_ = true;
      Open(absl::StrCat("if (", absl::StrJoin(first, " && "), ") "));
      HEDDLE_RETURN_IF_ERROR(Visit(s));
      Close();
      guarded_ = false;
      return absl::OkStatus();
    }
  }
  if (const Seq* seq = As<Seq>(s)) {
    for (const Stmt& child : seq->stmts) HEDDLE_RETURN_IF_ERROR(Visit(child));
    return absl::OkStatus();
  }
  if (const For* loop = As<For>(s)) return VisitFor(*loop);
  if (const Alloc* alloc = As<Alloc>(s)) return VisitAlloc(*alloc);
  if (const Store* store = As<Store>(s)) {
    VisitStore(*store);
  } else if (const If* branch = As<If>(s)) {
    Open(absl::StrCat("if (", exprs_.Value(branch->condition), ") "));
    const auto position = exprs_.analyzer().Mark();
    exprs_.analyzer().Assume(branch->condition);
    HEDDLE_RETURN_IF_ERROR(Visit(branch->body));
    exprs_.analyzer().Restore(position);
    Close();
  } else if (const Barrier* barrier = As<Barrier>(s)) {
    if (!async_.empty()) {
      Line(barrier->late == 0 ? "h_async_wait();"
                              : absl::StrCat("h_async_wait_but<", barrier->late, ">();"));
    }
    if (publish_) Line("h_group_publish();");
    Line("__syncthreads();");
  } else if (As<Block>(s)) {
    return absl::FailedPreconditionError("CUDA: the program is not lowered: it has blocks");
  }
  return absl::OkStatus();
}

absl::Status CudaLaunch::VisitAlloc(const Alloc& alloc) {
  const Buffer& buffer = *alloc.buffer;
  if (buffer.scope == Scope::kGlobal) return Visit(alloc.body);  // a parameter
  const std::string name = exprs_.Declare(buffer.name);
  exprs_.Bind(&buffer, name);
  const std::string type = CudaType(buffer.dtype);
  if (auto it = shared_.find(&buffer); it != shared_.end()) {
    Line(dynamic_ ? absl::StrCat(type, "* const ", name, " = (", type, "*)(h_shared + ", it->second,
                                 ");")
                  : absl::StrCat("__shared__ __align__(",
                                 exprs_.UsesPanels(&buffer) ? kPanelAlignment : kSharedAlignment,
                                 ") ", type, " ", name, "[", buffer.NumElements(), "];"));
  } else {
    Line(absl::StrCat("__align__(16) ", type, " ", name, "[", buffer.NumElements(), "];"));
  }
  return Visit(alloc.body);
}

absl::Status CudaLaunch::VisitFor(const For& loop) {
  if (const auto it = box_fetches_.find(&loop); it != box_fetches_.end()) {
    BoxNest(it->second);
    return absl::OkStatus();
  }
  if (const int axis = AxisOf(loop.kind); axis >= 0) return VisitAxis(loop, axis);
  HEDDLE_ASSIGN_OR_RETURN(const bool tensor, TensorNest(loop));
  if (tensor) return absl::OkStatus();
  if (loop.kind == LoopKind::kVectorized) {
    const Store* store = As<Store>(loop.body);
    if (store != nullptr && VectorStore(loop, *store)) return absl::OkStatus();
  }
  const std::string name = exprs_.Declare(loop.var->name);
  exprs_.Bind(loop.var.get(), name, loop.extent);
  const bool unroll = loop.kind == LoopKind::kUnrolled || loop.kind == LoopKind::kVectorized ||
                      loop.kind == LoopKind::kVThread;
  if (unroll) Line("#pragma unroll");
  const char* type = loop.extent < (int64_t{1} << 31) ? "int" : "i64";
  Open(absl::StrCat("for (", type, " ", name, " = 0; ", name, " < ", loop.extent, "; ++", name,
                    ") "));
  HEDDLE_RETURN_IF_ERROR(Visit(loop.body));
  const auto late = late_.find(&loop);
  if (late != late_.end()) Line("h_group_wait<1>();");  // for that of the iteration before
  Close();
  if (late != late_.end()) WaitForGroup(*late->second);
  return absl::OkStatus();
}

absl::Status CudaLaunch::VisitAxis(const For& loop, int axis) {
  const std::string name = exprs_.Declare(loop.var->name);
  exprs_.Bind(loop.var.get(), name, loop.extent);
  Open("");
  Line(absl::StrCat("const int ", name, " = (int)", kAxisNames[axis], ";"));
  // A guard is safe here: nothing inside a thread loop waits for other threads, and all threads of
  // a block have the same block index.
  const bool some = loop.extent < extents_[axis];
  if (some) Open(absl::StrCat("if (", name, " < ", loop.extent, ") "));
  bound_[axis] = true;
  if (axis == 3) thread_ = &loop, thread_name_ = name;
  if (auto it = groups_.find(&loop); it != groups_.end()) {
    GroupNest(loop, it->second);
  } else {
    HEDDLE_RETURN_IF_ERROR(Visit(loop.body));
  }
  if (axis == 3) thread_ = nullptr;
  bound_[axis] = false;
  if (some) Close();
  Close();
  return absl::OkStatus();
}

void CudaLaunch::VisitStore(const Store& store) {
  if (AsyncStore(store)) return;
  Line(absl::StrCat(exprs_.Access(*store.buffer, store.indices), " = ", exprs_.Value(store.value),
                    ";"));
}

bool CudaLaunch::IsVector(const Buffer& buffer, const std::vector<Expr>& indices, const For& loop) {
  if (buffer.scope == Scope::kLocal) return false;
  const Linear element = exprs_.analyzer().SimplifyToLinear(exprs_.Element(buffer, indices));
  bool moves = false;
  for (const auto& [term, factor] : element.terms) {
    const bool is_lane = term->kind == ExprKind::kVar && term->var == loop.var;
    if (is_lane ? factor != 1 : UsesVar(term, loop.var.get()) || factor % loop.extent != 0)
      return false;
    moves |= is_lane;
  }
  return moves && element.constant % loop.extent == 0;
}

bool CudaLaunch::VectorStore(const For& loop, const Store& store) {
  const DType dtype = store.buffer->dtype;
  const int64_t lanes = loop.extent;
  const bool half = IsHalf(dtype);
  if (lanes != 2 && lanes != 4 && (lanes != 8 || !half)) return false;
  if (dtype != DType::kF32 && dtype != DType::kI32 && !half) return false;
  const std::string vector = half ? absl::StrCat("h_vector<", CudaType(dtype), ", ", lanes, ">")
                                  : absl::StrCat(CudaType(dtype), lanes);
  exprs_.Bind(loop.var.get(), "0", lanes);
  const bool stores = IsVector(*store.buffer, store.indices, loop);
  std::vector<Expr> loads, wide;
  SureLoads(store.value, &loads);
  for (const Expr& load : loads) {
    if (load->dtype == dtype && IsVector(*load->buffer, load->args, loop)) wide.push_back(load);
  }
  if (!stores && wide.empty()) return false;
  if (stores && wide.size() == 1 && store.value == wide[0] && async_.count(&store)) {
    Line(absl::StrCat("h_async", SizeOf(dtype) * lanes, "(&",
                      exprs_.Access(*store.buffer, store.indices), ", &",
                      exprs_.Access(*wide[0]->buffer, wide[0]->args), ", true);"));
    return true;
  }
  Open("");
  std::vector<std::string> names;
  for (const Expr& load : wide) {
    names.push_back(absl::StrCat("h_v", vectors_++));
    Line(absl::StrCat("const ", vector, " ", names.back(), " = *(const ", vector, "*)&",
                      exprs_.Access(*load->buffer, load->args), ";"));
  }
  constexpr const char* kLanes[] = {".x", ".y", ".z", ".w"};
  const auto lane_of = [&](const std::string& name, int64_t lane) {
    return half ? absl::StrCat(name, ".v[", lane, "]") : name + kLanes[lane];
  };
  const std::string result = absl::StrCat("h_v", vectors_++);
  if (stores) Line(absl::StrCat(vector, " ", result, ";"));
  for (int64_t lane = 0; lane < lanes; ++lane) {
    exprs_.Bind(loop.var.get(), std::to_string(lane), lanes);
    for (size_t k = 0; k < wide.size(); ++k) exprs_.Replace(wide[k].get(), lane_of(names[k], lane));
    const std::string place =
        stores ? lane_of(result, lane) : exprs_.Access(*store.buffer, store.indices);
    Line(absl::StrCat(place, " = ", exprs_.Value(store.value), ";"));
    exprs_.Unreplace();
  }
  exprs_.Bind(loop.var.get(), "0", lanes);
  if (stores) {
    Line(absl::StrCat("*(", vector, "*)&", exprs_.Access(*store.buffer, store.indices), " = ",
                      result, ";"));
  }
  Close();
  return true;
}

}  // namespace heddle::codegen
