// NVRTC, the run-time compiler of CUDA. It is found and loaded with dlopen; no part of CUDA is
// included or linked. Private to this folder.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::codegen {

// NVRTC is looked for in this order: the file that HEDDLE_NVRTC names (then nothing else is tried),
// the dynamic linker's search (LD_LIBRARY_PATH), CUDA_HOME/lib64, /usr/local/cuda/lib64, and
// nvidia/*/lib of the Python packages below VIRTUAL_ENV. A driver loads code of its own and of
// earlier major versions of CUDA. So on a machine with a driver, the first NVRTC whose code the
// driver can load is taken, and another one only if there is none.
class Nvrtc {
 public:
  // Loads NVRTC once per process. Unavailable: it is not found; the message says in one line where
  // it was looked for.
  static absl::StatusOr<const Nvrtc*> Get();

  std::string Version() const;  // "NVRTC 13.0"
  int Major() const;
  // Identifies this compiler by its release and by the path, size and time of its file. Empty if
  // these are not known.
  std::string Identity() const;
  // One line if this machine's driver cannot load the code that this NVRTC makes; else empty.
  std::string Complaint() const;
  // The architectures that it compiles for: 80 for sm_80.
  std::vector<int> Architectures() const;

  struct Result {
    std::string cubin;
    std::string log;  // warnings, and the assembler's report of registers and memory
  };
  // Internal: the source does not compile; the message is the first error line of the log.
  absl::StatusOr<Result> Compile(const std::string& source,
                                 const std::vector<std::string>& options) const;

 private:
  struct Api;
  explicit Nvrtc(const Api* api) : api_(api) {}
  static absl::StatusOr<const Nvrtc*> Load();
  const Api* api_;
};

}  // namespace heddle::codegen
