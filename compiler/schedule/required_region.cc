#include "compiler/schedule/required_region.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "compiler/ir/visit.h"

namespace heddle::schedule {

using ir::As;
using ir::Expr;
using ir::For;

namespace {

// Grows `dim` by what one load reads in one dimension. Sets `whole` if that is not understood.
void AddRead(const Expr& index, const ir::Substitution& bindings, const ir::RunningLoops& running,
             const ir::RunningLoops& iters, bool first_read, RequiredDim* dim, bool* whole) {
  if (!*whole) {
    auto interval = ir::ReachOf(ir::Substitute(index, bindings), running);
    if (interval && !first_read) interval = ir::Union(dim->region, *interval);
    if (interval) dim->region = *interval;
    *whole = !interval;
  }
  auto ever = ir::ReachOf(index, iters);
  const bool known = ever && ever->IsConstant();
  const int64_t lo = known ? ever->lo : INT64_MIN;
  const int64_t hi = known ? ever->hi : INT64_MAX;
  dim->first = first_read ? lo : std::min(dim->first, lo);
  dim->last = first_read ? hi : std::max(dim->last, hi);
}

// Whether no running loop moves two dimensions, so that the load visits all combinations of their
// values.
bool IsBox(const std::vector<Expr>& indices, const ir::Substitution& bindings,
           const ir::RunningLoops& running) {
  std::vector<Expr> moving;
  for (const Expr& index : indices) {
    Expr bound = ir::Substitute(index, bindings);
    auto interval = ir::ReachOf(bound, running);
    if (!interval || interval->Width() > 0) moving.push_back(std::move(bound));
  }
  for (const auto& loop : running) {
    if (std::count_if(moving.begin(), moving.end(),
                      [&](const Expr& e) { return ir::UsesVar(e, loop.first); }) > 1) {
      return false;
    }
  }
  return true;
}

}  // namespace

Required RequiredRegion(const ir::Buffer& buffer, const std::vector<Path>& readers, size_t depth) {
  const size_t rank = buffer.shape.size();
  Required required;
  std::vector<RequiredDim>& dims = required.dims;
  dims.resize(rank);
  std::vector<char> whole(rank, 0);
  bool first_read = true;
  for (const Path& reader : readers) {
    ir::RunningLoops running, iters;
    for (const For* loop : reader.Loops(depth)) running.emplace(loop->var.get(), loop->extent);
    ir::Substitution bindings;
    for (const ir::BlockIter& iter : reader.block().iters) {
      bindings.emplace(iter.var.get(), iter.binding);
      iters.emplace(iter.var.get(), iter.extent);
    }
    for (const Expr& part : Conjuncts(reader.block().where)) {
      for (const auto& loop : running) required.exact &= !ir::UsesVar(part, loop.first);
    }
    ForEachLoad(reader.block(), [&](const Expr& load) {
      if (load->buffer.get() != &buffer) return;
      for (size_t d = 0; d < rank; ++d) {
        bool not_understood = whole[d] != 0;
        AddRead(load->args[d], bindings, running, iters, first_read, &dims[d], &not_understood);
        whole[d] = not_understood;
      }
      required.exact &= IsBox(load->args, bindings, running);
      first_read = false;
    });
  }
  for (size_t d = 0; d < rank; ++d) {
    RequiredDim& dim = dims[d];
    required.exact &= !whole[d] && dim.region.IsDense();
    dim.first = std::clamp<int64_t>(dim.first, 0, buffer.shape[d] - 1);
    dim.last = std::clamp<int64_t>(dim.last, dim.first, buffer.shape[d] - 1);
    if (whole[d] || dim.region.Extent() > dim.last - dim.first) {
      dim.region = ir::SymbolicInterval{{}, dim.first, dim.last};
    } else if (dim.region.IsConstant()) {
      dim.region.lo = std::clamp(dim.region.lo, dim.first, dim.last);
      dim.region.hi = std::clamp(dim.region.hi, dim.region.lo, dim.last);
    }
  }
  return required;
}

namespace {

// A guard for loops that stand still: nothing is computed where no reader runs. Null if some reader
// always runs. The guard is necessary, because what the block reads may have been left out under
// the same guard.
Expr StandingGuard(const std::vector<Path>& readers, size_t depth) {
  Expr any;
  for (const Path& reader : readers) {
    std::vector<const For*> running = reader.Loops(depth);
    Expr guard;
    for (const Expr& part : Conjuncts(reader.block().where)) {
      bool stands = std::none_of(running.begin(), running.end(), [&](const For* loop) {
        return ir::UsesVar(part, loop->var.get());
      });
      if (stands) guard = AndMaybe(guard, part);
    }
    if (!guard) return nullptr;
    if (!any) {
      any = guard;
    } else if (!ir::StructuralEqual(any, guard)) {
      any = ir::Make(ir::Op::kOr, {any, guard});
    }
  }
  return any;
}

}  // namespace

absl::StatusOr<RegionNest> ComputeRegion(const ir::Block& block, const std::vector<Path>& readers,
                                         size_t depth, const std::vector<ir::Stmt>& outer,
                                         bool must_be_exact,
                                         const std::function<std::string(size_t)>& name) {
  StoreShape shape = StoreShapeOf(block);
  if (!shape.exact) {
    return absl::FailedPreconditionError(
        absl::StrCat("block ", Quoted(block.name), " does not store exactly at its iterators"));
  }
  Required required = RequiredRegion(*block.store.buffer, readers, depth);
  if (must_be_exact && !required.exact) {
    return absl::FailedPreconditionError(
        absl::StrCat("block ", Quoted(block.name),
                     " would read more than its producers have finished there: what its consumers "
                     "need is not a box"));
  }
  ir::RunningLoops all;
  for (const ir::Stmt& s : outer) {
    if (const auto* loop = As<For>(s)) all.emplace(loop->var.get(), loop->extent);
  }
  RegionNest nest;
  nest.block = block;
  nest.block.where = StandingGuard(readers, depth);
  for (size_t k = 0; k < block.iters.size(); ++k) {
    ir::BlockIter& iter = nest.block.iters[k];
    RequiredDim dim{{{}, 0, iter.extent - 1}, 0, iter.extent - 1};
    for (size_t d = 0; d < shape.dims.size(); ++d) {
      if (shape.dims[d] == &block.iters[k]) dim = required.dims[d];
    }
    nest.loops.push_back({MakeVar(name(k)), dim.region.Extent()});
    iter.binding = dim.region.Base() + ir::VarExpr(nest.loops.back().var);
    auto reach = ir::ReachOf(dim.region.Base(), all);
    const bool known = reach && reach->IsConstant();
    if (!known || reach->lo < dim.first) {
      nest.block.where = AndMaybe(nest.block.where, ir::Le(ir::Int(dim.first), iter.binding));
    }
    if (!known || reach->hi + dim.region.Extent() - 1 > dim.last) {
      nest.block.where = AndMaybe(nest.block.where, ir::Lt(iter.binding, ir::Int(dim.last + 1)));
    }
  }
  return nest;
}

}  // namespace heddle::schedule
