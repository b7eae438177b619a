#include "compiler/codegen/llvm/cpu_target.h"

#include <unistd.h>

#include <map>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "compiler/codegen/llvm/llvm_target.h"
#include "compiler/machine/cpu_family.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/Triple.h"

namespace heddle::codegen {

namespace {

std::unique_ptr<llvm::MCSubtargetInfo> Subtarget(const std::string& triple, const std::string& cpu,
                                                 const std::string& attrs) {
  InitializeLlvm();
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  return std::unique_ptr<llvm::MCSubtargetInfo>(
      target ? target->createMCSubtargetInfo(triple, cpu, attrs) : nullptr);
}

// False for features that no generated kernel can use: instructions for operating systems or other
// kinds of programs, and hints. Hypervisors hide many of them. Two machines that differ only in
// such features run the same code equally fast, so they get the same target.
bool MattersToKernels(std::string_view feature) {
  static const auto& others = *new std::set<std::string_view>{
      "amx-complex", "cldemote", "clflushopt", "clwb",    "clzero",    "enqcmd",   "fsgsbase",
      "hreset",      "invpcid",  "kl",         "lwp",     "movdir64b", "movdiri",  "mwaitx",
      "pconfig",     "pku",      "prefetchi",  "prfchw",  "ptwrite",   "raoint",   "rdpid",
      "rdpru",       "rdrnd",    "rdseed",     "rtm",     "serialize", "sgx",      "shstk",
      "tbm",         "tsxldtrk", "uintr",      "usermsr", "waitpkg",   "wbnoinvd", "widekl",
      "xsave",       "xsavec",   "xsaveopt",   "xsaves"};
  return !others.contains(feature);
}

// The features of this machine, by LLVM's names, and whether each is present.
const std::map<std::string, bool>& HostFeatures() {
  static const auto& features = *new std::map<std::string, bool>([] {
    std::map<std::string, bool> result;
    for (const auto& entry : llvm::sys::getHostCPUFeatures()) {
      const std::string name = entry.getKey().str();
      if (MattersToKernels(name)) result[name] = entry.getValue();
    }
    return result;
  }());
  return features;
}

std::string HostTriple() { return TripleOf(Target{}); }

// The features in which this machine differs from the CPU named `cpu`, in the form of -mattr.
std::string HostDifferences(const std::string& cpu) {
  auto info = Subtarget(HostTriple(), cpu, "");
  std::vector<std::string> differences;
  if (!info) return "";
  for (const auto& [name, present] : HostFeatures()) {
    bool implied = info->checkFeatures("+" + name);
    if (implied != present) differences.push_back((present ? "+" : "-") + name);
  }
  return absl::StrJoin(differences, ",");
}

// Sorts the features by name; the last mention of a feature counts. So equal sets of features have
// equal text.
std::string CanonicalAttrs(const std::string& attrs) {
  std::map<std::string, char> signs;
  for (const std::string& attr :
       std::vector<std::string>(absl::StrSplit(attrs, ',', absl::SkipEmpty()))) {
    signs[attr.substr(1)] = attr[0];
  }
  std::vector<std::string> sorted;
  for (const auto& [name, sign] : signs) sorted.push_back(sign + name);
  return absl::StrJoin(sorted, ",");
}

bool IsHostArchitecture(const Target& target) {
  return llvm::Triple(TripleOf(target)).getArch() == llvm::Triple(HostTriple()).getArch();
}

int64_t CacheBytes(int name, int64_t otherwise) {
  long bytes = sysconf(name);
  return bytes > 0 ? bytes : otherwise;
}

}  // namespace

absl::StatusOr<Target> ResolveCpu(const Target& target) {
  Target resolved = target;
  if (!resolved.triple.empty() && TripleOf(resolved) == HostTriple()) resolved.triple.clear();
  if (resolved.cpu == "native" || resolved.cpu.empty()) {
    if (!IsHostArchitecture(resolved)) {
      return absl::InvalidArgumentError(
          absl::StrCat("-mcpu=native is this machine's CPU, which is not of triple '",
                       resolved.triple, "'; name a CPU"));
    }
    resolved.cpu = llvm::sys::getHostCPUName().str();
    std::string differences = HostDifferences(resolved.cpu);
    resolved.attrs = absl::StrCat(
        differences, differences.empty() || target.attrs.empty() ? "" : ",", target.attrs);
  }
  HEDDLE_RETURN_IF_ERROR(CheckTarget(resolved));
  resolved.attrs = CanonicalAttrs(resolved.attrs);
  return resolved;
}

absl::StatusOr<machine::TargetInfo> DescribeCpu(const Target& resolved) {
  machine::TargetInfo info;
  info.target = resolved;
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<llvm::TargetMachine> machine,
                          MakeTargetMachine(resolved, 0));
  VectorUnit unit = DescribeVectorUnit(*machine);
  info.vector_bytes = unit.bytes;
  info.vector_registers = unit.registers;
  if (const auto* family = machine::FindCpuFamily(resolved.cpu)) machine::PutFamily(*family, &info);
  if (IsHostArchitecture(resolved) && resolved.cpu == llvm::sys::getHostCPUName().str()) {
    info.l1_bytes = CacheBytes(_SC_LEVEL1_DCACHE_SIZE, info.l1_bytes);
    info.l2_bytes = CacheBytes(_SC_LEVEL2_CACHE_SIZE, info.l2_bytes);
  }
  return info;
}

bool CpuRunsHere(const Target& resolved) {
  if (!IsHostArchitecture(resolved) || !CheckTarget(resolved).ok()) return false;
  if (llvm::Triple(TripleOf(resolved)).getOS() != llvm::Triple(HostTriple()).getOS()) return false;
  auto wanted = Subtarget(TripleOf(resolved), resolved.cpu, resolved.attrs);
  if (!wanted) return false;
  // LLVM also lists tuning flags among a CPU's features. Only features that hosts report count.
  for (const auto& [name, present] : HostFeatures()) {
    if (!present && wanted->checkFeatures("+" + name)) return false;
  }
  return true;
}

std::vector<std::string> CpuFeatures(const Target& resolved) {
  std::vector<std::string> features;
  if (!IsHostArchitecture(resolved)) return features;
  const auto info = Subtarget(TripleOf(resolved), resolved.cpu, resolved.attrs);
  if (!info) return features;
  for (const auto& [name, present] : HostFeatures()) {
    if (info->checkFeatures("+" + name)) features.push_back(name);
  }
  return features;
}

}  // namespace heddle::codegen
