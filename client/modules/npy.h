// NumPy's .npy files, the inputs and outputs of `heddle run`.
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

// InvalidArgument names the problem: not an .npy file, Fortran order, big endian, an element type
// that the runtime lacks, a size that does not match the shape.
absl::StatusOr<NpyArray> ParseNpy(std::string_view bytes);
absl::StatusOr<NpyArray> ReadNpyFile(const std::string& path);
std::string SerializeNpy(const NpyArray& array);  // bf16 as f32: NumPy has none

// The name of the .npy file of output `index`. Names of outputs are any text, so bytes that mean
// something to a file system or a shell, and '%', are written %XX as in a URL, and so are those of
// ".." and of a leading '-'. What is longer than a file's name may be is "%output-<index>.npy", which
// no name becomes.
std::string NpyFileName(std::string_view name, int index);

absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace heddle::client
