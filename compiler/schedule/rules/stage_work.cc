#include "compiler/schedule/rules/stage_work.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/ir/visit.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {
namespace {

int64_t InstancesOf(const ir::Block& block) {
  int64_t count = 1;
  for (const ir::BlockIter& iter : block.iters) count *= iter.extent;
  return count;
}

// Whether lanes of vectors read one place each of a table, in no order: its place depends on an element that another load
// reads. If the last index is an iterator and decides no such element, lanes along it read in order.
bool LooksUp(const ir::Expr& load, const ir::Block& block) {
  bool looks_up = false;
  for (const ir::Expr& index : load->args)
    ForEachLoad(index, [&](const ir::Expr&) { looks_up = true; });
  if (!looks_up || load->args.empty()) return looks_up;
  const ir::Expr& last = load->args.back();
  if (last->kind != ir::ExprKind::kVar) return true;
  for (const ir::BlockIter& iter : block.iters) {
    if (iter.var == last->var && iter.extent == 1) return true;
  }
  for (size_t d = 0; d + 1 < load->args.size(); ++d) {
    if (ir::UsesVar(load->args[d], last->var.get())) return true;
  }
  return false;
}

// What one instance of a block computes.
struct Instance {
  double operations = 0;  // of vectors
  double lookups = 0;     // of single elements
  int64_t bytes = 1;      // of the widest element
};

// Adds what the expression computes, each node once. What stands in indices costs nothing.
class Counter {
 public:
  Counter(const ir::Block& block, const machine::TargetInfo& target)
      : block_(block), target_(target) {}

  void Count(const ir::Expr& e) {
    if (!seen_.insert(e.get()).second) return;
    switch (e->kind) {
      case ir::ExprKind::kLoad:
        found.bytes = std::max(found.bytes, ir::SizeOf(e->dtype));
        if (!LooksUp(e, block_)) return;
        if (e->buffer->NumElements() <= target_.SharedTableElements()) {
          found.operations += 2;  // permutations of registers
        } else {
          found.lookups += 1;
        }
        return;
      case ir::ExprKind::kOp:
        found.operations += OperationsOf(*e);
        break;
      default:
        break;
    }
    for (const ir::Expr& operand : e->args) Count(operand);
  }

  Instance found;

 private:
  double OperationsOf(const ir::ExprNode& e) const {
    const bool special =
        (e.op >= ir::Op::kExp && e.op <= ir::Op::kAtanh && e.op != ir::Op::kSqrt) ||
        e.op == ir::Op::kPow;
    if (special && ir::IsFloat(e.dtype)) return target_.code.prior.special_operations;
    if (e.op == ir::Op::kDiv || e.op == ir::Op::kSqrt) return target_.core.division_operations;
    return 1;
  }

  const ir::Block& block_;
  const machine::TargetInfo& target_;
  std::set<const ir::ExprNode*> seen_;
};

double CyclesOf(const ir::Block& block, const machine::TargetInfo& target) {
  Counter counter(block, target);
  counter.Count(block.store.value);
  Instance& one = counter.found;
  one.bytes = std::max(one.bytes, ir::SizeOf(block.store.buffer->dtype));
  if (block.reducer) {
    // A multiplication and the addition of its result are one operation.
    const ir::ExprNode& value = *block.store.value;
    const bool fused = block.reducer->op == ir::ReduceOp::kSum && value.kind == ir::ExprKind::kOp &&
                       value.op == ir::Op::kMul;
    one.operations += fused ? 0 : 1;
  }
  const double lanes = std::max(1.0, static_cast<double>(target.vector_bytes) /
                                         static_cast<double>(std::max<int64_t>(one.bytes, 1)));
  return static_cast<double>(InstancesOf(block)) *
         (one.operations / lanes / target.core.operations_per_cycle +
          one.lookups / target.core.gathered_per_cycle);
}

}  // namespace

machine::CoreWork WorkOf(absl::Span<const ir::Block* const> blocks,
                         const machine::TargetInfo& target) {
  machine::CoreWork work;
  std::set<const ir::Buffer*> made, read_by_others;
  for (const ir::Block* block : blocks) {
    made.insert(block->store.buffer.get());
    work.cycles += CyclesOf(*block, target);
  }
  // A block reads at most one element for each of its instances.
  std::map<const ir::Buffer*, int64_t> read;
  for (const ir::Block* block : blocks) {
    ForEachLoad(block->store.value, [&](const ir::Expr& load) {
      const ir::Buffer* const buffer = load->buffer.get();
      if (made.contains(buffer)) {
        if (buffer != block->store.buffer.get()) read_by_others.insert(buffer);
        return;
      }
      if (buffer->constant) return;
      int64_t& bytes = read[buffer];
      bytes =
          std::min(buffer->SizeBytes(), bytes + InstancesOf(*block) * ir::SizeOf(buffer->dtype));
    });
  }
  for (const auto& [buffer, bytes] : read) work.bytes += static_cast<double>(bytes);
  for (const ir::Buffer* buffer : made) {
    if (!read_by_others.contains(buffer)) work.bytes += static_cast<double>(buffer->SizeBytes());
  }
  return work;
}

machine::CoreWork WorkOf(const Stage& stage, const machine::TargetInfo& target) {
  return WorkOf(stage.computed, target);
}

}  // namespace heddle::schedule
