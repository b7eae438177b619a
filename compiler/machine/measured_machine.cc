#include "compiler/machine/measured_machine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/vocabulary/limits.h"

namespace heddle::machine {
namespace {

struct Figure {
  absl::string_view name;
  std::variant<int64_t MeasuredMachine::*, double MeasuredMachine::*> member;
  // What no machine exceeds by far; a figure outside is a mistake.
  double least, most;
};

using M = MeasuredMachine;
constexpr double kKibibyte = 1 << 10, kGibibyte = 1 << 30;
constexpr std::array<Figure, 18> kFigures = {{
    {"cores", &M::cores, 1, 4096},
    {"l1_bytes", &M::l1_bytes, 4 * kKibibyte, 64 * 1024 * kKibibyte},
    {"l2_bytes", &M::l2_bytes, 16 * kKibibyte, 4 * kGibibyte},
    {"l3_bytes", &M::l3_bytes, 0, 64 * kGibibyte},
    {"clock_ghz", &M::clock_ghz, 0.01, 100},
    {"gflops", &M::gflops, 0.01, 1e5},
    {"multiply_add_ns", &M::multiply_add_ns, 0.01, 1e4},
    {"l1_gbps", &M::l1_gbps, 0.01, 1e5},
    {"l2_gbps", &M::l2_gbps, 0.01, 1e5},
    {"l3_gbps", &M::l3_gbps, 0.01, 1e5},
    {"memory_gbps", &M::memory_gbps, 0.01, 1e5},
    {"store_gbps", &M::store_gbps, 0.01, 1e5},
    {"gathered_per_ns", &M::gathered_per_ns, 1e-3, 1e4},
    {"call_ns", &M::call_ns, 0.1, 1e7},
    {"all_gflops", &M::all_gflops, 0.01, 1e8},
    {"all_l3_gbps", &M::all_l3_gbps, 0.01, 1e8},
    {"all_memory_gbps", &M::all_memory_gbps, 0.01, 1e8},
    {"wake_ns", &M::wake_ns, 0.1, 1e9},
}};

std::string FirstLine() { return absl::StrCat("machine ", kMeasuredVersion); }

double Get(const MeasuredMachine& machine, const Figure& figure) {
  return std::visit([&](auto member) { return static_cast<double>(machine.*member); },
                    figure.member);
}

std::string Number(const MeasuredMachine& machine, const Figure& figure) {
  if (const auto* whole = std::get_if<int64_t MeasuredMachine::*>(&figure.member))
    return absl::StrCat(machine.*(*whole));
  return absl::StrFormat("%.6g", Get(machine, figure));
}

absl::Status ReadNumber(absl::string_view text, const Figure& figure, MeasuredMachine* machine) {
  bool number = false;
  if (const auto* whole = std::get_if<int64_t MeasuredMachine::*>(&figure.member)) {
    number = absl::SimpleAtoi(text, &(machine->*(*whole)));
  } else {
    double& value = machine->*std::get<double MeasuredMachine::*>(figure.member);
    number = absl::SimpleAtod(text, &value) && std::isfinite(value) &&
             absl::SimpleAtod(Number(*machine, figure), &value);  // to six digits
  }
  if (!number) return absl::InvalidArgumentError("it is no number");
  const double value = Get(*machine, figure);
  if (value < figure.least || value > figure.most) {
    return absl::InvalidArgumentError(
        absl::StrFormat("it must be %g to %g", figure.least, figure.most));
  }
  return absl::OkStatus();
}

// A core's share of a rate that is `one` for a core alone and `all` for all cores together.
double ShareOf(double one, double all, const MeasuredMachine& machine, int threads) {
  const double busy = std::clamp<double>(threads, 1, static_cast<double>(machine.cores));
  return busy <= 1 ? one : std::min(one, all / busy);
}

}  // namespace

std::string ToText(const MeasuredMachine& machine) {
  std::string text = FirstLine() + "\n";
  for (const Figure& figure : kFigures)
    absl::StrAppend(&text, figure.name, " ", Number(machine, figure), "\n");
  return text;
}

absl::StatusOr<MeasuredMachine> ParseMeasuredMachine(std::string_view text) {
  if (text.size() > kMaxMachineBytes)
    return absl::InvalidArgumentError("a measured machine has at most 4 KiB");
  MeasuredMachine machine;
  std::set<absl::string_view> found;
  int number = 0;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    if (number == 1) {
      if (line == FirstLine()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "this is no measured machine that this version knows: its first line is not '",
          FirstLine(), "'"));
    }
    if (line.empty()) continue;
    const std::pair<absl::string_view, absl::string_view> words =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    const auto* figure = std::find_if(kFigures.begin(), kFigures.end(),
                                      [&](const Figure& f) { return f.name == words.first; });
    absl::Status status;
    if (figure == kFigures.end()) {
      status = absl::InvalidArgumentError("there is no such figure");
    } else if (!found.insert(figure->name).second) {
      status = absl::InvalidArgumentError("it is there twice");
    } else {
      status = ReadNumber(words.second, *figure, &machine);
    }
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, " of the measured machine, '",
                                                     absl::CHexEscape(line.substr(0, 80)),
                                                     "': ", status.message()));
    }
  }
  for (const Figure& figure : kFigures) {
    if (!found.contains(figure.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the measured machine lacks the figure ", figure.name));
    }
  }
  return machine;
}

