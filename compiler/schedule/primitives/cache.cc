// Primitives that decide where values are kept.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/primitives/allocation.h"
#include "compiler/schedule/primitives/copy_out.h"
#include "compiler/schedule/primitives/primitives.h"
#include "compiler/schedule/required_region.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

using ir::As;
using ir::Block;
using ir::BufferRef;
using ir::Expr;
using ir::Stmt;

namespace {

BufferRef NewBuffer(std::string name, const ir::Buffer& like, ir::Scope scope) {
  return std::make_shared<const ir::Buffer>(
      ir::Buffer{std::move(name), like.dtype, like.shape, scope});
}

// The largest number of statements that the reader shares with a writer of the buffer. Below that
// depth, a copy finds its source finished.
size_t DepthOfFinished(const std::vector<Path>& blocks, const Path& reader,
                       const ir::Buffer* buffer) {
  size_t depth = 1;
  for (const Path& path : blocks) {
    if (path.block().store.buffer.get() == buffer)
      depth = std::max(depth, CommonDepth(path, reader));
  }
  return depth;
}

}  // namespace

absl::StatusOr<Rewritten> CacheRead(const Program& p, const std::string& block_name,
                                    const std::string& buffer_name, ir::Scope scope) {
  Allocations allocs;
  Stmt body = StripAllocs(p.body, &allocs);
  HEDDLE_ASSIGN_OR_RETURN(Path reader, FindBlock(body, block_name));
  BufferRef source;
  ForEachLoad(reader.block(), [&](const Expr& load) {
    if (load->buffer->name == buffer_name) source = load->buffer;
  });
  if (!source) {
    return Illegal(reader.block(), absl::StrCat("does not read buffer ", Quoted(buffer_name)));
  }
  if (source == reader.block().store.buffer) {
    return Illegal(reader.block(), absl::StrCat("writes buffer ", Quoted(buffer_name), " itself"));
  }
  if (source->below > 0) {
    return Illegal(reader.block(),
                   absl::StrCat("reads ", Quoted(buffer_name),
                                ", whose elements have a range that a copy would not have"));
  }
  const std::string name = absl::StrCat(buffer_name, ".", ScopeWord(scope));
  BufferRef copy = NewBuffer(name + "_buf", *source, scope);

  // The copy starts as a copy of everything; ComputeRegion cuts it to what the reader needs.
  NewIters iters;
  std::vector<std::string> names{name, copy->name};
  for (size_t d = 0; d < source->shape.size(); ++d) {
    iters.Add(name, source->shape[d], ir::IterKind::kSpatial, ir::Int(0));
    names.push_back(iters.iters.back().var->name);
    names.push_back(absl::StrCat(name, ".", d));
  }
  HEDDLE_RETURN_IF_ERROR(CheckNamesFree(p, names));
  size_t depth = DepthOfFinished(AllBlocks(body), reader, source.get());
  // Below a sequence the copy stands before the child that holds the reader; elsewhere before the
  // statement itself.
  if (depth < reader.nodes.size() && As<ir::Seq>(reader.nodes[depth - 1])) ++depth;
  const size_t place = depth - 1;
  std::vector<Stmt> outer(reader.nodes.begin(), reader.nodes.begin() + place);
  Block copier{
      name, iters.iters, nullptr, std::nullopt, {copy, iters.exprs, ir::Load(source, iters.exprs)}};
  const bool shares_loops = !IsInput(p, source.get()) && RealLoops(reader, place) > 0;
  HEDDLE_ASSIGN_OR_RETURN(RegionNest nest, [&] {
    // The copy's region is what the reader, which still reads the source, needs of the source.
    Block as_source = copier;
    as_source.store.buffer = source;
    return ComputeRegion(as_source, {reader}, place, outer, shares_loops,
                         [&](size_t k) { return absl::StrCat(name, ".", k); });
  }());
  nest.block.store.buffer = copy;

  Block changed = reader.block();
  const ir::BufferMap map{{source.get(), copy}};
  changed.store.value = ir::ReplaceBuffers(changed.store.value, map);
  for (Expr& index : changed.store.indices) index = ir::ReplaceBuffers(index, map);
  Path below{std::vector<Stmt>(reader.nodes.begin() + place, reader.nodes.end())};
  Stmt child = ReplaceTarget(below, ir::MakeStmt(std::move(changed)));
  Stmt both = ir::MakeSeq({Nest(nest.loops, ir::MakeStmt(std::move(nest.block))), child});
  allocs.buffers.push_back(copy);
  HEDDLE_ASSIGN_OR_RETURN(Program copied, Finish(p, ReplaceAt(reader, place, both), allocs));
  return Rewritten(std::move(copied), {}, {{name, CursorsOf(nest.loops)}});
}

absl::StatusOr<Rewritten> CacheWrite(const Program& p, const std::string& block_name,
                                     ir::Scope scope) {
  Allocations allocs;
  Stmt body = StripAllocs(p.body, &allocs);
  HEDDLE_ASSIGN_OR_RETURN(Path path, FindBlock(body, block_name));
  const Block& block = path.block();
  if (block.reducer && !block.reducer->init)
    return Illegal(block, "is a reduction decomposed already");
  if (const Block* other = OtherWriter(body, path)) {
    return Illegal(block, absl::StrCat("shares its buffer with block ", Quoted(other->name)));
  }
  BufferRef cache = NewBuffer(absl::StrCat(block_name, ".", ScopeWord(scope), "_buf"),
                              *block.store.buffer, scope);
  const std::string name = absl::StrCat(block_name, ".copy");
  HEDDLE_ASSIGN_OR_RETURN(CopyNest nest, MakeCopyNest(path, name, ""));
  Block copier{name,
               nest.iters.iters,
               nest.where,
               std::nullopt,
               {block.store.buffer, nest.indices, ir::Load(cache, nest.indices)}};
  std::vector<std::string> names = nest.names;
  names.push_back(name);
  names.push_back(cache->name);
  HEDDLE_RETURN_IF_ERROR(CheckNamesFree(p, names));

  Block changed = block;
  changed.store.buffer = cache;
  Path below{std::vector<Stmt>(path.nodes.begin() + nest.top, path.nodes.end())};
  Stmt producer = ReplaceTarget(below, ir::MakeStmt(std::move(changed)));
  Stmt both = ir::MakeSeq({producer, Nest(nest.loops, ir::MakeStmt(std::move(copier)))});
  allocs.buffers.push_back(cache);
  HEDDLE_ASSIGN_OR_RETURN(Program cached, Finish(p, ReplaceAt(path, nest.top, both), allocs));
  return Rewritten(std::move(cached), {}, {{name, CursorsOf(nest.loops)}});
}

absl::StatusOr<Rewritten> SetScope(const Program& p, const std::string& block_name,
                                   ir::Scope scope) {
  HEDDLE_ASSIGN_OR_RETURN(Path path, FindBlock(p.body, block_name));
  BufferRef buffer = path.block().store.buffer;
  if (IsOutput(p, buffer.get()) || IsInput(p, buffer.get())) {
    return Illegal(path.block(), absl::StrCat("writes buffer ", Quoted(buffer->name),
                                              ", whose scope is always global"));
  }
  BufferRef changed = NewBuffer(buffer->name, *buffer, scope);
  Program result = p;
  result.body = ir::ReplaceBuffers(p.body, {{buffer.get(), changed}});
  HEDDLE_RETURN_IF_ERROR(CheckConcurrency(result.body, p.body));
  return result;
}

}  // namespace heddle::schedule
