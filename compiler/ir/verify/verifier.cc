#include "compiler/ir/verify/verifier.h"

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/status_macros.h"
#include "compiler/ir/analysis/analyzer.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier_rules.h"
#include "compiler/ir/visit.h"

namespace heddle::ir {
namespace {

// Offsets into a buffer stay far from overflow, and no machine we compile for holds more.
constexpr int64_t kMaxElements = int64_t{1} << 40;

class Verifier {
 public:
  Verifier(const Program& program, Level level) : program_(program), level_(level) {}

  absl::Status Run() {
    SetPlace("program " + program_.name);
    if (!IsName(program_.name)) return Broken("name", "'" + program_.name + "' is not a name");
    common_ = FindCommonLoops(program_);
    for (const BufferRef& buffer : program_.inputs) {
      HEDDLE_RETURN_IF_ERROR(Declare(*buffer));
      inputs_.insert(buffer.get());
    }
    for (const BufferRef& buffer : program_.outputs) {
      HEDDLE_RETURN_IF_ERROR(Declare(*buffer));
      if (buffer->constant) return Broken("const", "output " + buffer->name + " is const");
    }
    HEDDLE_RETURN_IF_ERROR(Visit(program_.body));
    SetPlace("program " + program_.name);
    for (const BufferRef& buffer : program_.outputs) {
      if (!written_.count(buffer.get()))
        return Broken("output", "nothing writes output " + buffer->name);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Broken(const char* rule, const std::string& message) const {
    return RuleBroken(rule, message, at_ ? Print(at_) : where_);
  }

  // Sets what messages point at: a statement, which is printed only when needed, or words.
  void SetPlace(const Stmt& s) { at_ = s; }
  void SetPlace(std::string words) {
    at_ = nullptr;
    where_ = std::move(words);
  }

  // ---- Names ----

  absl::Status TakeName(const std::string& name) {
    if (!IsName(name)) return Broken("name", "'" + name + "' is not a name");
    if (!names_.insert(name).second) return Broken("name", "'" + name + "' is used twice");
    return absl::OkStatus();
  }

  // Declares a parameter or an allocation, and records how many loops are around it.
  absl::Status Declare(const Buffer& buffer) {
    HEDDLE_RETURN_IF_ERROR(TakeName(buffer.name));
    int64_t elements = 1;
    for (int64_t extent : buffer.shape) {
      if (extent <= 0)
        return Broken("extent", "buffer " + buffer.name + " has an extent that is not positive");
      if (extent > kMaxElements || elements > kMaxElements / extent) {
        return Broken("extent", "buffer " + buffer.name + " has more than 2^40 elements");
      }
      elements *= extent;
    }
    if (buffer.below > 0 && !Contains(OfType(buffer.dtype), {0, buffer.below - 1})) {
      return Broken("below", "elements of " + buffer.name + " cannot be as large as " +
                                 std::to_string(buffer.below - 1));
    }
    buffers_[&buffer] = loops_.size();
    return absl::OkStatus();
  }

  absl::Status DeclareVar(const Var& var, int64_t extent) {
    HEDDLE_RETURN_IF_ERROR(TakeName(var.name));
    if (extent <= 0 || extent > kMaxElements) {
      return Broken("extent", var.name + " has extent " + std::to_string(extent) + ", not 1..2^40");
    }
    return absl::OkStatus();
  }

  // ---- Expressions ----

  // Checks the rules `scope`, `type` and `bounds` of everything inside `e`. Guards are assumed
  // within what they guard.
  absl::Status CheckExpr(const Expr& e) {
    HEDDLE_RETURN_IF_ERROR(CheckNodeType(e));
    if (e->kind == ExprKind::kVar && !visible_.count(e->var.get())) {
      return Broken("scope", "variable " + e->var->name + " is not visible here");
    }
    if (e->kind == ExprKind::kOp &&
        (e->op == Op::kSelect || e->op == Op::kAnd || e->op == Op::kOr)) {
      HEDDLE_RETURN_IF_ERROR(CheckExpr(e->args[0]));
      for (size_t i = 1; i < e->args.size(); ++i) {
        const auto position = analyzer_.Mark();
        const bool holds = e->op == Op::kSelect ? i == 1 : e->op == Op::kAnd;
        if (HasLoad(e->args[i])) {
          HEDDLE_RETURN_IF_ERROR(CheckFits(e->args[0]));
          analyzer_.Assume(e->args[0], holds);
        }
        absl::Status status = CheckExpr(e->args[i]);
        analyzer_.Restore(position);
        HEDDLE_RETURN_IF_ERROR(status);
      }
      return absl::OkStatus();
    }
    for (const Expr& a : e->args) HEDDLE_RETURN_IF_ERROR(CheckExpr(a));
    if (e->kind == ExprKind::kLoad) return CheckAccess(*e->buffer, e->args);
    return absl::OkStatus();
  }

  absl::Status CheckCondition(const Expr& e) {
    if (e->dtype != DType::kBool)
      return Broken("type", "the condition " + Print(e) + " is not a bool");
    HEDDLE_RETURN_IF_ERROR(CheckExpr(e));
    return CheckFits(e);
  }

  // Rule `overflow`. The analysis reasons about integers without an end, so what it proves of `e` holds
  // only if no operation inside wraps around: (i * 2^62) // 2^62 is i for it, and not for a machine.
  absl::Status CheckFits(const Expr& e) const {
    const Expr operation = analyzer_.FindOverflow(e);
    if (operation == nullptr) return absl::OkStatus();
    return Broken("overflow", Print(operation) + " need not fit into 64 bits");
  }

  absl::Status CheckAccess(const Buffer& buffer, const std::vector<Expr>& indices) {
    if (!buffers_.count(&buffer))
      return Broken("scope", "buffer " + buffer.name + " is not visible here");
    if (buffer.scope == Scope::kShared && !InsideGpuBlock(loops_)) {
      return Broken("gpu", "shared memory " + buffer.name + " is used outside a GPU block");
    }
    if (indices.size() != buffer.shape.size()) {
      return Broken("type", buffer.name + " has " + std::to_string(buffer.shape.size()) +
                                " dimensions, not " + std::to_string(indices.size()));
    }
    for (size_t k = 0; k < indices.size(); ++k) {
      if (indices[k]->dtype != DType::kI64)
        return Broken("type", "index " + Print(indices[k]) + " is not i64");
      HEDDLE_RETURN_IF_ERROR(CheckFits(indices[k]));
      if (analyzer_.IsWithin(indices[k], 0, buffer.shape[k])) continue;
      return Broken("bounds", "index " + std::to_string(k) + " of " + buffer.name + ", " +
                                  Print(indices[k]) + ", is " + RangeOf(indices[k]) +
                                  ", not in 0.." + std::to_string(buffer.shape[k] - 1));
    }
    return absl::OkStatus();
  }

  std::string RangeOf(const Expr& e) {
    const auto bounds = analyzer_.Bounds(e);
    if (!bounds) return "not bounded";
    return "in " + std::to_string(bounds->min) + ".." + std::to_string(bounds->max);
  }

  // ---- Statements ----

  absl::Status Visit(const Stmt& s) {
    if (const For* loop = As<For>(s)) return VisitFor(*loop);
    if (const Block* block = As<Block>(s)) return VisitBlock(s, *block);
    if (const Store* store = As<Store>(s)) return VisitStore(s, *store);
    if (const If* branch = As<If>(s)) return VisitIf(s, *branch);
    if (const Alloc* alloc = As<Alloc>(s)) return VisitAlloc(*alloc);
    if (const Seq* seq = As<Seq>(s)) {
      for (const Stmt& child : seq->stmts) HEDDLE_RETURN_IF_ERROR(Visit(child));
      return absl::OkStatus();
    }
    if (const Prefetch* prefetch = As<Prefetch>(s)) return VisitPrefetch(s, *prefetch);
    SetPlace("barrier");
    if (!InsideGpuBlock(loops_)) return Broken("barrier", "a barrier is outside any GPU block");
    for (const For* loop : loops_) {
      if (IsGpuThread(loop->kind))
        return Broken("barrier", "a barrier is inside the thread loop " + loop->var->name);
    }
    return absl::OkStatus();
  }

  // Its indices need not lie within the buffer.
  absl::Status VisitPrefetch(const Stmt& s, const Prefetch& prefetch) {
    SetPlace(s);
    if (level_ == Level::kScheduled) return Broken("lowered", "prefetch in a scheduled program");
    const Expr& element = prefetch.element;
    if (!buffers_.count(element->buffer.get()))
      return Broken("scope", "buffer " + element->buffer->name + " is not visible here");
    HEDDLE_RETURN_IF_ERROR(CheckNodeType(element));
    for (const Expr& index : element->args) HEDDLE_RETURN_IF_ERROR(CheckExpr(index));
    return absl::OkStatus();
  }

  absl::Status VisitFor(const For& loop) {
    SetPlace(Describe(loop));
    HEDDLE_RETURN_IF_ERROR(DeclareVar(*loop.var, loop.extent));
    HEDDLE_RETURN_IF_ERROR(CheckNesting(loop, loops_));
    const auto position = analyzer_.Mark();
    analyzer_.Bind(loop.var.get(), {0, loop.extent - 1});
    visible_.insert(loop.var.get());
    if (loop.kind == LoopKind::kTensor)
      HEDDLE_RETURN_IF_ERROR(CheckTensor(loop, loops_, guards_ > 0, analyzer_));
    loops_.push_back(&loop);
    const int guards = guards_;
    if (IsGpuThread(loop.kind)) guards_ = 0;
    absl::Status status = Visit(loop.body);
    guards_ = guards;
    loops_.pop_back();
    visible_.erase(loop.var.get());
    analyzer_.Restore(position);
    return status;
  }

  absl::Status VisitIf(const Stmt& s, const If& branch) {
    SetPlace(s);
    HEDDLE_RETURN_IF_ERROR(CheckCondition(branch.condition));
    const auto position = analyzer_.Mark();
    analyzer_.Assume(branch.condition);
    ++guards_;
    absl::Status status = Visit(branch.body);
    --guards_;
    analyzer_.Restore(position);
    return status;
  }

  absl::Status VisitAlloc(const Alloc& alloc) {
    if (alloc.buffer->below > 0)
      return Broken("below", alloc.buffer->name + " has a range and is no input");
    SetPlace("alloc " + alloc.buffer->name);
    HEDDLE_RETURN_IF_ERROR(Declare(*alloc.buffer));
    if (alloc.buffer->scope == Scope::kShared && !InsideGpuBlock(loops_) &&
        (level_ == Level::kLowered || !UsedInOneGpuBlock(*alloc.buffer))) {
      return Broken("gpu", "shared memory is allocated outside a GPU block");
    }
    absl::Status status = Visit(alloc.body);
    buffers_.erase(alloc.buffer.get());
    return status;
  }

  // Lowering moves an allocation inwards to its users. For shared memory, one block axis must be
  // around all of them.
  bool UsedInOneGpuBlock(const Buffer& buffer) const {
    const auto it = common_.find(&buffer);
    if (it == common_.end()) return true;  // nobody uses it
    for (const For* loop : it->second) {
      if (IsGpuBlock(loop->kind)) return true;
    }
    return false;
  }

  absl::Status CheckStore(const Store& store) {
    const Buffer& buffer = *store.buffer;
    if (inputs_.count(&buffer)) return Broken("input", "input " + buffer.name + " is written");
    for (const Expr& index : store.indices) HEDDLE_RETURN_IF_ERROR(CheckExpr(index));
    HEDDLE_RETURN_IF_ERROR(CheckAccess(buffer, store.indices));
    HEDDLE_RETURN_IF_ERROR(CheckExpr(store.value));
    if (store.value->dtype != buffer.dtype) {
      return Broken("type", "a value of " + std::string(Name(store.value->dtype)) +
                                " for a buffer of " + std::string(Name(buffer.dtype)));
    }
    if (buffer.below > 0) return Broken("below", buffer.name + " has a range and is no input");
    written_.insert(&buffer);
    return absl::OkStatus();
  }

  // `indices` are in loop variables.
  absl::Status CheckRaces(const Buffer& buffer, const std::vector<Expr>& indices) {
    for (size_t at = buffers_.at(&buffer); at < loops_.size(); ++at) {
      if (!ClaimsIndependence(loops_[at]->kind)) continue;
      if (level_ == Level::kScheduled && IsPrivateTo(buffer, loops_[at])) continue;
      if (!WritesOverlap(indices, buffer, loops_, at, analyzer_)) continue;
      return Broken("race", "iterations of the " + std::string(Name(loops_[at]->kind)) + " loop " +
                                loops_[at]->var->name + " write the same elements of " +
                                buffer.name);
    }
    return absl::OkStatus();
  }

  // If everything that uses the buffer is inside the loop, lowering moves the allocation there, and
  // the iterations share nothing.
  bool IsPrivateTo(const Buffer& buffer, const For* loop) const {
    for (const BufferRef& output : program_.outputs) {
      if (output.get() == &buffer) return false;
    }
    for (const For* common : common_.at(&buffer)) {
      if (common == loop) return true;
    }
    return false;
  }

  absl::Status VisitStore(const Stmt& s, const Store& store) {
    SetPlace(s);
    HEDDLE_RETURN_IF_ERROR(CheckStore(store));
    return CheckRaces(*store.buffer, store.indices);
  }

  absl::Status VisitBlock(const Stmt& s, const Block& block) {
    SetPlace(s);
    if (level_ == Level::kLowered)
      return Broken("lowered", "block " + block.name + " in a lowered program");
    HEDDLE_RETURN_IF_ERROR(TakeName(block.name));
    HEDDLE_RETURN_IF_ERROR(CheckBindings(block));
    HEDDLE_RETURN_IF_ERROR(CheckReduction(block));
    HEDDLE_RETURN_IF_ERROR(CheckBlockBody(block));
    Substitution bindings;
    for (const BlockIter& iter : block.iters) bindings[iter.var.get()] = iter.binding;
    std::vector<Expr> indices;
    for (const Expr& index : block.store.indices) indices.push_back(Substitute(index, bindings));
    const auto position = analyzer_.Mark();
    if (block.where) analyzer_.Assume(block.where);
    absl::Status status = CheckRaces(*block.store.buffer, indices);
    analyzer_.Restore(position);
    return status;
  }

  absl::Status CheckBindings(const Block& block) {
    const auto position = analyzer_.Mark();
    if (block.where) {
      HEDDLE_RETURN_IF_ERROR(CheckCondition(block.where));
      analyzer_.Assume(block.where);
    }
    for (const BlockIter& iter : block.iters) {
      HEDDLE_RETURN_IF_ERROR(DeclareVar(*iter.var, iter.extent));
      if (iter.binding->dtype != DType::kI64)
        return Broken("type", "the binding of " + iter.var->name + " is not i64");
      HEDDLE_RETURN_IF_ERROR(CheckExpr(iter.binding));
      HEDDLE_RETURN_IF_ERROR(CheckFits(iter.binding));
      if (analyzer_.IsWithin(iter.binding, 0, iter.extent)) continue;
      return Broken("binding", "iterator " + iter.var->name + " is bound to " +
                                   Print(iter.binding) + ", " + RangeOf(iter.binding) +
                                   ", not in 0.." + std::to_string(iter.extent - 1));
    }
    analyzer_.Restore(position);
    return absl::OkStatus();
  }

  absl::Status CheckReduction(const Block& block) {
    if (block.reducer && IsHalf(block.store.buffer->dtype)) {
      return Broken("type", "a reduction in " + std::string(Name(block.store.buffer->dtype)) +
                                ": reduce in f32 and cast the result");
    }
    for (const BlockIter& iter : block.iters) {
      if (iter.kind != IterKind::kReduce) continue;
      if (!block.reducer)
        return Broken("reduce",
                      "reduce iterator " + iter.var->name + " in a block that does not reduce");
      for (const Expr& index : block.store.indices) {
        if (UsesVar(index, iter.var.get()))
          return Broken("reduce", "reduce iterator " + iter.var->name + " in a store index");
      }
      if (block.reducer->init && UsesVar(block.reducer->init, iter.var.get())) {
        return Broken("reduce", "reduce iterator " + iter.var->name + " in the initial value");
      }
      for (const For* loop : loops_) {
        if (ClaimsIndependence(loop->kind) && UsesVar(iter.binding, loop->var.get())) {
          return Broken("reduce", "the " + std::string(Name(loop->kind)) + " loop " +
                                      loop->var->name + " carries reduce iterator " +
                                      iter.var->name);
        }
      }
    }
    return absl::OkStatus();
  }

  // The body sees its iterators and nothing else.
  absl::Status CheckBlockBody(const Block& block) {
    const auto position = analyzer_.Mark();
    std::unordered_set<const Var*> outer;
    outer.swap(visible_);
    for (const BlockIter& iter : block.iters) {
      visible_.insert(iter.var.get());
      analyzer_.Bind(iter.var.get(), {0, iter.extent - 1});
    }
    absl::Status status = CheckStore(block.store);
    if (status.ok() && block.reducer && block.reducer->init) {
      status = CheckExpr(block.reducer->init);
      if (status.ok() && block.reducer->init->dtype != block.store.buffer->dtype) {
        status = Broken("type", "the initial value has another type than the buffer");
      }
    }
    bool reads_itself = false;
    VisitExpr(block.store.value,
              [&](const Expr& e) { reads_itself |= e->buffer == block.store.buffer; });
    if (status.ok() && reads_itself && !RunsAsWritten(block))
      status = Broken("reduce",
                      "the block reads the buffer it writes, and its loops are not as written");
    outer.swap(visible_);
    analyzer_.Restore(position);
    return status;
  }

  // Whether the loops around a block are exactly its iterators, in order.
  bool RunsAsWritten(const Block& block) const {
    if (!block.reducer || block.where || loops_.size() != block.iters.size()) return false;
    for (size_t i = 0; i < loops_.size(); ++i) {
      const Expr& binding = block.iters[i].binding;
      if (loops_[i]->kind != LoopKind::kSerial || binding->kind != ExprKind::kVar ||
          binding->var != loops_[i]->var)
        return false;
    }
    return true;
  }

  const Program& program_;
  const Level level_;
  Analyzer analyzer_;
  Stmt at_;
  std::string where_;
  std::unordered_set<std::string> names_;
  std::unordered_map<const Buffer*, size_t>
      buffers_;  // the visible ones, each with the number of loops around its declaration
  std::unordered_set<const Var*> visible_;
  std::unordered_set<const Buffer*> inputs_, written_;
  std::vector<const For*> loops_;
  int guards_ = 0;  // conditions between the current statement and its innermost thread loop
  CommonLoops common_;
};

}  // namespace

absl::Status Verify(const Program& program, Level level) { return Verifier(program, level).Run(); }

}  // namespace heddle::ir
