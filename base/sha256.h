// SHA-256, of bytes at hand or of a stream.
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
  // Ends the hash: one call, of one of the two.
  std::string Raw();  // 32 bytes
  std::string Hex();  // 64 lower-case digits

 private:
  evp_md_ctx_st* context_;
};

// 64 lower-case digits.
std::string Sha256Hex(std::string_view bytes);

}  // namespace heddle
