// NumPy's .npy files, the inputs and outputs of `heddle run`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
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

// Read or write a whole file. Writing is atomic (a temporary file beside the target, then a
// rename), so a full disk leaves the old file intact.
absl::StatusOr<std::string> ReadFile(const std::string& path);
absl::Status WriteFile(const std::string& path, std::string_view bytes);

// Writes a file piece by piece, as WriteFile does. Without Commit, nothing changes.
class OutputFile {
 public:
  static absl::StatusOr<OutputFile> Open(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  ~OutputFile();
  absl::Status Append(std::string_view bytes);
  absl::Status Commit();

 private:
  OutputFile(std::string path, std::string temporary, int file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(file) {}
  absl::Status Error(int error) const;

  std::string path_;
  std::string temporary_;  // empty: it is written in place, or is committed
  int file_;
};

}  // namespace heddle::client
