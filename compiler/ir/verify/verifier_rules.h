// Parts of the verifier. Private to verifier*.cc.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "compiler/ir/analysis/analyzer.h"
#include "compiler/ir/ir.h"

namespace heddle::ir {

// FailedPrecondition "rule: message, in: statement" (long statements are cut).
absl::Status RuleBroken(const char* rule, const std::string& message, const std::string& where);

// Rule `type` for this node without its operands: arity, operand types and result type agree.
absl::Status CheckNodeType(const Expr& e);

// Whether iterations of such a loop may run in any order.
bool ClaimsIndependence(LoopKind kind);
bool InsideGpuBlock(const std::vector<const For*>& loops);
std::string Describe(const For& loop);
// Rules `nesting` and `gpu` of a loop inside others, outermost first.
absl::Status CheckNesting(const For& loop, const std::vector<const For*>& outside);
// Rule `tensor` of a tensor loop inside `loops` (outermost first), whose ranges `analyzer` knows.
// `guarded`: a condition stands between it and its thread loop.
absl::Status CheckTensor(const For& loop, const std::vector<const For*>& loops, bool guarded,
                         Analyzer& analyzer);

// For every buffer, the loops that enclose all accesses to it, outermost first.
using CommonLoops = std::unordered_map<const Buffer*, std::vector<const For*>>;
CommonLoops FindCommonLoops(const Program& program);

// Whether affine analysis finds that a store writes one element in two iterations of loops[at].
// `indices` are in loop variables; `loops` are those around the store, outermost first, and
// `analyzer` knows their ranges and the guards. False where an index is not affine in the loop's
// variable.
bool WritesOverlap(const std::vector<Expr>& indices, const Buffer& buffer,
                   const std::vector<const For*>& loops, size_t at, Analyzer& analyzer);

}  // namespace heddle::ir
