// Primitives that change how a tensor lies in memory.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/primitives/allocation.h"
#include "compiler/schedule/primitives/primitives.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

using ir::As;
using ir::Block;
using ir::BufferRef;
using ir::Expr;
using ir::Stmt;

namespace {

// How a tensor of some rank is packed: dimension order[k] gives part k of the new shape, divided by
// its factor; the remainders of the divided dimensions follow.
struct Packing {
  std::vector<int64_t> factors;  // by dimension; 1: not divided
  std::vector<int64_t> order;    // a permutation of the dimensions

  std::vector<int64_t> Shape(const std::vector<int64_t>& extents) const {
    std::vector<int64_t> shape;
    for (int64_t d : order) shape.push_back((extents[d] + factors[d] - 1) / factors[d]);
    for (int64_t f : factors) {
      if (f > 1) shape.push_back(f);
    }
    return shape;
  }

  std::vector<Expr> Pack(const std::vector<Expr>& at) const {
    std::vector<Expr> packed;
    for (int64_t d : order) {
      packed.push_back(factors[d] == 1 ? at[d] : ir::FloorDiv(at[d], ir::Int(factors[d])));
    }
    for (size_t d = 0; d < factors.size(); ++d) {
      if (factors[d] > 1) packed.push_back(ir::FloorMod(at[d], ir::Int(factors[d])));
    }
    return packed;
  }

  std::vector<Expr> Unpack(const std::vector<Expr>& packed) const {
    std::vector<Expr> at(factors.size());
    for (size_t k = 0; k < order.size(); ++k) at[order[k]] = packed[k];
    size_t next = order.size();
    for (size_t d = 0; d < factors.size(); ++d) {
      if (factors[d] > 1) at[d] = at[d] * ir::Int(factors[d]) + packed[next++];
    }
    return at;
  }
};

absl::StatusOr<Packing> ParsePacking(const ir::Buffer& buffer,
                                     const std::vector<int64_t>& numbers) {
  const size_t rank = buffer.shape.size();
  auto bad = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("packing of ", Quoted(buffer.name), " of rank ", rank, ": ", why));
  };
  if (numbers.size() != 2 * rank) return bad("a factor and a place for each dimension are needed");
  Packing packing{{numbers.begin(), numbers.begin() + rank},
                  {numbers.begin() + rank, numbers.end()}};
  for (size_t d = 0; d < rank; ++d) {
    if (packing.factors[d] < 1) return bad("factors are positive");
    if (packing.factors[d] > std::max<int64_t>(1, 2 * buffer.shape[d] - 1)) {
      return bad("a factor wastes more than half");
    }
  }
  std::vector<int64_t> sorted = packing.order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t d = 0; d < rank; ++d) {
    if (sorted[d] != static_cast<int64_t>(d)) return bad("the places are no permutation");
  }
  return packing;
}

// The copy inside new loops, which are added to `loops`. It stores zero where the packed tensor is
// larger than the tensor.
Stmt PackingNest(const std::string& name, const BufferRef& source, const BufferRef& packed,
                 const Packing& packing, std::vector<FreshLoop>& loops) {
  NewIters iters;
  for (size_t k = 0; k < packed->shape.size(); ++k) {
    loops.push_back({MakeVar(absl::StrCat(name, ".", k)), packed->shape[k]});
    iters.Add(name, packed->shape[k], ir::IterKind::kSpatial, ir::VarExpr(loops.back().var));
  }
  const std::vector<Expr> at = packing.Unpack(iters.exprs);
  Expr inside;
  for (size_t d = 0; d < at.size(); ++d) {
    if (source->shape[d] % packing.factors[d] != 0) {
      inside = AndMaybe(inside, ir::Lt(at[d], ir::Int(source->shape[d])));
    }
  }
  Expr value = ir::Load(source, at);
  if (inside) value = ir::Select(inside, value, ir::Zero(source->dtype));
  return Nest(loops, ir::MakeStmt(Block{
                         name, iters.iters, nullptr, std::nullopt, {packed, iters.exprs, value}}));
}

}  // namespace

absl::StatusOr<Rewritten> Pack(const Program& p, const std::string& block_name,
                               const std::string& buffer_name,
                               const std::vector<int64_t>& numbers) {
  Allocations allocs;
  const Stmt body = StripAllocs(p.body, &allocs);
  HEDDLE_ASSIGN_OR_RETURN(const Path reader, FindBlock(body, block_name));
  const Block& block = reader.block();
  BufferRef source;
  ForEachLoad(block, [&](const Expr& load) {
    if (load->buffer->name == buffer_name) source = load->buffer;
  });
  if (!source) return Illegal(block, absl::StrCat("does not read buffer ", Quoted(buffer_name)));
  HEDDLE_ASSIGN_OR_RETURN(const Packing packing, ParsePacking(*source, numbers));
  // The copy stands at the root, before the statement that holds the reader.
  const size_t place = As<ir::Seq>(reader.nodes[0]) ? 1 : 0;
  for (const Path& path : AllBlocks(body)) {
    if (path.block().store.buffer == source && CommonDepth(path, reader) > place) {
      return Illegal(block,
                     absl::StrCat("shares loops with the block that makes ", Quoted(buffer_name)));
    }
  }
  const std::string name = buffer_name + ".pack";
  auto packed = std::make_shared<ir::Buffer>(
      ir::Buffer{name + "_buf", source->dtype, packing.Shape(source->shape)});
  std::vector<std::string> names{name, packed->name};
  for (size_t k = 0; k < packed->shape.size(); ++k) {
    names.push_back(absl::StrCat(name, ".", k));
    names.push_back(absl::StrCat(name, ".v", k));
  }
  HEDDLE_RETURN_IF_ERROR(CheckNamesFree(p, names));

  const auto repack = [&](const Expr& e) {
    return ir::RewriteExpr(e, [&](const Expr& node) {
      if (node->kind != ir::ExprKind::kLoad || node->buffer != source) return node;
      return ir::Load(packed, packing.Pack(node->args));
    });
  };
  Block changed = block;
  changed.store.value = repack(changed.store.value);
  for (Expr& index : changed.store.indices) index = repack(index);
  const Path below{std::vector<Stmt>(reader.nodes.begin() + place, reader.nodes.end())};
  std::vector<FreshLoop> loops;
  const Stmt both = ir::MakeSeq({PackingNest(name, source, packed, packing, loops),
                                 ReplaceTarget(below, ir::MakeStmt(std::move(changed)))});
  allocs.buffers.push_back(packed);
  HEDDLE_ASSIGN_OR_RETURN(Program repacked, Finish(p, ReplaceAt(reader, place, both), allocs));
  return Rewritten(std::move(repacked), {}, {{name, CursorsOf(loops)}});
}

}  // namespace heddle::schedule
