#include "compiler/schedule/required_region.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "compiler/ir/visit.h"

namespace heddle::schedule {

using ir::As;
using ir::Expr;
using ir::For;

std::vector<SymbolicInterval> RequiredRegion(const ir::Buffer& buffer,
                                             const std::vector<Path>& readers, size_t depth) {
  const size_t rank = buffer.shape.size();
  std::vector<std::optional<SymbolicInterval>> region(rank);
  std::vector<bool> whole(rank, false);
  for (const Path& reader : readers) {
    RunningLoops running;
    for (const For* loop : reader.Loops(depth)) running.emplace(loop->var.get(), loop->extent);
    ir::Substitution bindings;
    for (const ir::BlockIter& iter : reader.block().iters) {
      bindings.emplace(iter.var.get(), iter.binding);
    }
    ForEachLoad(reader.block(), [&](const Expr& load) {
      if (load->buffer.get() != &buffer) return;
      for (size_t d = 0; d < rank; ++d) {
        if (whole[d]) continue;
        auto interval = Evaluate(ir::Substitute(load->args[d], bindings), running);
        if (interval && region[d]) interval = Union(*region[d], *interval);
        if (interval) region[d] = interval;
        whole[d] = !interval;
      }
    });
  }
  std::vector<SymbolicInterval> result(rank);
  for (size_t d = 0; d < rank; ++d) {
    const int64_t last = buffer.shape[d] - 1;
    if (!whole[d] && region[d] && region[d]->Extent() <= last) {
      result[d] = *region[d];
      if (result[d].IsConstant()) {
        result[d].lo = std::clamp<int64_t>(result[d].lo, 0, last);
        result[d].hi = std::clamp<int64_t>(result[d].hi, result[d].lo, last);
      }
    } else {
      result[d].hi = last;
    }
  }
  return result;
}

absl::StatusOr<RegionNest> ComputeRegion(const ir::Block& block, const std::vector<Path>& readers,
                                         size_t depth, const std::vector<ir::Stmt>& outer,
                                         const std::function<std::string(size_t)>& name) {
  StoreShape shape = StoreShapeOf(block);
  if (!shape.exact) {
    return absl::FailedPreconditionError(
        absl::StrCat("block ", Quoted(block.name), " does not store exactly at its iterators"));
  }
  std::vector<SymbolicInterval> region = RequiredRegion(*block.store.buffer, readers, depth);
  RunningLoops all;
  for (const ir::Stmt& s : outer) {
    if (const auto* loop = As<For>(s)) all.emplace(loop->var.get(), loop->extent);
  }
  RegionNest nest;
  nest.block = block;
  nest.block.where = nullptr;
  for (size_t k = 0; k < block.iters.size(); ++k) {
    ir::BlockIter& iter = nest.block.iters[k];
    SymbolicInterval interval;
    interval.hi = iter.extent - 1;
    for (size_t d = 0; d < shape.dims.size(); ++d) {
      if (shape.dims[d] == &block.iters[k]) interval = region[d];
    }
    nest.loops.push_back({MakeVar(name(k)), interval.Extent()});
    iter.binding = interval.Base() + ir::VarExpr(nest.loops.back().var);
    auto reach = Evaluate(interval.Base(), all);
    const bool known = reach && reach->IsConstant();
    if (!known || reach->lo < 0) {
      nest.block.where = AndMaybe(nest.block.where, ir::Le(ir::Int(0), iter.binding));
    }
    if (!known || reach->hi + interval.Extent() > iter.extent) {
      nest.block.where = AndMaybe(nest.block.where, ir::Lt(iter.binding, ir::Int(iter.extent)));
    }
  }
  return nest;
}

}  // namespace heddle::schedule
