// The part of a dense row-major tensor in which every index is below a given extent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace heddle {

// Copies the elements of `from`, a tensor of `shape`, whose index is below `kept` in every dimension
// to `to`, densely. `kept` has the rank of `shape` and is not larger in any dimension.
inline void CopyLeadingPart(const char* from, const std::vector<int64_t>& shape,
                            const std::vector<int64_t>& kept, size_t element_bytes, char* to,
                            size_t dimension = 0) {
  // What lies behind the last dimension that is cut is copied in one piece.
  size_t cut = shape.size();
  while (cut > dimension && shape[cut - 1] == kept[cut - 1]) --cut;
  size_t from_bytes = element_bytes, to_bytes = element_bytes;
  for (size_t d = dimension + 1; d < shape.size(); ++d) {
    from_bytes *= static_cast<size_t>(shape[d]);
    to_bytes *= static_cast<size_t>(kept[d]);
  }
  if (cut <= dimension + 1) {
    const size_t rows = dimension < shape.size() ? static_cast<size_t>(kept[dimension]) : 1;
    if (rows * to_bytes != 0) std::memcpy(to, from, rows * to_bytes);
    return;
  }
  for (int64_t i = 0; i < kept[dimension]; ++i) {
    CopyLeadingPart(from, shape, kept, element_bytes, to, dimension + 1);
    from += from_bytes;
    to += to_bytes;
  }
}

}  // namespace heddle
