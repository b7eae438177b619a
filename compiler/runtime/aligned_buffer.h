// Zeroed memory for tensors, aligned as abi.h promises to kernels.
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
  static AlignedBuffer Allocate(int64_t bytes);
  ~AlignedBuffer() { Reset(); }
  AlignedBuffer(AlignedBuffer&& other) noexcept { *this = std::move(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;

  bool ok() const { return data_ != nullptr; }
  char* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  void Reset();
  void* base_ = nullptr;  // start of the mapping
  int64_t mapped_ = 0;    // its length
  char* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace heddle::runtime
