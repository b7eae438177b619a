#include "compiler/schedule/rules/inline_injective.h"

#include <algorithm>
#include <vector>

#include "compiler/schedule/access.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

namespace {

// Inlined padding tests at every load whether it is inside. If there are many such loads, a padded
// copy is cheaper.
constexpr int kMaxGuardedCopies = 4;

// How often a stage is computed if it is inlined into its readers: once for each place at which
// they load the buffer. Equal loads of one block share their computation.
int PlacesRead(const std::vector<const ir::Block*>& readers, const ir::Buffer* buffer) {
  int count = 0;
  for (const ir::Block* reader : readers) {
    std::vector<ir::Expr> seen;
    ForEachLoad(*reader, [&](const ir::Expr& load) {
      if (load->buffer.get() != buffer) return;
      for (const ir::Expr& other : seen) {
        if (ir::StructuralEqual(load, other)) return;
      }
      seen.push_back(load);
    });
    count += static_cast<int>(seen.size());
  }
  return count;
}

// Whether the value of the block is named more than once, so that inlining it writes it as often. What it looks up is long
// then, and in a chain of such stages the text would grow exponentially.
bool WouldRepeatLookups(const ir::Block& block, const ir::Block& reader) {
  int lookups = 0, named = 0;
  ForEachLoad(block.store.value, [&](const ir::Expr& load) {
    for (const ir::Expr& index : load->args)
      ForEachLoad(index, [&](const ir::Expr&) { ++lookups; });
  });
  if (lookups == 0) return false;
  ForEachLoad(reader.store.value,
              [&](const ir::Expr& load) { named += load->buffer == block.store.buffer; });
  return named > 1;
}

bool HasGuard(const ir::Expr& e) {
  if (e->kind == ir::ExprKind::kOp && e->op == ir::Op::kSelect) return true;
  return std::any_of(e->args.begin(), e->args.end(), HasGuard);
}

bool ShouldInline(const ir::Program& program, const std::vector<Path>& blocks,
                  const ir::Block& block) {
  const ir::Buffer* buffer = block.store.buffer.get();
  if (block.reducer || IsOutput(program, buffer)) return false;
  std::vector<const ir::Block*> readers;
  for (const Path& path : blocks) {
    if (!Reads(path.block(), buffer)) continue;
    if (path.block().reducer) return false;
    // A place that several loads share would be computed for each of them; in a chain of such stages the work
    // would grow exponentially.
    if (LookupsBy(path.block(), buffer) > 1 || WouldRepeatLookups(block, path.block()))
      return false;
    readers.push_back(&path.block());
  }
  const int places = PlacesRead(readers, buffer);
  return (places <= 1 || !IsExpensive(block)) &&
         (places <= kMaxGuardedCopies || !HasGuard(block.store.value));
}

// False if there is nothing left to inline.
bool InlineOne(Recorder& out) {
  const std::vector<Path> blocks = AllBlocks(out.program().body);
  return std::any_of(blocks.begin(), blocks.end(), [&](const Path& path) {
    return ShouldInline(out.program(), blocks, path.block()) &&
           out.ComputeInline(path.block().name).ok();
  });
}

}  // namespace

void InlineInjective(Recorder& out) {
  while (InlineOne(out)) {
  }
}

}  // namespace heddle::schedule
