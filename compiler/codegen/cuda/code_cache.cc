#include "compiler/codegen/cuda/code_cache.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace heddle::codegen {

namespace {

uint64_t Hash(const std::string& text) { return XXH3_64bits(text.data(), text.size()); }

// A file is a header, then key, cubin and log. `sum` is the hash of everything after the header.
constexpr char kMagic[8] = {'h', 'e', 'd', 'd', 'l', 'e', 'c', '1'};
struct Header {
  char magic[8];
  uint64_t sum;
  uint64_t key, cubin, log;
};

std::string Body(const std::string& key, const CodeCache::Code& code) {
  return absl::StrCat(key, code.cubin, code.log);
}

}  // namespace

std::optional<CodeCache> CodeCache::Open() {
  const char* folder = std::getenv("HEDDLE_CODE_CACHE");
  if (folder == nullptr || *folder == '\0') return std::nullopt;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!std::filesystem::is_directory(folder, error)) return std::nullopt;
  return CodeCache(folder);
}

std::string CodeCache::FileOf(const std::string& key) const {
  return absl::StrCat(folder_, "/", absl::Hex(Hash(key) % kFiles, absl::kZeroPad4), ".code");
}

std::optional<CodeCache::Code> CodeCache::Find(const std::string& key) const {
  std::ifstream file(FileOf(key), std::ios::binary | std::ios::ate);
  const int64_t size = file.tellg();  // a folder has a size, too
  Header header;
  if (size < static_cast<int64_t>(sizeof header) || size > static_cast<int64_t>(kLargestFile))
    return std::nullopt;
  std::string bytes(static_cast<size_t>(size), '\0');
  file.seekg(0);
  if (!file.read(bytes.data(), size)) return std::nullopt;  // fails without an exception
  std::memcpy(&header, bytes.data(), sizeof header);
  const uint64_t rest = bytes.size() - sizeof header;
  const bool fits = std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 &&
                    header.key == key.size() && header.key <= rest &&
                    header.cubin <= rest - header.key &&
                    header.log == rest - header.key - header.cubin &&
                    bytes.compare(sizeof header, header.key, key) == 0;
  if (!fits) return std::nullopt;
  const size_t cubin = sizeof header + header.key;
  Code code{bytes.substr(cubin, header.cubin), bytes.substr(cubin + header.cubin)};
  if (Hash(Body(key, code)) != header.sum) return std::nullopt;
  return code;
}

void CodeCache::Put(const std::string& key, const Code& code) const {
  const std::string body = Body(key, code);
  if (sizeof(Header) + body.size() > kLargestFile) return;
  Header header{{}, Hash(body), key.size(), code.cubin.size(), code.log.size()};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  // Two processes that write at once may damage the file; its checksum then shows it. If a process
  // is killed while it writes, the next one overwrites the incomplete file.
  const std::string name = FileOf(key), fresh = name + ".new";
  std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&header), sizeof header);
  file.write(body.data(), static_cast<std::streamsize>(body.size()));
  file.close();
  std::error_code error;
  if (file.good()) std::filesystem::rename(fresh, name, error);
  if (!file.good() || error) std::filesystem::remove(fresh, error);
}

}  // namespace heddle::codegen
