#include "base/vocabulary/workload_key.h"

#include "absl/strings/str_cat.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace heddle {

std::string WorkloadKey(std::string_view workload_text) {
  const XXH64_hash_t hash = XXH3_64bits(workload_text.data(), workload_text.size());
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
}

}  // namespace heddle
