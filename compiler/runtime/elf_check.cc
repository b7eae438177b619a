#include "compiler/runtime/elf_check.h"

#include <elf.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace heddle::runtime {
namespace {

const char* ObjectKind(uint16_t machine) {
  return machine == kElfMachineCuda ? "GPU code (a cubin)" : "a shared object";
}

}  // namespace

absl::Status CheckElf(std::string_view bytes, uint16_t machine, uint16_t type) {
  const std::string kind = ObjectKind(machine);
  Elf64_Ehdr header;
  if (bytes.size() < sizeof(header) || bytes.substr(0, SELFMAG) != ELFMAG) {
    return absl::InvalidArgumentError(absl::StrCat("not ", kind));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      (type != 0 && header.e_type != type)) {
    return absl::InvalidArgumentError(absl::StrCat("not ", kind, " of 64 bits"));
  }
  if (header.e_machine != machine) {
    return absl::InvalidArgumentError(absl::StrCat("code is for another architecture (ELF machine ",
                                                   header.e_machine, ", this machine is ", machine,
                                                   ")"));
  }
  const auto fits = [&](uint64_t offset, uint64_t size) {
    return offset <= bytes.size() && size <= bytes.size() - offset;
  };
  const absl::Status truncated = absl::InvalidArgumentError(absl::StrCat(kind, " is truncated"));
  if (header.e_phnum > 0 &&
      (header.e_phentsize != sizeof(Elf64_Phdr) ||
       !fits(header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr)))) {
    return truncated;
  }
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, bytes.data() + header.e_phoff + i * sizeof(segment), sizeof(segment));
    if (!fits(segment.p_offset, segment.p_filesz)) return truncated;
  }
  if (machine != kElfMachineCuda) return absl::OkStatus();  // dlopen reads segments only
  if (header.e_shentsize != sizeof(Elf64_Shdr) ||
      !fits(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr))) {
    return truncated;
  }
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, bytes.data() + header.e_shoff + i * sizeof(section), sizeof(section));
    if (section.sh_type != SHT_NOBITS && !fits(section.sh_offset, section.sh_size)) {
      return truncated;
    }
  }
  return absl::OkStatus();
}

}  // namespace heddle::runtime
