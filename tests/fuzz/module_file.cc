// Module files (compiler/runtime/module.h), as they are and with their checksums corrected: a fuzzer finds no checksum, and one who
// damages a file on purpose corrects them. The code is not loaded; it is native code, and only its headers can be checked.
#include "compiler/runtime/module.h"

#include <elf.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/alignment.h"
#include "compiler/runtime/cubins.h"
#include "compiler/runtime/elf_check.h"
#include "compiler/runtime/manifest_json.h"
#include "tests/fuzz/fuzz_target.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace heddle::fuzz {
namespace {

constexpr size_t kHeaderBytes = 24, kLengthAt = 8, kChecksumAt = 16, kManifestAt = 24;
constexpr size_t kDigits = 16;  // of a section's checksum

void PutU64(uint64_t value, size_t at, std::string* file) {
  for (size_t i = 0; i < 8; ++i) (*file)[at + i] = static_cast<char>(value >> (8 * i));
}

uint64_t GetU64(size_t at, std::string_view file) {
  uint64_t value = 0;
  for (size_t i = 0; i < 8; ++i) value |= uint64_t{static_cast<uint8_t>(file[at + i])} << (8 * i);
  return value;
}

// The checksums of sections are text of a fixed length, so that the manifest keeps its length.
std::string WithChecksums(std::string_view input) {
  std::string file(input);
  const size_t length = std::min<uint64_t>(GetU64(kLengthAt, file), file.size() - kHeaderBytes);
  PutU64(length, kLengthAt, &file);
  runtime::Manifest manifest;
  std::vector<runtime::Section> sections;
  (void)runtime::ParseManifest(std::string_view(file).substr(kManifestAt, length), &manifest,
                               &sections);
  const size_t start = AlignUp(kHeaderBytes + length);
  for (const runtime::Section& section : sections) {
    const std::string_view whole(file);
    const auto offset = static_cast<uint64_t>(section.offset),
               size = static_cast<uint64_t>(section.size);
    if (section.xxh3.size() != kDigits || start > whole.size() || offset > whole.size() - start ||
        size > whole.size() - start - offset)
      continue;
    const std::string_view bytes = whole.substr(start + offset, size);
    const size_t at = whole.substr(0, kManifestAt + length).find(section.xxh3, kManifestAt);
    if (at == std::string_view::npos) continue;
    const std::string digits =
        absl::StrCat(absl::Hex(XXH3_64bits(bytes.data(), bytes.size()), absl::kZeroPad16));
    file.replace(at, kDigits, digits);
  }
  PutU64(XXH3_64bits(file.data() + kManifestAt, length), kChecksumAt, &file);
  return file;
}

void Read(std::string_view file) {
  const absl::StatusOr<runtime::Module> module = runtime::ParseModule(file);
  if (!module.ok()) {
    Require(module.status().message().find('\n') == std::string_view::npos,
            "a refusal is one line");
    return;
  }
  (void)runtime::CheckElf(module->code, EM_X86_64, ET_DYN);
  (void)runtime::CheckElf(module->code, runtime::kElfMachineCuda, 0);
  (void)runtime::SplitCubins(module->code);
  const runtime::Manifest& manifest = module->manifest;
  Require(manifest.NumResults() >= 0, "the outputs that hold lengths exist");
  for (const auto* tensors : {&manifest.inputs, &manifest.outputs}) {
    for (const runtime::TensorSpec& tensor : *tensors) {
      Require(tensor.SizeBytes() >= 0, "a size is not negative");
      for (size_t block = 1; block < manifest.NumBlocks(); ++block)
        Require(manifest.InBlock(tensor, block).SizeBytes() <= tensor.SizeBytes(),
                "a smaller block is not larger");
    }
  }
  (void)manifest.LeastExactNumerics();
  // Only parameters for which a packing was found can be packed again.
  if (!manifest.packed.empty()) return;
  Require(runtime::ParseModule(runtime::SerializeModule(*module)).ok(),
          "what was read can be written and read");
}

}  // namespace

void Run(std::string_view input) {
  Read(input);
  if (input.size() >= kHeaderBytes) Read(WithChecksums(input));
}

}  // namespace heddle::fuzz
