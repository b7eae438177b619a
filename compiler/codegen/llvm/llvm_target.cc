#include "compiler/codegen/llvm/llvm_target.h"

#include <algorithm>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/near_names.h"
#include "base/status_macros.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/Triple.h"

namespace heddle::codegen {

namespace {

constexpr size_t kMaxSuggestions = 5;

// The text "; near names: a, b, c", with the nearest name first.
std::string NearNamesText(const std::string& name, std::vector<std::string> known) {
  known = NearNames(name, std::move(known), kMaxSuggestions);
  return known.empty() ? "" : absl::StrCat("; near names: ", absl::StrJoin(known, ", "));
}

template <typename Table>
std::vector<std::string> Keys(const Table& table) {
  std::vector<std::string> keys;
  for (const auto& entry : table) keys.emplace_back(entry.Key);
  return keys;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

absl::StatusOr<const llvm::Target*> FindTarget(const std::string& triple) {
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown triple '", triple, "'; an example: aarch64-linux-gnu"));
  }
  if (!llvm::Triple(triple).isOSBinFormatELF()) {
    return absl::InvalidArgumentError(
        absl::StrCat("triple '", triple, "' does not use ELF; only ELF targets are supported"));
  }
  return target;
}

}  // namespace

void InitializeLlvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeAllTargetInfos();
    llvm::InitializeAllTargets();
    llvm::InitializeAllTargetMCs();
    llvm::InitializeAllAsmPrinters();
    llvm::InitializeAllDisassemblers();
  });
}

std::string TripleOf(const Target& target) {
  return llvm::Triple::normalize(target.triple.empty() ? llvm::sys::getDefaultTargetTriple()
                                                       : target.triple);
}

absl::Status CheckTarget(const Target& target) {
  InitializeLlvm();
  if (target.kind != TargetKind::kLlvm) {
    return absl::InvalidArgumentError("not a target of LLVM; use `llvm -mcpu=..`");
  }
  const std::string triple = TripleOf(target);
  HEDDLE_ASSIGN_OR_RETURN(const llvm::Target* found, FindTarget(triple));
  std::unique_ptr<llvm::MCSubtargetInfo> info(found->createMCSubtargetInfo(triple, "", ""));
  if (!info)
    return absl::InvalidArgumentError(
        absl::StrCat("LLVM cannot generate code for triple '", triple, "'"));
  std::vector<std::string> cpus = Keys(info->getAllProcessorDescriptions());
  if (!Contains(cpus, target.cpu)) {
    return absl::InvalidArgumentError(absl::StrCat("unknown CPU '", target.cpu, "' for ",
                                                   llvm::Triple(triple).getArchName().str(),
                                                   NearNamesText(target.cpu, std::move(cpus))));
  }
  std::vector<std::string> features = Keys(info->getAllProcessorFeatures());
  for (const std::string& attr :
       std::vector<std::string>(absl::StrSplit(target.attrs, ',', absl::SkipEmpty()))) {
    if (attr[0] != '+' && attr[0] != '-') {
      return absl::InvalidArgumentError(
          absl::StrCat("feature '", attr, "' of -mattr needs a leading + or -"));
    }
    if (!Contains(features, attr.substr(1))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown feature '", attr.substr(1), "' for ", llvm::Triple(triple).getArchName().str(),
          NearNamesText(attr.substr(1), std::move(features))));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<llvm::TargetMachine>> MakeTargetMachine(const Target& target,
                                                                       int opt_level) {
  HEDDLE_RETURN_IF_ERROR(CheckTarget(target));
  const std::string triple = TripleOf(target);
  HEDDLE_ASSIGN_OR_RETURN(const llvm::Target* found, FindTarget(triple));
  static constexpr llvm::CodeGenOptLevel kLevels[] = {
      llvm::CodeGenOptLevel::None, llvm::CodeGenOptLevel::Less, llvm::CodeGenOptLevel::Default,
      llvm::CodeGenOptLevel::Aggressive};
  llvm::TargetOptions options;
  std::unique_ptr<llvm::TargetMachine> machine(
      found->createTargetMachine(triple, target.cpu, target.attrs, options, llvm::Reloc::PIC_,
                                 std::nullopt, kLevels[std::clamp(opt_level, 0, 3)]));
  if (!machine)
    return absl::InvalidArgumentError(
        absl::StrCat("LLVM cannot generate code for triple '", triple, "'"));
  return machine;
}

VectorUnit DescribeVectorUnit(const llvm::TargetMachine& machine) {
  const llvm::MCSubtargetInfo& info = *machine.getMCSubtargetInfo();
  const llvm::Triple& triple = machine.getTargetTriple();
  auto has = [&](const char* feature) { return info.checkFeatures(std::string("+") + feature); };
  if (triple.isX86()) {
    // AVX10/256 has the instructions of AVX-512 with registers of 32 bytes.
    const bool avx512 = has("avx512f") && (has("evex512") || !has("avx10.1-256"));
    const LookupUnit lookup = {.avx2 = has("avx2"),
                               .avx512f = avx512,
                               .avx512bw = avx512 && has("avx512bw"),
                               .avx512vbmi = avx512 && has("avx512vbmi"),
                               .fast_gather = has("fast-gather")};
    if (avx512) return {64, 32, true, true, lookup};
    return {has("avx") ? 32 : 16, triple.isArch64Bit() ? 16 : 8, false, has("f16c"), lookup};
  }
  return {16, 32, false, triple.isAArch64()};
}

}  // namespace heddle::codegen
