#include "cost_model/blob.h"

#include <bit>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace heddle::cost_model {

void BlobWriter::Unsigned(uint64_t v) {
  while (v >= 0x80) {
    bytes_.push_back(static_cast<char>(v | 0x80));
    v >>= 7;
  }
  bytes_.push_back(static_cast<char>(v));
}

void BlobWriter::Signed(int64_t v) {
  Unsigned((static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63));
}

void BlobWriter::Fixed64(uint64_t v) {
  for (int i = 0; i < 8; ++i) bytes_.push_back(static_cast<char>(v >> (8 * i)));
}

void BlobWriter::Double(double v) { Fixed64(std::bit_cast<uint64_t>(v)); }

void BlobWriter::Float(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  for (int i = 0; i < 4; ++i) bytes_.push_back(static_cast<char>(bits >> (8 * i)));
}

void BlobWriter::Bytes(std::string_view bytes) {
  Unsigned(bytes.size());
  bytes_.append(bytes);
}

std::string_view BlobReader::Raw(size_t size) {
  if (!ok_ || size > rest_.size()) {
    ok_ = false;
    return {};
  }
  const std::string_view raw = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return raw;
}

uint64_t BlobReader::Unsigned() {
  uint64_t v = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const std::string_view byte = Raw(1);
    if (byte.empty()) return 0;
    v |= static_cast<uint64_t>(byte[0] & 0x7f) << shift;
    if ((byte[0] & 0x80) == 0) return v;
  }
  ok_ = false;
  return 0;
}

int64_t BlobReader::Signed() {
  const uint64_t v = Unsigned();
  return static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1);
}

uint64_t BlobReader::Fixed64() {
  uint64_t v = 0;
  const std::string_view raw = Raw(8);
  for (size_t i = 0; i < raw.size(); ++i) v |= uint64_t{static_cast<uint8_t>(raw[i])} << (8 * i);
  return v;
}

double BlobReader::Double() { return std::bit_cast<double>(Fixed64()); }

float BlobReader::Float() {
  uint32_t v = 0;
  const std::string_view raw = Raw(4);
  for (size_t i = 0; i < raw.size(); ++i) v |= uint32_t{static_cast<uint8_t>(raw[i])} << (8 * i);
  return std::bit_cast<float>(v);
}

std::string_view BlobReader::Bytes() {
  const uint64_t size = Unsigned();
  return Raw(size);
}

size_t BlobReader::Count() {
  const uint64_t count = Unsigned();
  if (count > rest_.size()) ok_ = false;
  return ok_ ? count : 0;
}

uint64_t HashBytes(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string Seal(std::string_view magic, uint32_t version, std::string_view payload) {
  std::string blob(magic);
  for (int i = 0; i < 4; ++i) blob.push_back(static_cast<char>(version >> (8 * i)));
  blob.append(payload);
  BlobWriter checksum;
  checksum.Fixed64(HashBytes(blob));
  return blob + std::move(checksum).Take();
}

absl::StatusOr<std::string_view> Unseal(std::string_view magic, uint32_t version,
                                        std::string_view blob) {
  constexpr size_t kChecksum = 8;
  const size_t head = magic.size() + 4;
  if (blob.size() < head + kChecksum || blob.substr(0, magic.size()) != magic) {
    return absl::DataLossError("not a " + std::string(magic) + " blob");
  }
  const size_t body = blob.size() - kChecksum;
  if (BlobReader(blob.substr(body)).Fixed64() != HashBytes(blob.substr(0, body))) {
    return absl::DataLossError(std::string(magic) + " blob: checksum does not match");
  }
  uint32_t stored = 0;
  for (size_t i = 0; i < 4; ++i) {
    stored |= uint32_t{static_cast<uint8_t>(blob[magic.size() + i])} << (8 * i);
  }
  if (stored != version) {
    return absl::DataLossError(std::string(magic) + " blob: version " + std::to_string(stored) +
                               ", expected " + std::to_string(version));
  }
  return blob.substr(head, body - head);
}

}  // namespace heddle::cost_model
