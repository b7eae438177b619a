// Recognises the product of tensor cores in a `tensor` loop (ir.h).
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/analysis/analyzer.h"
#include "compiler/ir/ir.h"

namespace heddle::ir {

// A tile of 16 x 8 sums of 16 or 8 terms, made by a warp.
inline constexpr int64_t kWarpThreads = 32;
inline constexpr int64_t kTensorRows = 16, kTensorColumns = 8;
// Terms of one product: registers of 32 bits hold one or two numbers.
inline int64_t TensorTerms(DType operand) { return 32 / SizeOf(operand); }

struct TensorProduct {
  const For *rows = nullptr, *columns = nullptr, *terms = nullptr;  // i, j, k
  Expr a, b;                                                        // the loads, in loop variables
  BufferRef sums;                                                   // c
  std::vector<Expr> indices;                                        // of c, in loop variables
  DType operand = DType::kF16;  // f16, bf16, or f32 (rounded to tf32)
};

// Matches the product in a loop of kind `tensor`, or in one that is to become so, scheduled or
// lowered. The result's `a` is the factor that is the same for all columns. `thread` is the
// threadIdx.x loop around the loop; `analyzer` knows the ranges of all loops around.
// FailedPrecondition says which rule of ir.h is broken: "its factors are not ..".
absl::StatusOr<TensorProduct> MatchTensorProduct(const For& loop, const For& thread,
                                                 Analyzer& analyzer);

// The parts of a thread number: 32 * warp + 4 * group + quad. BindThreadParts makes a variable for
// each and binds its range in `analyzer`. InThreadParts rewrites an index in these variables.
struct ThreadParts {
  VarRef warp, group, quad;
};
ThreadParts BindThreadParts(const For& thread, Analyzer& analyzer);
Expr InThreadParts(const Expr& e, const For& thread, const ThreadParts& parts);

}  // namespace heddle::ir
