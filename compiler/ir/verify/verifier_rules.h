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

// Rule `type`: arity and operand types of this node (not of its operands), and that its result type
// is what the operator makes of them.
absl::Status CheckNodeType(const Expr& e);

// Whether iterations of such a loop may run in any order.
bool ClaimsIndependence(LoopKind kind);
bool InsideGpuBlock(const std::vector<const For*>& loops);
std::string Describe(const For& loop);
// Rules `nesting` and `gpu` of a loop inside others, outermost first.
absl::Status CheckNesting(const For& loop, const std::vector<const For*>& outside);
// Rule `tensor` of a tensor loop inside `loops` (outermost first), ranges in `analyzer`. `guarded`:
// a condition stands between it and its thread loop.
absl::Status CheckTensor(const For& loop, const std::vector<const For*>& loops, bool guarded,
                         Analyzer& analyzer);

// For every buffer, the loops that enclose all accesses to it, outermost first.
using CommonLoops = std::unordered_map<const Buffer*, std::vector<const For*>>;
CommonLoops FindCommonLoops(const Program& program);

// True when the store, which runs inside `loops` (outermost first, with ranges and guards in
// `analyzer`), surely or by all affine evidence writes one element in two different iterations of
// loops[at]. Indices are in loop variables. What is not affine in the loop's variable is given the
// benefit of the doubt.
bool WritesOverlap(const std::vector<Expr>& indices, const Buffer& buffer,
                   const std::vector<const For*>& loops, size_t at, Analyzer& analyzer);

}  // namespace heddle::ir
