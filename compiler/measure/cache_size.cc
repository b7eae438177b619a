#include "compiler/measure/cache_size.h"

#include <fstream>

#include "absl/strings/str_cat.h"

namespace heddle {

int64_t ThirdLevelCacheBytes(const std::string& folder) {
  constexpr int kMostCaches = 16;
  for (int i = 0; i < kMostCaches; ++i) {
    const std::string cache = absl::StrCat(folder, "/index", i);
    int level = 0;
    int64_t kib = 0;
    char unit = 0;
    if (!(std::ifstream(cache + "/level") >> level) || level != 3) continue;
    if (std::ifstream(cache + "/size") >> kib >> unit && unit == 'K' && kib > 0) return kib << 10;
  }
  return 0;
}

}  // namespace heddle
