// Zeroed memory for tensors, aligned as abi.h promises to kernels, and placed so that a kernel's time
// does not depend on the addresses that a process happens to get.
//
// AMD's first-level data cache predicts the way of a line from a hash of address bits 12 to 27 (Lipp et
// al., "Take A Way", AsiaCCS 2020). Two lines with equal hashes and the same set evict each other. Address
// space randomisation would decide, anew in every process, which tensors do that. So these bits are
// chosen here; placed_stack.h does the like for the stack. Other CPUs do not mind.
#pragma once

#include <cstdint>
#include <utility>

#include "base/alignment.h"

namespace heddle::runtime {

// Movable, not copyable. Large blocks ask for huge pages, so that the rows of a tensor need few TLB
// entries.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // ok() is false if the system refuses the memory. A size of zero gives a valid non-null block.
  // Buffers that are used together get different colours, 0 .. kColours - 1: the address modulo
  // kColours x 2 MiB is `colour` x 2 MiB. Equal places in buffers of different colours do not share a
  // hash. (If address space is short, the buffer lies anywhere.)
  static constexpr int kColours = 128;
  static AlignedBuffer Allocate(int64_t bytes, int colour = 0);
  ~AlignedBuffer() { Reset(); }
  AlignedBuffer(AlignedBuffer&& other) noexcept { *this = std::move(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;

  bool ok() const { return data_ != nullptr; }
  char* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  void Reset();
  char* data_ = nullptr;
  int64_t mapped_ = 0;  // length of its mapping
  int64_t size_ = 0;
};

}  // namespace heddle::runtime
