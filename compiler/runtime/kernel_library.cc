#include "compiler/runtime/kernel_library.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/runtime/elf_check.h"

namespace heddle::runtime {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
#error "name this architecture's ELF machine"
#endif

absl::Status WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return absl::ResourceExhaustedError(absl::StrCat("cannot store code: ", strerror(errno)));
    }
    bytes.remove_prefix(written);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<KernelLibrary>> KernelLibrary::Load(std::string_view shared_object) {
  // dlopen maps and reads the ranges that the headers name. A header that points beyond the file
  // would cause a SIGBUS instead of an error.
  HEDDLE_RETURN_IF_ERROR(CheckElf(shared_object, kMachine, ET_DYN));
  const int fd = memfd_create("heddle-kernels", MFD_CLOEXEC);
  if (fd < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("memfd_create: ", strerror(errno)));
  }
  // `library` owns fd from here on. The descriptor stays open as long as the code is loaded,
  // because the path contains its number and the dynamic linker identifies libraries by path.
  std::unique_ptr<KernelLibrary> library(new KernelLibrary(nullptr, fd));
  HEDDLE_RETURN_IF_ERROR(WriteAll(fd, shared_object));
  const std::string path = absl::StrCat("/proc/self/fd/", fd);
  // Kernels call functions of libm and name no library. A program that loads this one by dlopen need
  // not have it.
  [[maybe_unused]] static void* const libm = dlopen("libm.so.6", RTLD_LAZY | RTLD_GLOBAL);
  library->handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library->handle_ == nullptr) {
    const char* words = dlerror();
    return absl::InvalidArgumentError(
        absl::StrCat("code does not load: ", words != nullptr ? words : "unknown reason"));
  }
  return library;
}

KernelLibrary::~KernelLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
  close(fd_);
}

absl::StatusOr<heddle_kernel> KernelLibrary::Find(const std::string& symbol) const {
  void* address = dlsym(handle_, symbol.c_str());
  if (address == nullptr) return absl::NotFoundError(absl::StrCat("no kernel '", symbol, "'"));
  return reinterpret_cast<heddle_kernel>(address);
}

}  // namespace heddle::runtime
