// NumPy's .npy files: what `heddle run` takes and gives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::client {

struct NpyArray {
  std::string dtype;  // as in the IR: "f32", "i64", ..
  std::vector<int64_t> shape;
  std::string bytes;  // dense, row-major
};

// InvalidArgument naming what is not understood: not an .npy file, Fortran order, big endian, an
// element type the runtime has not, a size that does not match the shape.
absl::StatusOr<NpyArray> ParseNpy(std::string_view bytes);
absl::StatusOr<NpyArray> ReadNpyFile(const std::string& path);
std::string SerializeNpy(const NpyArray& array);  // bf16 as f32: NumPy has none

// Whole files. The write is atomic (a temporary beside the target, then a rename): a full disk
// leaves the old file whole.
absl::StatusOr<std::string> ReadFile(const std::string& path);
absl::Status WriteFile(const std::string& path, std::string_view bytes);

}  // namespace heddle::client
