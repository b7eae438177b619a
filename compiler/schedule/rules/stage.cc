#include "compiler/schedule/rules/stage.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/ir/visit.h"
#include "compiler/schedule/primitives/primitives.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

namespace {

constexpr int64_t kMinLanes = 4;  // of an axis that is summed lane by lane

std::vector<Path> ConsumersOf(const std::vector<Path>& blocks, const ir::Block& producer) {
  std::vector<Path> consumers;
  for (const Path& path : blocks) {
    if (Reads(path.block(), producer.store.buffer.get())) consumers.push_back(path);
  }
  return consumers;
}

// Such a block runs as it is written.
bool ReadsItself(const ir::Block& block) { return Reads(block, block.store.buffer.get()); }

bool ReadsHalf(const ir::Block& block) {
  bool reads = false;
  ir::VisitExpr(block.store.value, [&](const ir::Expr& e) {
    reads = reads || (e->kind == ir::ExprKind::kLoad && ir::IsHalf(e->dtype));
  });
  return reads;
}

// Buffers of const inputs and of what is computed from nothing else.
std::set<const ir::Buffer*> ConstantBuffers(const ir::Program& program,
                                            const std::vector<Path>& blocks) {
  std::set<const ir::Buffer*> constants;
  for (const ir::BufferRef& input : program.inputs) {
    if (input->constant) constants.insert(input.get());
  }
  for (const Path& path : blocks) {  // in program order: producers first
    bool known = true;
    ForEachLoad(path.block(),
                [&](const ir::Expr& load) { known &= constants.count(load->buffer.get()) > 0; });
    const ir::Buffer* buffer = path.block().store.buffer.get();
    if (known && !IsOutput(program, buffer)) constants.insert(buffer);
  }
  return constants;
}

// The axis with the fewest scattered accesses; of equals the one with the most contiguous, and of
// those the last.
void FindVectorAxis(Stage& stage) {
  VectorFit best;
  for (size_t k = 0; k < stage.view.spatial.size(); ++k) {
    if (stage.view.spatial[k].extent < 2) continue;
    const VectorFit fit = FitOf(*stage.block, stage.view.spatial[k].iter);
    if (fit.contiguous == 0) continue;
    if (stage.vector_axis < 0 || fit.scattered < best.scattered ||
        (fit.scattered == best.scattered && fit.contiguous >= best.contiguous)) {
      stage.vector_axis = static_cast<int>(k);
      best = fit;
    }
  }
  stage.vectors_scattered = best.scattered > 0;
}

// Whether a load finds an element of a small table, by numbers that lie side by side along the iterator.
bool IsLookup(const ir::Expr& load, const ir::Var* iter) {
  if (load->buffer->NumElements() > machine::kMostLookedUp) return false;
  int numbers = 0;
  bool side_by_side = true;
  for (const ir::Expr& index : load->args) {
    ForEachLoad(index, [&](const ir::Expr& number) {
      ++numbers;
      side_by_side &= StrideOf(*number->buffer, number->args, iter) == 1;
    });
  }
  return numbers > 0 && side_by_side;
}

void FindLaneAxis(Stage& stage) {
  for (size_t k = 0; k < stage.view.reduce.size(); ++k) {
    const Axis& axis = stage.view.reduce[k];
    const VectorFit fit = FitOf(*stage.block, axis.iter);
    int lookups = 0;
    for (const ir::Expr& load : DistinctLoads(*stage.block)) lookups += IsLookup(load, axis.iter);
    if (fit.contiguous > 0 && fit.scattered == lookups &&
        PowerOfTwoDivisor(axis.extent, 64) >= kMinLanes)
      stage.lane_axis = static_cast<int>(k);
  }
}

bool IsEpilogue(const ir::Program& program, const Stage& stage, const ir::Block& consumer) {
  if (stage.view.spatial.empty() || consumer.reducer) return false;
  int64_t points = 1;
  for (const ir::BlockIter& iter : consumer.iters) points *= iter.extent;
  return points == stage.block->store.buffer->NumElements() &&
         ReverseComputeAt(program, consumer.name, stage.view.spatial.back().loop).ok();
}

// Whether the block reads the buffer at the element that it writes, of the same shape and type, and nowhere else.
bool GoesOnFrom(const ir::Block& block, const ir::Buffer& buffer) {
  const ir::Buffer& own = *block.store.buffer;
  if (&buffer == &own || buffer.dtype != own.dtype || buffer.shape != own.shape) return false;
  int loads = 0;
  for (const ir::Expr& load : DistinctLoads(block)) {
    if (load->buffer.get() != &buffer) continue;
    ++loads;
    for (size_t d = 0; d < load->args.size(); ++d) {
      if (!ir::StructuralEqual(load->args[d], block.store.indices[d])) return false;
    }
  }
  return loads == 1;
}

// Finds Stage::walk, its type, and whether it waits.
void FindWalk(const ir::Program& program, const std::vector<Path>& blocks,
              const std::set<const ir::Buffer*>& constants, Stage& stage) {
  std::vector<std::string>& walk = stage.walk;
  const ir::Block* reader = stage.block;
  for (bool found = true; found;) {
    found = false;
    for (const Path& path : blocks) {
      const ir::Block& block = path.block();
      const ir::Buffer* buffer = block.store.buffer.get();
      if (block.reducer || IsOutput(program, buffer) || constants.count(buffer)) continue;
      const bool looked_up = LookupsBy(*reader, buffer) > 0;
      const bool goes_on = reader != stage.block && GoesOnFrom(*reader, *buffer);
      if ((!looked_up && !goes_on) || ConsumersOf(blocks, block).size() != 1) continue;
      stage.walk_waits |= looked_up && reader != stage.block;
      walk.push_back(block.name);
      stage.computed.push_back(&block);
      if (reader == stage.block) stage.walk_dtype = buffer->dtype;
      reader = &block;
      found = true;
      break;
    }
  }
  std::reverse(walk.begin(), walk.end());
}

}  // namespace

