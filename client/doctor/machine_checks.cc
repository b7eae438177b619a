// What of the machine itself spoils measurements, or keeps kernels from being built and run.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/quantiles.h"
#include "client/doctor/checks.h"
#include "client/doctor/run_program.h"
#include "client/views/terminal.h"
#include "compiler/codegen/backend.h"

namespace heddle::client::doctor {
namespace {

// Shares of the cores' time. A quiet machine stays below 3 % of load, and has no steal.
constexpr double kMostLoad = 0.10;
constexpr double kMostSteal = 0.02;
// LLVM and a search together stay below it.
constexpr int64_t kLeastMemoryBytes = int64_t{2} << 30;
constexpr int64_t kLeastOpenFiles = 1024;
// Times of one kernel vary less on a quiet machine.
constexpr double kMostSpread = 0.15;
// A driver that answers starts within seconds; a kernel is compiled and run on each GPU, one by one.
constexpr absl::Duration kGpuLimit = absl::Minutes(2);

// The whole file, without the blanks at its end; nullopt if it cannot be read. Files below /proc and
// /sys have no size of their own.
std::optional<std::string> TextOf(const Surroundings& here, const std::string& path) {
  std::ifstream file(here.root + path);
  if (!file) return std::nullopt;
  std::string text((std::istreambuf_iterator<char>(file)), {});
  text.erase(text.find_last_not_of(" \n") + 1);
  return text;
}

// "0-3,7" of a list of cores.
std::string CoreList(const std::vector<int>& cores) {
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t end = i + 1;
    while (end < cores.size() && cores[end] == cores[end - 1] + 1) ++end;
    text += text.empty() ? "" : ",";
    text +=
        end - i == 1 ? fmt::format("{}", cores[i]) : fmt::format("{}-{}", cores[i], cores[end - 1]);
    i = end;
  }
  return text;
}

// What the cores have done since the machine started, in ticks.
struct Ticks {
  double all = 0, idle = 0, stolen = 0;
};

std::optional<Ticks> TicksOf(const Surroundings& here) {
  const std::optional<std::string> text = TextOf(here, "/proc/stat");
  if (!text) return std::nullopt;
  std::set<std::string> wanted;
  for (const int core : here.cores) wanted.insert(fmt::format("cpu{}", core));
  Ticks ticks;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    // cpuN user nice system idle iowait irq softirq steal ..
    if (words.size() < 9 || !wanted.contains(words[0])) continue;
    for (size_t i = 1; i <= 8; ++i) {
      double value = 0;
      if (!absl::SimpleAtod(words[i], &value)) return std::nullopt;
      ticks.all += value;
      if (i == 4 || i == 5) ticks.idle += value;
      if (i == 8) ticks.stolen += value;
    }
  }
  return ticks;
}

// What the cores do while this program does nothing; nullopt if the kernel does not say.
std::optional<Ticks> TicksNow(const Surroundings& here) {
  const std::optional<Ticks> before = TicksOf(here);
  here.wait();
  const std::optional<Ticks> after = TicksOf(here);
  if (!before || !after || after->all <= before->all) return std::nullopt;
  return Ticks{after->all - before->all, after->idle - before->idle,
               after->stolen - before->stolen};
}

const char kCannotTell[] = "the kernel does not tell";

}  // namespace

Verdict CheckProcessor(const DoctorOptions& options, const Surroundings&) {
  const absl::StatusOr<Target> wanted = ParseTarget(options.target);
  if (!wanted.ok())
    return Problem(std::string(wanted.status().message()), "give a --target that exists");
  const codegen::Backend& backend = codegen::BackendOf(*wanted);
  const absl::StatusOr<Target> target = backend.Resolve(*wanted);
  if (!target.ok())
    return Problem(std::string(target.status().message()),
                   fmt::format("name the target that you mean: --target \"{}\"",
                               wanted->kind == TargetKind::kCuda ? "cuda -arch=sm_90"
                                                                 : "llvm -mcpu=x86-64-v3"));
  if (target->kind != kHostKind)
    return Well(fmt::format("code for '{}' runs on a GPU", ToText(*target)));
  const absl::StatusOr<Target> native = backend.Resolve(Target{});
  if (!native.ok())
    return Problem(std::string(native.status().message()), "name a CPU instead of native");
  const std::vector<std::string> have = backend.Features(*native);
  std::vector<std::string> missing;
  for (const std::string& feature : backend.Features(*target)) {
    if (!std::binary_search(have.begin(), have.end(), feature)) missing.push_back(feature);
  }
  if (missing.empty() && backend.RunsHere(*target))
    return Well(fmt::format("'{}' runs on this {}", ToText(*target), native->cpu));
  return Problem(
      fmt::format("'{}' does not run on this {}{}", ToText(*target), native->cpu,
                  missing.empty() ? "" : fmt::format(", which lacks {}", fmt::join(missing, ", "))),
      fmt::format("tune for this machine (--target \"llvm -mcpu={}\"), or measure on one that has "
                  "it (heddle-worker there)",
                  native->cpu));
}

