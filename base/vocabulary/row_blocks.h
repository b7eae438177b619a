// Blocks of rows: the numbers of rows that a module has kernels for, if its rows are independent.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

inline constexpr size_t kMostRowBlocks = 8;  // each has kernels of its own

// How often a block of `rows` runs if it is given as many rows as the largest block has.
inline int64_t RunsOfBlock(int64_t largest, int64_t rows) { return (largest + rows - 1) / rows; }

}  // namespace heddle
