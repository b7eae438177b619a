// Cuts a table of independent rows into the blocks that a module has kernels for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle::runtime {

class RowCut {
 public:
  // `rows`: of each block, the largest first; at least one block. `cold_ns`: how long the kernels of each one took when they were
  // measured with their code and constants outside of the caches; empty: not all of them were measured. `warm_ns`: what those took
  // beside them whose code and constants were inside, as those of trees (measure/measure.h); empty, or as many as `cold_ns`.
  RowCut(std::vector<int64_t> rows, const std::vector<double>& cold_ns,
         const std::vector<double>& warm_ns = {});

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
  std::vector<double> ns_;     // NsInCall; empty: not known
};

// What each block takes in a call of several, estimated; empty if `cold_ns` is. Warm times count as they are, and the rest is about
// cold ones.
//
// Blocks of a call share code and constants, which only the first one finds outside of the caches. Measured cold, a small block
// may be nearly all misses: 16 rows of a linear model with 10 classes took 12.7 us, and a further block of the same call 1.4 us. But
// 16 rows of 500 deep trees took as long in either case, since each row finds other nodes. Records do not
// tell which share is misses. It is at least 0. It is at most what a block of no rows would take by the straight line through the
// two smallest blocks, and at most seven eighths of the smallest block's time. The result is the geometric mean of the times for
// the least and the most misses, so that its ratio to either is the same.
std::vector<double> NsInCall(const std::vector<int64_t>& rows, const std::vector<double>& cold_ns,
                             const std::vector<double>& warm_ns = {});

}  // namespace heddle::runtime
