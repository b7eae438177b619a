#include "compiler/driver/traffic.h"

#include <algorithm>
#include <unordered_map>

#include "compiler/ir/visit.h"

namespace heddle::internal {
namespace {

// Loads of each buffer, in elements. Both branches of a select count.
using Loads = std::unordered_map<const ir::Buffer*, double>;

void CountLoads(const ir::Stmt& stmt, double times, Loads* loads) {
  const auto count = [&](const ir::Expr& e) {
    ir::VisitExpr(e, [&](const ir::Expr& node) {
      if (node->kind == ir::ExprKind::kLoad) (*loads)[node->buffer.get()] += times;
    });
  };
  if (const auto* loop = ir::As<ir::For>(stmt)) {
    CountLoads(loop->body, times * static_cast<double>(loop->extent), loads);
  } else if (const auto* alloc = ir::As<ir::Alloc>(stmt)) {
    CountLoads(alloc->body, times, loads);
  } else if (const auto* seq = ir::As<ir::Seq>(stmt)) {
    for (const ir::Stmt& child : seq->stmts) CountLoads(child, times, loads);
  } else if (const auto* branch = ir::As<ir::If>(stmt)) {
    count(branch->condition);
    CountLoads(branch->body, times, loads);
  } else {
    ir::VisitStmtExprs(stmt, count);
  }
}

}  // namespace

int64_t UntouchedBytes(const ir::Program& naive) {
  Loads loads;
  CountLoads(naive.body, 1, &loads);
  int64_t untouched = 0;
  for (const ir::BufferRef& input : naive.inputs) {
    const int64_t bytes = input->SizeBytes();
    const double read = loads[input.get()] * static_cast<double>(ir::SizeOf(input->dtype));
    if (read < static_cast<double>(bytes)) untouched += bytes - static_cast<int64_t>(read);
  }
  return untouched;
}

}  // namespace heddle::internal
