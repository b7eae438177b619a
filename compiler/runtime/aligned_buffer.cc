#include "compiler/runtime/aligned_buffer.h"

#include <sys/mman.h>

namespace heddle::runtime {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kPage = 4096;
// Buffers of at least this size get huge pages, even if they do not fill one. Small pages lie
// anywhere in physical memory, so a tensor that fits the second-level cache may evict parts of
// itself, and a kernel's time may differ by half between processes.
constexpr int64_t kWorthHuge = 128 << 10;
// Far more than any machine has. Keeps the arithmetic below from overflowing.
constexpr int64_t kLargest = int64_t{1} << 46;

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

AlignedBuffer AlignedBuffer::Allocate(int64_t bytes) {
  AlignedBuffer buffer;
  if (bytes < 0 || bytes > kLargest) return buffer;
  const bool huge = bytes >= kWorthHuge;
  const int64_t size = RoundUp(bytes == 0 ? 1 : bytes, huge ? kHugePage : kPage);
  const int64_t mapped = huge ? size + kHugePage : size;
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return buffer;
  auto address = reinterpret_cast<int64_t>(base);
  if (huge) {
    address = RoundUp(address, kHugePage);
    madvise(reinterpret_cast<void*>(address), size, MADV_HUGEPAGE);  // a hint that may be refused
  }
  buffer.base_ = base;
  buffer.mapped_ = mapped;
  buffer.data_ = reinterpret_cast<char*>(address);
  buffer.size_ = bytes;
  return buffer;
}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  if (this != &other) {
    Reset();
    base_ = std::exchange(other.base_, nullptr);
    mapped_ = std::exchange(other.mapped_, 0);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void AlignedBuffer::Reset() {
  if (base_ != nullptr) munmap(base_, mapped_);
  base_ = nullptr;
  data_ = nullptr;
}

}  // namespace heddle::runtime
