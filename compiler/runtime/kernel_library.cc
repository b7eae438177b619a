#include "compiler/runtime/kernel_library.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace heddle::runtime {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
#error "name this architecture's ELF machine"
#endif

// dlopen maps what the headers say and reads it: a header that points beyond the file would be a
// SIGBUS, not an error.
absl::Status CheckElf(std::string_view bytes) {
  Elf64_Ehdr header;
  if (bytes.size() < sizeof(header) || bytes.substr(0, SELFMAG) != ELFMAG) {
    return absl::InvalidArgumentError("not a shared object");
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_type != ET_DYN) {
    return absl::InvalidArgumentError("not a 64-bit shared object");
  }
  if (header.e_machine != kMachine) {
    return absl::InvalidArgumentError(absl::StrCat("code is for another architecture (ELF machine ",
                                                   header.e_machine, ", this machine is ", kMachine,
                                                   ")"));
  }
  const auto fits = [&](uint64_t offset, uint64_t size) {
    return offset <= bytes.size() && size <= bytes.size() - offset;
  };
  if (header.e_phentsize != sizeof(Elf64_Phdr) ||
      !fits(header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr))) {
    return absl::InvalidArgumentError("shared object is truncated");
  }
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, bytes.data() + header.e_phoff + i * sizeof(segment), sizeof(segment));
    if (!fits(segment.p_offset, segment.p_filesz)) {
      return absl::InvalidArgumentError("shared object is truncated");
    }
  }
  return absl::OkStatus();
}

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
  if (absl::Status status = CheckElf(shared_object); !status.ok()) return status;
  const int fd = memfd_create("heddle-kernels", MFD_CLOEXEC);
  if (fd < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("memfd_create: ", strerror(errno)));
  }
  // Owns fd from here on. The descriptor stays open as long as the code is loaded, because the
  // dynamic linker takes two libraries of one path for the same, and the path holds the
  // descriptor's number.
  std::unique_ptr<KernelLibrary> library(new KernelLibrary(nullptr, fd));
  if (absl::Status status = WriteAll(fd, shared_object); !status.ok()) return status;
  const std::string path = absl::StrCat("/proc/self/fd/", fd);
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
