#include "worker/slots.h"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace heddle::worker {
namespace {

absl::StatusOr<SlotConfig> ParseSlot(const std::string& text, bool device,
                                     const std::vector<int>& usable) {
  SlotConfig slot{.name = "", .device = device, .cores = {}};
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, '-'))) {
    int core = 0;
    if (!absl::SimpleAtoi(part, &core) || core < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot '", text, "' is not core numbers joined by '-', like 0 or 0-1"));
    }
    if (std::find(usable.begin(), usable.end(), core) == usable.end()) {
      return absl::InvalidArgumentError(absl::StrCat("slot '", text, "': core ", core,
                                                     " is not usable here; usable are ",
                                                     absl::StrJoin(usable, ",")));
    }
    slot.cores.push_back(core);
  }
  std::sort(slot.cores.begin(), slot.cores.end());
  if (std::adjacent_find(slot.cores.begin(), slot.cores.end()) != slot.cores.end()) {
    return absl::InvalidArgumentError(absl::StrCat("slot '", text, "' names a core twice"));
  }
  slot.name = absl::StrCat(device ? "profile" : "cpu", absl::StrJoin(slot.cores, "-"));
  return slot;
}

constexpr char kAuto[] = "auto";

// The values, with "auto" replaced by the cores that it stands for.
std::vector<std::string> Resolve(const std::vector<std::string>& values, bool device, bool both,
                                 const std::vector<int>& usable) {
  if (values != std::vector<std::string>{kAuto} || usable.empty()) return values;
  const auto half = usable.end() - std::max<std::ptrdiff_t>(1, std::ssize(usable) / 2);
  const auto begin = both && device ? half : usable.begin();
  const auto end = both && !device && std::ssize(usable) > 1 ? half : usable.end();
  return {absl::StrJoin(begin, end, ",")};
}

}  // namespace

absl::StatusOr<std::vector<SlotConfig>> ParseSlots(const std::vector<std::string>& cpu,
                                                   const std::vector<std::string>& device,
                                                   const std::vector<int>& usable_cores) {
  std::vector<SlotConfig> slots;
  std::set<std::string> names;
  const bool both = cpu == std::vector<std::string>{kAuto} && cpu == device;
  for (const bool is_device : {false, true}) {
    for (const std::string& value :
         Resolve(is_device ? device : cpu, is_device, both, usable_cores)) {
      for (const std::string& text : std::vector<std::string>(absl::StrSplit(value, ','))) {
        HEDDLE_ASSIGN_OR_RETURN(SlotConfig slot, ParseSlot(text, is_device, usable_cores));
        if (!names.insert(slot.name).second)
          return absl::InvalidArgumentError(absl::StrCat("slot ", slot.name, " twice"));
        slots.push_back(std::move(slot));
      }
    }
  }
  return slots;
}

absl::StatusOr<std::vector<SlotConfig>> ParseGpuSlots(const std::vector<std::string>& values) {
  std::vector<SlotConfig> slots;
  std::set<std::string> names;
  for (const std::string& value : values) {
    for (const std::string& text : std::vector<std::string>(absl::StrSplit(value, ','))) {
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(text, absl::MaxSplits(':', 1));
      int ordinal = -1;
      if (parts.first.empty() || !absl::SimpleAtoi(parts.second, &ordinal) || ordinal < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", text, "' is no GPU; name one like cuda:0"));
      }
      SlotConfig slot{.name = absl::StrCat(parts.first, ordinal), .device = true, .cores = {}};
      slot.gpu = absl::StrCat(parts.first, ":", ordinal);
      if (!names.insert(slot.name).second)
        return absl::InvalidArgumentError(absl::StrCat("slot ", slot.name, " twice"));
      slots.push_back(std::move(slot));
    }
  }
  return slots;
}

std::vector<int> UsableCores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

std::vector<int> SupervisorCores(const std::vector<SlotConfig>& slots,
                                 const std::vector<int>& usable_cores) {
  std::set<int> of_kind[2];
  for (const SlotConfig& slot : slots)
    of_kind[slot.device].insert(slot.cores.begin(), slot.cores.end());
  std::vector<int> cores;
  for (int core : usable_cores) {
    if (of_kind[true].count(core) == 0) cores.push_back(core);
  }
  if (!cores.empty()) return cores;
  if (!of_kind[false].empty()) return {of_kind[false].begin(), of_kind[false].end()};
  return usable_cores;
}

bool ShareCore(const SlotConfig& a, const SlotConfig& b) {
  return std::any_of(a.cores.begin(), a.cores.end(), [&](int core) {
    return std::binary_search(b.cores.begin(), b.cores.end(), core);
  });
}

}  // namespace heddle::worker
