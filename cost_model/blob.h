// A compact binary encoding for states that travel between workers. Integers have variable length,
// low bits first; floats are stored as their bits, byte strings with their length. A magic word, a
// version and a checksum seal the whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::cost_model {

class BlobWriter {
 public:
  void Unsigned(uint64_t v);
  void Signed(int64_t v);  // zigzag: small magnitudes are short
  void Fixed64(uint64_t v);
  void Double(double v);
  void Float(float v);
  void Bytes(std::string_view bytes);

  std::string Take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what the writer wrote. After the first failure everything reads as zero or empty, and ok()
// is false: callers check once at the end. No count read from the blob may be trusted before
// Count() has compared it with what is left.
class BlobReader {
 public:
  explicit BlobReader(std::string_view bytes) : rest_(bytes) {}

  uint64_t Unsigned();
  int64_t Signed();
  uint64_t Fixed64();
  double Double();
  float Float();
  std::string_view Bytes();
  // A number of elements, each of which takes at least one byte. Fails if fewer bytes are left.
  size_t Count();

  // For values that are read but cannot be: everything after them reads as zero, too.
  void Refuse() { ok_ = false; }

  bool ok() const { return ok_; }
  bool AtEnd() const { return ok_ && rest_.empty(); }

 private:
  std::string_view Raw(size_t size);

  std::string_view rest_;
  bool ok_ = true;
};

// 64-bit XXH3.
uint64_t HashBytes(std::string_view bytes);

std::string Seal(std::string_view magic, uint32_t version, std::string_view payload);
// The payload, as a view into `blob`. DataLoss if the magic word or the version differs, or if the
// checksum does not match.
absl::StatusOr<std::string_view> Unseal(std::string_view magic, uint32_t version,
                                        std::string_view blob);

}  // namespace heddle::cost_model
