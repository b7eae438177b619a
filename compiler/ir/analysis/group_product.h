// Recognises products that four warps can make together (wgmma of NVIDIA's sm_90): 64 rows by up to
// 256 columns by 16 terms, with both operands in shared memory. Each thread holds the same sums as
// in the tensor loops of four single warps, so this changes only how such loops are written.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/analysis/tensor_product.h"

namespace heddle::ir {

inline constexpr int64_t kGroupWarps = 4;
inline constexpr int64_t kGroupThreads = kGroupWarps * kWarpThreads;
inline constexpr int64_t kGroupRows = kGroupWarps * kTensorRows;
inline constexpr int64_t kMaxGroupColumns = 256;

// Operands of such products lie in panels: 64 neighbours of the last dimension (128 bytes) for all
// indices of the dimension before it, then the next 64. Within a panel, the eight pieces of 16 bytes
// of row r are swapped: piece p lies at place p ^ (r % 8). (The swap is left to the back end.)
inline constexpr int64_t kPanelWidth = 64;
inline constexpr int64_t kPanelRows = 8;          // rows until the swaps repeat
inline constexpr int64_t kPanelAlignment = 1024;  // bytes
// Whether the buffer is shared memory of 16-bit floats that consists of whole panels.
bool HasPanels(const Buffer& buffer);
// The number of an element, in panels and before the swap.
Expr PanelElement(const Buffer& buffer, const std::vector<Expr>& indices);

struct GroupProduct {
  TensorProduct product;
  std::vector<const For*> outer;  // the loops around the tensor loop but `tiles`, from outside
  const For* tiles = nullptr;     // moves along the columns, by 8; null if there are only 8
  int64_t columns = kTensorColumns;
  // Whether rows of a, or columns of b, are neighbours in memory. Otherwise terms are.
  bool a_transposed = false, b_transposed = false;
};

// Matches a thread loop that holds nothing but a nest of plain loops around a tensor loop, in which
// four consecutive warps make 64 consecutive rows of the same columns. `analyzer` knows the ranges
// of all loops around. Nothing if the thread loop is no such product.
std::optional<GroupProduct> MatchGroupProduct(const For& thread, Analyzer& analyzer);

// Threads stand in groups of four warps. Gives `index` the values that it has for the first thread of
// the group with number `group`, at the first row, column and term of the product.
Expr FirstOfGroup(const Expr& index, const GroupProduct& product, const For& thread,
                  const Expr& group);

}  // namespace heddle::ir