std::vector<Stage> ReductionsOf(const ir::Program& program, const Owners& owners) {
  const std::vector<Path> blocks = AllBlocks(program.body);
  const std::set<const ir::Buffer*> constants = ConstantBuffers(program, blocks);
  std::vector<Stage> stages;
  std::set<std::string> epilogues;
  for (const Path& path : blocks) {
    Stage stage;
    stage.block = &path.block();
    stage.computed = {stage.block};
    if (!stage.block->reducer || owners.count(stage.block->name) || ReadsItself(*stage.block))
      continue;
    if (!ViewStage(path, &stage.view)) continue;
    for (const ir::Buffer* buffer : constants) {
      if (Reads(*stage.block, buffer)) stage.constants.push_back(buffer->name);
    }
    std::sort(stage.constants.begin(), stage.constants.end());
    FindVectorAxis(stage);
    FindLaneAxis(stage);
    FindWalk(program, blocks, constants, stage);
    const std::vector<Path> consumers = ConsumersOf(blocks, *stage.block);
    if (consumers.size() == 1) {
      const ir::Block& consumer = consumers[0].block();
      if (!epilogues.count(consumer.name) && !owners.count(consumer.name) &&
          IsEpilogue(program, stage, consumer)) {
        stage.epilogue = consumer.name;
        stage.computed.push_back(&consumer);
        epilogues.insert(consumer.name);
      }
    }
    stages.push_back(std::move(stage));
  }
  for (const Path& path : blocks) {
    const ir::Block& block = path.block();
    if (block.reducer || epilogues.count(block.name) || owners.count(block.name)) continue;
    const ir::Buffer* buffer = block.store.buffer.get();
    if (IsOutput(program, buffer) || constants.count(buffer)) continue;
    const std::vector<Path> consumers = ConsumersOf(blocks, block);
    if (consumers.size() != 1) continue;
    for (Stage& stage : stages) {
      if (stage.block != &consumers[0].block()) continue;
      if (std::count(stage.walk.begin(), stage.walk.end(), block.name) != 0) continue;
      stage.producers.push_back(block.name);
      stage.computed.push_back(&block);
      stage.reads_half |= ReadsHalf(block);
    }
  }
  return stages;
}

std::vector<Stage> StagesLeft(const ir::Program& program, const Owners& owners) {
  const std::vector<Path> blocks = AllBlocks(program.body);
  const std::set<const ir::Buffer*> constants = ConstantBuffers(program, blocks);
  std::vector<Stage> stages;
  for (const Path& path : blocks) {
    Stage stage;
    stage.block = &path.block();
    stage.computed = {stage.block};
    if (owners.count(stage.block->name) || ReadsItself(*stage.block) ||
        !ViewStage(path, &stage.view) || stage.view.spatial.empty())
      continue;
    stage.alone = true;
    stage.constant = constants.count(stage.block->store.buffer.get()) > 0;
    stages.push_back(std::move(stage));
  }
  return stages;
}

bool DecidesWalk(const ir::Block& block, const Axis& axis) {
  bool decides = false;
  for (const ir::Expr& load : DistinctLoads(block)) {
    for (const ir::Expr& index : load->args) {
      ForEachLoad(index, [&](const ir::Expr& place) {
        for (const ir::Expr& e : place->args) decides |= ir::UsesVar(e, axis.iter);
      });
    }
  }
  return decides;
}

int64_t LanesOf(const machine::TargetInfo& target, ir::DType dtype) {
  if (ir::IsHalf(dtype)) dtype = ir::DType::kF32;
  return std::max<int64_t>(1, target.vector_bytes / ir::SizeOf(dtype));
}

int64_t ElementsOf(const std::vector<Axis>& axes) {
  int64_t elements = 1;
  for (const Axis& axis : axes) elements *= axis.extent;
  return elements;
}

std::vector<Loop> LoopsOf(const std::vector<Axis>& axes) {
  std::vector<Loop> loops;
  for (const Axis& axis : axes) loops.push_back(LoopOf(axis));
  return loops;
}

}  // namespace heddle::schedule
