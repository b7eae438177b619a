// Primitives that merge a block into another one.
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
using ir::Expr;
using ir::ExprKind;
using ir::Stmt;

namespace {

// In a chain y = y * y, the expression doubles with every stage that is merged into the next.
// Several activations, with the index arithmetic of a few reshapes, stay below kMaxNodes. Beyond
// that, it is cheaper to store a stage than to compute it again, and compilers are slow on such
// expressions. A merge that computes nothing twice may reach kMaxMergedNodes.
constexpr int64_t kMaxNodes = 256;
constexpr int64_t kMaxMergedNodes = 4096;

// Nodes of the expression, counted as a tree. Stops counting beyond the limit.
int64_t CountNodes(const Expr& e, int64_t limit) {
  int64_t nodes = 1;
  for (const Expr& a : e->args) {
    if (nodes > limit) break;
    nodes += CountNodes(a, limit - nodes);
  }
  return nodes;
}

// `grown`: what the two blocks are merged into.
absl::Status CheckSize(const Block& block, const Block& other, const Block& grown) {
  const int64_t nodes = CountNodes(grown.store.value, kMaxMergedNodes);
  const int64_t before = CountNodes(block.store.value, kMaxMergedNodes) +
                         CountNodes(other.store.value, kMaxMergedNodes);
  const int64_t limit = std::max(kMaxNodes, std::min(before, kMaxMergedNodes));
  if (nodes <= limit) return absl::OkStatus();
  return Illegal(block, absl::StrCat("would make block ", Quoted(grown.name), " larger than ",
                                     limit, " operations"));
}

// Replaces loads of one buffer; `value_at` gives the element's value for rewritten indices.
Expr ReplaceLoads(const Expr& e, const ir::Buffer* buffer,
                  const std::function<Expr(const std::vector<Expr>&)>& value_at) {
  return ir::RewriteExpr(e, [&](const Expr& node) {
    if (node->kind != ExprKind::kLoad || node->buffer.get() != buffer) return node;
    return value_at(node->args);
  });
}

// The value that the block stores at `indices` of its buffer.
Expr ValueAt(const Block& block, const StoreShape& shape, const std::vector<Expr>& indices) {
  ir::Substitution map;
  for (size_t d = 0; d < shape.dims.size(); ++d) {
    if (shape.dims[d] != nullptr) map.emplace(shape.dims[d]->var.get(), indices[d]);
  }
  return ir::Substitute(block.store.value, map);
}

// Blocks other than `self` that read or (if `writers`) write the buffer.
std::vector<Path> UsersOf(const std::vector<Path>& blocks, const ir::Buffer* buffer,
                          const Stmt& self, bool writers) {
  std::vector<Path> users;
  for (const Path& path : blocks) {
    if (path.target() == self) continue;
    if (Reads(path.block(), buffer) || (writers && path.block().store.buffer.get() == buffer)) {
      users.push_back(path);
    }
  }
  return users;
}

// The producer's block with the consumer merged into it. Everything is in the producer's iterators.
absl::StatusOr<Block> FoldInto(const Block& consumer, const Block& producer) {
  StoreShape shape = StoreShapeOf(producer);
  StoreShape own = StoreShapeOf(consumer);
  auto refuse = [&] {
    return Illegal(consumer, absl::StrCat("does not read block ", Quoted(producer.name),
                                          " at its own point only"));
  };
  if (!shape.exact || !own.exact) return refuse();
  const ir::Buffer* buffer = producer.store.buffer.get();
  ir::Substitution to_producer;  // the consumer's iterators in the producer's
  bool own_point = true;
  ForEachLoad(consumer, [&](const Expr& load) {
    if (load->buffer.get() != buffer) return;
    for (size_t d = 0; d < load->args.size(); ++d) {
      const Expr& index = load->args[d];
      if (shape.dims[d] == nullptr) {
        own_point &= ir::IsConstInt(index);
        continue;
      }
      if (index->kind != ExprKind::kVar) {
        own_point = false;
        continue;
      }
      auto [it, fresh] = to_producer.emplace(index->var.get(), ir::VarExpr(shape.dims[d]->var));
      own_point &= fresh || it->second->var == shape.dims[d]->var;
    }
  });
  std::vector<const ir::Var*> covered;
  for (const ir::BlockIter& iter : consumer.iters) {
    auto it = to_producer.find(iter.var.get());
    if (it == to_producer.end()) {
      // An iterator of one value needs no loop of the producer's.
      own_point &= iter.extent == 1;
      to_producer.emplace(iter.var.get(), ir::Int(0));
      continue;
    }
    covered.push_back(it->second->var.get());
    for (const ir::BlockIter& other : producer.iters) {
      if (other.var == it->second->var) own_point &= other.extent == iter.extent;
    }
  }
  for (const ir::BlockIter& iter : producer.iters) {
    auto times = std::count(covered.begin(), covered.end(), iter.var.get());
    own_point &= times == 1 || (times == 0 && iter.extent == 1);
  }
  if (!own_point) return refuse();
  Block folded = producer;
  folded.store.buffer = consumer.store.buffer;
  folded.store.indices.clear();
  for (const Expr& index : consumer.store.indices) {
    folded.store.indices.push_back(ir::Substitute(index, to_producer));
  }
  Expr value = ir::Substitute(consumer.store.value, to_producer);
  folded.store.value =
      ReplaceLoads(value, buffer, [&](const std::vector<Expr>&) { return producer.store.value; });
  return folded;
}

}  // namespace

