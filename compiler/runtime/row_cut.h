// Cuts a table of independent rows into the blocks that a module has kernels for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle::runtime {

class RowCut {
 public:
  // `rows`: of each block, the largest first; at least one block. `cold_ns`: how long each one took when its kernels were
  // measured, with their code and constants outside of the caches; empty: not all of them were measured.
  RowCut(std::vector<int64_t> rows, const std::vector<double>& cold_ns);

  struct Piece {
    size_t block = 0;
    int64_t rows = 0;  // of `left`; what the block has beyond them is computed for nothing
  };
  // The block that the first of `left` rows go into, left > 0.
  //
  // The largest block that fits comes first. What is left and fits into no smaller block goes into one larger block, if
  // that takes less time than smaller blocks do. A block that takes clearly longer for a row than a smaller one does is not used. If
  // times are not known, all blocks are used, and a block takes what is left if that fills it at least by half. The smallest
  // block takes what is left in any case.
  Piece Next(int64_t left) const;

 private:
  bool Pads(int64_t left, size_t k) const;
  double NsOf(int64_t left, size_t k) const;

  // Blocks that are used, the largest first.
  std::vector<size_t> blocks_;
  std::vector<int64_t> rows_;  // of each of them
  std::vector<double> ns_;     // with warm caches, estimated; empty: not known
};

// What a block takes beside others of the same call, which have brought code and constants into the caches; as `cold_ns`.
//
// Measured cold, a small block is nearly all cache misses: 16 rows of a linear model with 10 classes 12.7 us, where a further
// block takes 1.4 us. All blocks have about the same misses, since their constants are the same. So these are what a block of
// no rows would take, on the line through the two smallest blocks: 11.9 us for one row make 11.8 us there. At least an eighth
// of the smallest block's time is taken to be work (it was between a fifth and a sixtieth of that of four models with one row).
std::vector<double> WarmNs(const std::vector<int64_t>& rows, const std::vector<double>& cold_ns);

}  // namespace heddle::runtime