Verdict CheckCores(const DoctorOptions&, const Surroundings& here) {
  const std::string isolated = TextOf(here, "/sys/devices/system/cpu/isolated").value_or("");
  if (here.cores.size() >= 2) {
    return Well(fmt::format("{} cores: {}; kept free of other processes: {}", here.cores.size(),
                            CoreList(here.cores), isolated.empty() ? "none" : isolated));
  }
  return Warning(fmt::format("there is one core ({}) for builds and measurements, so they wait for "
                             "each other",
                             CoreList(here.cores)),
                 "give this process two cores or more (taskset, the container's --cpus and "
                 "--cpuset-cpus)");
}

Verdict CheckQuota(const DoctorOptions&, const Surroundings& here) {
  // Version 2 of control groups; then that of version 1.
  double quota = 0, period = 0;
  std::string path = "/sys/fs/cgroup/cpu.max";
  if (const std::optional<std::string> text = TextOf(here, path)) {
    const std::vector<std::string> words = absl::StrSplit(*text, ' ');
    if (words.size() == 2 && words[0] != "max" && absl::SimpleAtod(words[0], &quota))
      (void)absl::SimpleAtod(words[1], &period);
  } else {
    path = "/sys/fs/cgroup/cpu/cpu.cfs_quota_us";
    const std::optional<std::string> old = TextOf(here, path);
    const std::optional<std::string> every = TextOf(here, "/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    if (old && every && absl::SimpleAtod(*old, &quota) && quota > 0)
      (void)absl::SimpleAtod(*every, &period);
  }
  if (quota <= 0 || period <= 0) return Well("no limit of CPU time");
  const double cores = quota / period;
  if (cores >= static_cast<double>(here.cores.size()))
    return Well(fmt::format("CPU time of {:.3g} cores", cores));
  return Warning(
      fmt::format("{} allows the time of {:.3g} cores out of {}, so kernels are stopped while they "
                  "are timed",
                  path, cores, here.cores.size()),
      "reserve whole cores instead of a share of time (docker --cpuset-cpus instead of --cpus; "
      "Kubernetes: the static CPU policy)");
}

Verdict CheckGovernor(const DoctorOptions&, const Surroundings& here) {
  std::map<std::string, std::vector<int>> cores_by_governor;
  for (const int core : here.cores) {
    const auto governor =
        TextOf(here, fmt::format("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", core));
    if (governor) cores_by_governor[*governor].push_back(core);
  }
  if (cores_by_governor.empty()) return Well("the kernel does not change the cores' clock");
  for (const auto& [governor, cores] : cores_by_governor) {
    if (governor == "performance") continue;
    return Warning(fmt::format("cores {} change their clock with the load (governor {}), so the "
                               "same kernel takes different times",
                               CoreList(cores), governor),
                   "cpupower frequency-set -g performance");
  }
  return Well("governor performance");
}

Verdict CheckLoad(const DoctorOptions&, const Surroundings& here) {
  const std::optional<Ticks> ticks = TicksNow(here);
  if (!ticks) return Well(kCannotTell);
  const double share = (ticks->all - ticks->idle - ticks->stolen) / ticks->all;
  const std::string found = fmt::format("other processes take {:.0f} % of the time of cores {}",
                                        100 * share, CoreList(here.cores));
  if (share <= kMostLoad) return Well(found);
  return Warning(found,
                 "end them (`top` shows which), or give device slots cores of their own "
                 "(heddle-worker --device-slots, isolcpus=)");
}

Verdict CheckSteal(const DoctorOptions&, const Surroundings& here) {
  const std::optional<Ticks> ticks = TicksNow(here);
  if (!ticks) return Well(kCannotTell);
  const double share = ticks->stolen / ticks->all;
  const std::string found =
      fmt::format("the host takes {:.0f} % of the virtual cores' time", 100 * share);
  if (share <= kMostSteal) return Well(found);
  return Warning(found, "move to a machine whose cores are not shared, or pin the virtual cores");
}

Verdict CheckClock(const DoctorOptions&, const Surroundings& here) {
  const std::optional<std::string> source =
      TextOf(here, "/sys/devices/system/clocksource/clocksource0/current_clocksource");
  if (!source) return Well(kCannotTell);
  // These are read from a device: a reading takes microseconds, or has a coarse step.
  const std::set<std::string> slow = {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"};
  if (!slow.contains(*source)) return Well("clock source " + *source);
  return Warning(fmt::format("the clock source is {}, whose readings are slow or coarse", *source),
                 "boot with clocksource=tsc tsc=reliable if the processor's counter is constant");
}

Verdict CheckDate(const DoctorOptions&, const Surroundings& here) {
  const absl::TimeZone utc = absl::UTCTimeZone();
  const std::string date = absl::FormatTime("%Y-%m-%d %H:%M", here.now, utc);
  // Older than this program; and what a clock that was never set does not reach.
  if (here.now >= absl::FromCivil(absl::CivilDay(2026, 1, 1), utc) &&
      here.now < absl::FromCivil(absl::CivilDay(2100, 1, 1), utc))
    return Well(date + " UTC");
  return Problem(fmt::format("the date is {} UTC, so certificates and deadlines do not hold", date),
                 "set the clock: timedatectl set-ntp true");
}

Verdict CheckMemory(const DoctorOptions&, const Surroundings& here) {
  const std::optional<std::string> text = TextOf(here, "/proc/meminfo");
  if (!text) return Well(kCannotTell);
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t kib = 0;
    if (words.size() < 2 || words[0] != "MemAvailable:" || !absl::SimpleAtoi(words[1], &kib))
      continue;
    const int64_t bytes = kib << 10;
    const std::string found = FormatBytes(bytes) + " of memory are available";
    if (bytes >= kLeastMemoryBytes) return Well(found);
    return Warning(found + ", and builds and searches may need " + FormatBytes(kLeastMemoryBytes),
                   "end what takes the memory, or lower heddle-worker --memory-limit");
  }
  return Well(kCannotTell);
}

Verdict CheckOpenFiles(const DoctorOptions&, const Surroundings& here) {
  const std::string found = fmt::format("a process may open {} files", here.open_files);
  if (here.open_files >= kLeastOpenFiles) return Well(found);
  return Problem(found + ", too few for a service with workers",
                 fmt::format("ulimit -n {} (systemd: LimitNOFILE=)", 4 * kLeastOpenFiles));
}

Verdict CheckToolchain(const DoctorOptions&, const Surroundings& here) {
  const absl::Status found = here.toolchain(kHostKind);
  if (found.ok()) return Well("the compiler for CPUs is there");
  return Problem(std::string(found.message()),
                 "install Heddle again: the compiler is part of it (deploy/setup.sh)");
}

Verdict CheckGpu(const DoctorOptions&, const Surroundings& here) {
  std::error_code ignored;
  const bool device = std::filesystem::exists(here.root + "/dev/nvidiactl", ignored);
  const std::string worker = here.programs + "/heddle-worker";
  std::vector<std::string> works, problems;
  if (access(worker.c_str(), X_OK) == 0) {
    const absl::StatusOr<ProgramResult> said = RunProgram({worker, "--check-gpus"}, kGpuLimit);
    if (!said.ok()) {
      return Problem(
          fmt::format("the GPU's driver does not answer: {}", std::string(said.status().message())),
          "nvidia-smi tells more; reset the GPU, or restart the machine");
    }
    for (const absl::string_view line : absl::StrSplit(said->output, '\n', absl::SkipEmpty())) {
      if (!absl::StrContains(line, ':')) continue;
      (absl::StrContains(line, ": ok: ") ? works : problems)
          .push_back(Printable(std::string(line)));
    }
    if (said->status == 0) problems.clear();
  }
  if (!device && works.empty() && problems.empty()) return Well("there is no GPU here");
  const absl::Status found = here.toolchain(TargetKind::kCuda);
  if (!found.ok()) {
    return Warning(
        fmt::format("there is a GPU, but no compiler for it: {}", std::string(found.message())),
        "install NVRTC (it comes with the CUDA toolkit), and set CUDA_HOME or "
        "HEDDLE_NVRTC");
  }
  if (!problems.empty()) {
    return Problem(problems[0],
                   "if nvidia-smi shows the GPU, compare heddle-worker --check-gpus with "
                   "heddle-worker --check-gpus --confine none; otherwise install NVIDIA's driver, "
                   "or show the GPU to this container (docker --gpus all)");
  }
  if (!works.empty()) return Well(fmt::format("{}", fmt::join(works, "; ")));
  return Warning("there is a GPU (/dev/nvidiactl), and no driver that shows it",
                 "install NVIDIA's driver of the same version as the kernel's, and set "
                 "LD_LIBRARY_PATH to the folder of its libcuda.so.1");
}

Verdict CheckKernel(const DoctorOptions& options, const Surroundings& here) {
  // Whether the target runs here is the business of the check "processor".
  absl::StatusOr<Target> target = ParseTarget(options.target);
  if (target.ok()) target = codegen::ResolveTarget(*target);
  if (!target.ok() || target->kind != kHostKind || !codegen::BackendOf(*target).RunsHere(*target))
    target = codegen::ResolveTarget(Target{});
  if (!target.ok())
    return Problem(std::string(target.status().message()), "name a CPU instead of native");
  const absl::StatusOr<KernelFacts> facts = here.kernel(*target);
  if (!facts.ok()) {
    return Problem(fmt::format("a small network cannot be built and run: {}",
                               std::string(facts.status().message())),
                   "heddle tune of a small model (heddle zoo mlp) shows more");
  }
  const std::vector<double>& times = facts->samples_ns;
  if (times.empty()) return Problem("a small network gave no times", "run it again");
  const double median = Median(times);
  const double spread = (Quantile(times, 0.9) - Quantile(times, 0.1)) / median;
  const std::string found = fmt::format(
      "a small network was built in {} and runs in {}, eight in ten times within {:.1f} %",
      HumanDuration(facts->build), FormatNs(median), 100 * spread);
  if (spread <= kMostSpread) return Well(found);
  return Warning(found + ", so small gains cannot be seen",
                 "see what disturbs (load, steal, governor, cpu-quota), and measure on a quieter "
                 "machine");
}

}  // namespace heddle::client::doctor