absl::StatusOr<Rewritten> ComputeInline(const Program& p, const std::string& block_name) {
  Allocations allocs;
  Stmt body = StripAllocs(p.body, &allocs);
  HEDDLE_ASSIGN_OR_RETURN(Path path, FindBlock(body, block_name));
  const Block& block = path.block();
  const ir::Buffer* buffer = block.store.buffer.get();
  if (block.reducer) return Illegal(block, "is a reduction and cannot be inlined");
  if (IsOutput(p, buffer)) return Illegal(block, "writes an output and cannot be inlined");
  if (const Block* other = OtherWriter(body, path)) {
    return Illegal(block, absl::StrCat("shares its buffer with block ", Quoted(other->name)));
  }
  StoreShape shape = StoreShapeOf(block);
  if (!shape.exact) return Illegal(block, "does not store exactly at its iterators");
  if (UsersOf(AllBlocks(body), buffer, path.target(), false).empty()) {
    return Illegal(block, "has no reader to be inlined into");
  }
  auto value_at = [&](const std::vector<Expr>& indices) { return ValueAt(block, shape, indices); };
  absl::Status size;
  Stmt inlined = MapBlocks(body, [&](const Stmt& s) -> Stmt {
    if (s == path.target()) return nullptr;
    const Block& reader = *As<Block>(s);
    if (!Reads(reader, buffer)) return s;
    Block changed = reader;
    changed.store.value = ReplaceLoads(changed.store.value, buffer, value_at);
    for (Expr& index : changed.store.indices) index = ReplaceLoads(index, buffer, value_at);
    size.Update(CheckSize(block, reader, changed));
    return ir::MakeStmt(std::move(changed));
  });
  HEDDLE_RETURN_IF_ERROR(size);
  return Finish(p, std::move(inlined), allocs);
}

absl::StatusOr<Rewritten> ReverseComputeInline(const Program& p, const std::string& block_name) {
  Allocations allocs;
  Stmt body = StripAllocs(p.body, &allocs);
  HEDDLE_ASSIGN_OR_RETURN(Path consumer_path, FindBlock(body, block_name));
  const Block& consumer = consumer_path.block();
  if (consumer.reducer)
    return Illegal(consumer, "is a reduction and cannot be folded into its producer");
  std::vector<Path> blocks = AllBlocks(body);
  const Path* producer_path = nullptr;
  for (const Path& path : blocks) {
    if (path.target() == consumer_path.target() ||
        !Reads(consumer, path.block().store.buffer.get())) {
      continue;
    }
    if (producer_path != nullptr) return Illegal(consumer, "has more than one producer");
    producer_path = &path;
  }
  if (producer_path == nullptr) return Illegal(consumer, "has no producer");
  const Block& producer = producer_path->block();
  const ir::Buffer* buffer = producer.store.buffer.get();
  if (producer.reducer) {
    return Illegal(consumer, absl::StrCat("cannot be folded into block ", Quoted(producer.name),
                                          ", which is a reduction"));
  }
  if (IsOutput(p, buffer) || UsersOf(blocks, buffer, producer_path->target(), true).size() != 1) {
    return Illegal(consumer,
                   absl::StrCat("is not the only consumer of block ", Quoted(producer.name)));
  }
  if (!CoversDomainOnce(consumer_path)) {
    return Illegal(consumer, "has a guard or loops over a part of its domain only");
  }
  HEDDLE_ASSIGN_OR_RETURN(Block folded, FoldInto(consumer, producer));
  HEDDLE_RETURN_IF_ERROR(CheckSize(consumer, producer, folded));
  Stmt merged = MapBlocks(body, [&](const Stmt& s) -> Stmt {
    if (s == consumer_path.target()) return nullptr;
    return s == producer_path->target() ? ir::MakeStmt(Block(folded)) : s;
  });
  return Finish(p, std::move(merged), allocs);
}

}  // namespace heddle::schedule
