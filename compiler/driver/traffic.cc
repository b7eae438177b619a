#include "compiler/driver/traffic.h"

#include <algorithm>
#include <unordered_map>

#include "compiler/ir/visit.h"

namespace heddle::internal {
namespace {

// The number of elements loaded from each buffer. Both branches of a select count.
using Loads = std::unordered_map<const ir::Buffer*, double>;

void CountLoads(const ir::Stmt& stmt, double times, Loads* loads) {
  ir::ForEachExpr(stmt, [&](const ir::Expr& e) {
    ir::VisitLoads(e, [&](const ir::Expr& load) { (*loads)[load->buffer.get()] += times; });
  });
  if (const auto* loop = ir::As<ir::For>(stmt)) times *= static_cast<double>(loop->extent);
  ir::ForEachChild(stmt, [&](const ir::Stmt& child) { CountLoads(child, times, loads); });
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
