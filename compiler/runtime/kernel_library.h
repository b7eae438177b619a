// Loads the machine code of an artifact or a module into this process.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/runtime/abi.h"

namespace heddle::runtime {

// The code stays mapped as long as the object lives. It is loaded from memory (memfd), never from a
// path that others could write.
class KernelLibrary {
 public:
  // InvalidArgument with the dynamic linker's message: the bytes are not a shared object for this
  // machine.
  static absl::StatusOr<std::unique_ptr<KernelLibrary>> Load(std::string_view shared_object);
  ~KernelLibrary();
  absl::StatusOr<heddle_kernel> Find(const std::string& symbol) const;  // NotFound

 private:
  KernelLibrary(void* handle, int fd) : handle_(handle), fd_(fd) {}
  void* handle_;  // dlopen's; null only while loading
  int fd_;        // the memfd that holds the code
};

}  // namespace heddle::runtime
