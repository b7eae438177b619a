#include "compiler/codegen/tolerance.h"

#include <algorithm>

#include "compiler/ir/visit.h"

namespace heddle::codegen {

int64_t LongestSum(const ir::Program& program) {
  int64_t longest = 1;
  ir::VisitStmt(program.body, [&](const ir::Stmt& s) {
    const auto* block = ir::As<ir::Block>(s);
    if (block == nullptr) return true;
    int64_t terms = 1;
    for (const ir::BlockIter& iter : block->iters)
      terms *= iter.kind == ir::IterKind::kReduce ? iter.extent : 1;
    longest = std::max(longest, terms);
    return false;
  });
  return longest;
}

}  // namespace heddle::codegen
