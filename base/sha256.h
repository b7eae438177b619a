// SHA-256 of bytes in memory or of a stream.
#pragma once

#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace heddle {

// A hash in progress. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(std::string_view bytes);
  // Each of the two ends the hash. Call only one of them, once.
  std::string Raw();  // 32 bytes
  std::string Hex();  // 64 lower-case digits

 private:
  evp_md_ctx_st* context_;
};

// 64 lower-case digits.
std::string Sha256Hex(std::string_view bytes);

}  // namespace heddle
