// NVRTC, the CUDA run-time compiler, found and loaded with dlopen: nothing of CUDA is included or
// linked. Private to this folder.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::codegen {

// Looked for in this order: the file that HEDDLE_NVRTC names (then nothing else is tried), the
// dynamic linker's search (LD_LIBRARY_PATH), CUDA_HOME/lib64, /usr/local/cuda/lib64, and
// nvidia/*/lib of the Python packages below VIRTUAL_ENV. A driver loads code of its own and of
// earlier major versions of CUDA: on a machine with a driver, the first NVRTC that suits it is
// taken, and another one only if none does.
class Nvrtc {
 public:
  // Loads it once a process. Unavailable, with one line that says where it was looked for.
  static absl::StatusOr<const Nvrtc*> Get();

  std::string Version() const;  // "NVRTC 13.0"
  // Identifies this compiler: its release, and path, size and time of its file. Empty if these are
  // not known.
  std::string Identity() const;
  // One line if this machine's driver does not load what this compiles; else empty.
  std::string Complaint() const;
  // Architectures it compiles for: 80 for sm_80.
  std::vector<int> Architectures() const;

  struct Result {
    std::string cubin;
    std::string log;  // warnings, and the assembler's report of registers and memory
  };
  // Internal with the first error line of the log: the source does not compile.
  absl::StatusOr<Result> Compile(const std::string& source,
                                 const std::vector<std::string>& options) const;

 private:
  struct Api;
  explicit Nvrtc(const Api* api) : api_(api) {}
  static absl::StatusOr<const Nvrtc*> Load();
  const Api* api_;
};

}  // namespace heddle::codegen
