#include "cost_model/features/statement_metrics.h"

#include <cmath>

namespace heddle::cost_model {
namespace {

bool IsReplicated(const Loop& l) {
  return l.kind == ir::LoopKind::kVectorized || l.kind == ir::LoopKind::kUnrolled;
}

double ExtentOf(const Statement& st, bool (*matches)(const Loop&)) {
  double extent = 1;
  for (const Loop& l : st.loops) {
    if (matches(l)) extent *= static_cast<double>(l.extent);
  }
  return extent;
}

}  // namespace

bool IsCpuParallel(const Loop& l) { return l.kind == ir::LoopKind::kParallel; }

double VectorLanes(const Statement& st) {
  return ExtentOf(st, [](const Loop& l) { return l.kind == ir::LoopKind::kVectorized; });
}
double UnrolledCopies(const Statement& st) {
  return ExtentOf(st, [](const Loop& l) { return l.kind == ir::LoopKind::kUnrolled; });
}
double ParallelExtent(const Statement& st) { return ExtentOf(st, IsCpuParallel); }
double GpuBlocks(const Statement& st) {
  return ExtentOf(st, [](const Loop& l) { return ir::IsGpuBlock(l.kind); });
}
double GpuThreads(const Statement& st) {
  return ExtentOf(st, [](const Loop& l) { return ir::IsGpuThread(l.kind); });
}

double StoreSize(const Statement& st) {
  return static_cast<double>(ir::SizeOf(st.accesses[0].buffer->dtype));
}

double InstructionsPerTrip(const Statement& st, const machine::TargetInfo& target) {
  const double lanes = VectorLanes(st);
  const double registers = std::ceil(lanes * StoreSize(st) / target.vector_bytes);
  const double work = st.ops.Flops() + st.ops.select + st.ops.integer + st.ops.cast +
                      static_cast<double>(st.accesses.size());
  return lanes > 1 ? work * registers / lanes : work;
}

size_t RegisterLevel(const Statement& st) {
  size_t level = st.loops.size();
  while (level > 0 && IsReplicated(st.loops[level - 1])) --level;
  return level;
}

double Registers(const Statement& st, const Access& a, const machine::TargetInfo& target) {
  const size_t level = RegisterLevel(st);
  double lanes = 1;
  for (size_t k = level; k < st.loops.size(); ++k) {
    if (st.loops[k].kind == ir::LoopKind::kVectorized && a.stride[k] != 0) {
      lanes *= static_cast<double>(st.loops[k].extent);
    }
  }
  const double bytes = lanes * static_cast<double>(ir::SizeOf(a.buffer->dtype));
  return a.elements[level] / lanes * std::ceil(bytes / target.vector_bytes);
}

const Statement* MainStatement(const std::vector<Statement>& statements) {
  const auto work = [](const Statement& st) {
    return st.Trips() * (st.ops.Flops() + 1e-3 * static_cast<double>(st.accesses.size()));
  };
  const Statement* best = nullptr;
  for (const Statement& st : statements) {
    if (best == nullptr || work(st) > work(*best)) best = &st;
  }
  return best;
}

}  // namespace heddle::cost_model
