#include "worker/stages/chunks.h"

#include <openssl/evp.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace heddle::worker {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
// Protobuf, and with it ONNX, ends here too.
constexpr size_t kMaxBytes = size_t{2} << 30;

}  // namespace

std::string Sha256(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

absl::StatusOr<std::optional<std::string>> ReadChunks(StageIo& io, std::string_view name) {
  std::string bytes;
  bool any = false;
  bool complete = false;
  v1::StageInput input;
  while (io.Read(&input)) {
    if (!input.has_chunk() || input.chunk().name() != name || complete) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected one value in chunks named ", std::string(name)));
    }
    any = true;
    if (bytes.size() + input.chunk().data().size() > kMaxBytes) {
      return absl::InvalidArgumentError(absl::StrCat(std::string(name), " is larger than 2 GiB"));
    }
    bytes += input.chunk().data();
    if (!input.chunk().last()) continue;
    complete = true;
    if (input.chunk().sha256() != Sha256(bytes)) {
      return absl::DataLossError(
          absl::StrCat(std::string(name), " was damaged on the way: its digest differs"));
    }
  }
  if (!any) return std::optional<std::string>();
  if (!complete)
    return absl::DataLossError(absl::StrCat(std::string(name), " was cut short on the way"));
  return std::optional<std::string>(std::move(bytes));
}

void WriteChunks(StageIo& io, std::string_view name, std::string_view bytes) {
  size_t offset = 0;
  do {
    const size_t size = std::min(kChunkBytes, bytes.size() - offset);
    v1::StageEvent event;
    v1::Chunk* chunk = event.mutable_chunk();
    chunk->set_name(std::string(name));
    chunk->set_data(std::string(bytes.substr(offset, size)));
    offset += size;
    if (offset == bytes.size()) {
      chunk->set_last(true);
      chunk->set_sha256(Sha256(bytes));
    }
    io.Write(event);
  } while (offset < bytes.size());
}

}  // namespace heddle::worker
