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

// Maps `size` bytes at an address that is `offset` modulo `unit`; null if the system refuses.
char* MapAt(int64_t size, int64_t offset, int64_t unit) {
  const int64_t reserved = size + unit;
  void* base = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<int64_t>(base), end = begin + reserved;
  int64_t address = RoundUp(begin, unit) + offset;
  if (address + size > end) address -= unit;
  if (address < begin) address += unit;
  if (address > begin) munmap(base, address - begin);
  if (end > address + size) munmap(reinterpret_cast<void*>(address + size), end - address - size);
  return reinterpret_cast<char*>(address);
}

}  // namespace

AlignedBuffer AlignedBuffer::Allocate(int64_t bytes, int colour) {
  AlignedBuffer buffer;
  if (bytes < 0 || bytes > kLargest) return buffer;
  const bool huge = bytes >= kWorthHuge;
  const int64_t size = RoundUp(bytes == 0 ? 1 : bytes, huge ? kHugePage : kPage);
  const int64_t offset = (colour % kColours) * kHugePage;
  char* data = MapAt(size, offset, kColours * kHugePage);
  if (data == nullptr) data = MapAt(size, 0, kHugePage);
  if (data == nullptr) return buffer;
  if (huge) madvise(data, size, MADV_HUGEPAGE);  // a hint that may be refused
  buffer.mapped_ = size;
  buffer.data_ = data;
  buffer.size_ = bytes;
  return buffer;
}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  if (this != &other) {
    Reset();
    mapped_ = std::exchange(other.mapped_, 0);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void AlignedBuffer::Reset() {
  if (data_ != nullptr) munmap(data_, mapped_);
  data_ = nullptr;
}

}  // namespace heddle::runtime