std::string Summary(const MeasuredMachine& m) {
  const std::string all =
      m.cores > 1 ? absl::StrFormat(" (%.0f on %d)", m.all_gflops, m.cores) : std::string();
  return absl::StrFormat(
      "%.1f GHz, %.0f GFLOP/s a core%s, L1 %.0f, L2 %.0f, L3 %.0f, RAM %.0f GB/s", m.clock_ghz,
      m.gflops, all, m.l1_gbps, m.l2_gbps, m.l3_gbps, m.memory_gbps);
}

void PutMeasured(const MeasuredMachine& machine, TargetInfo* info) {
  info->l1_bytes = machine.l1_bytes;
  info->l2_bytes = machine.l2_bytes;
  const double vector = static_cast<double>(info->vector_bytes), f32 = 4, clock = machine.clock_ghz;
  const int threads = info->target.threads;
  const double gflops = ShareOf(machine.gflops, machine.all_gflops, machine, threads),
               memory = ShareOf(machine.memory_gbps, machine.all_memory_gbps, machine, threads);
  CoreSpeed& core = info->core;
  core.operations_per_cycle = gflops / 2 / (vector / f32) / clock;
  core.loads_per_cycle = machine.l1_gbps / vector / clock;
  core.stores_per_cycle = machine.store_gbps / vector / clock;
  core.gathered_per_cycle = machine.gathered_per_ns / clock;
  core.multiply_add_cycles = machine.multiply_add_ns * clock;
  core.l2_bytes_per_cycle = machine.l2_gbps / clock;
  // What a kernel streams from beyond the second-level cache are weights, which other kernels have
  // evicted from the third-level one (measure/measure.h).
  core.l3_bytes_per_cycle = memory / clock;
  GraphSpeed& graph = info->graph_speed;
  const LayoutFit& fit = info->code.layout;
  graph.peak_gflops = machine.gflops;
  graph.vector_bytes = info->vector_bytes;
  graph.l2_bytes = machine.l2_bytes;
  // Of what whole operators move, about half are activations, which the third-level cache holds.
  graph.bytes_per_ns = fit.far_share * 2 / (1 / machine.l3_gbps + 1 / machine.memory_gbps);
  graph.near_bytes_per_ns = fit.near_share * machine.l2_gbps;
  graph.call_ns = machine.call_ns + fit.kernel_bytes / graph.near_bytes_per_ns;
  graph.l3_bytes = machine.l3_bytes;
  graph.l2_read_bytes_per_ns = machine.l2_gbps;
  graph.l3_read_bytes_per_ns = machine.l3_gbps;
  graph.memory_read_bytes_per_ns = machine.memory_gbps;
  core.clock_ghz = clock;
  if (machine.cores > 1) core.wake_ns = machine.wake_ns;
}

}  // namespace heddle::machine
