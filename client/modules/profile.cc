#include "client/modules/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/quantiles.h"
#include "client/views/json.h"
#include "compiler/runtime/machine_limits.h"
#include "compiler/runtime/timing.h"

namespace heddle::client {
namespace {

constexpr int kBarWidth = 16;
constexpr int kMostRounds = 1000;
constexpr double kProfileNs = 1e9;  // total time of inferences, with at least `rounds` of them

struct Measured {
  size_t block = 0;
  MachineLimits limits;
  double whole_ns = 0;  // one inference, without timers inside
  int rounds = 0;
  std::vector<KernelProfile> kernels;
};

Measured Measure(runtime::Executor& executor, size_t block, int threads, int rounds) {
  const runtime::Manifest& manifest = executor.manifest();
  Measured measured;
  measured.block = block;
  if (!manifest.ForGpu()) {  // the limits of a GPU are not known here
    measured.limits.gflops = runtime::MeasureFmaPeak(threads);
    measured.limits.gbps = runtime::MeasureBandwidth(FootprintBytes(manifest, block), threads);
  }
  runtime::TimingOptions options;
  options.repeats = 3;
  options.min_repeat = absl::Milliseconds(100);
  measured.whole_ns =
      runtime::TimeCalls([&] { executor.Run(block).IgnoreError(); }, options).MedianNs();
  std::vector<std::vector<double>> samples(manifest.CallsOf(block).size());  // [call][round]
  const int wanted = std::clamp(static_cast<int>(kProfileNs / std::max(measured.whole_ns, 1.0)),
                                rounds, std::max(rounds, kMostRounds));
  for (; measured.rounds < wanted && !Interrupted(); ++measured.rounds) {
    const std::vector<double> times = executor.ProfileNs(1, block);
    if (!executor.status().ok()) break;
    for (size_t c = 0; c < times.size(); ++c) samples[c].push_back(times[c]);
  }
  if (measured.rounds == 0) return measured;
  std::vector<double> medians;
  for (const std::vector<double>& times : samples) medians.push_back(Median(times));
  measured.kernels = ProfileByKernel(manifest, medians, block);
  return measured;
}

}  // namespace

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0 && line.find(':') != std::string::npos)
      return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

namespace {

// In eighths of a character, so that small shares are visible.
std::string Bar(double share, bool plain) {
  const int eighths = static_cast<int>(std::clamp(share, 0.0, 1.0) * kBarWidth * 8 + 0.5);
  if (plain) return std::string(static_cast<size_t>(eighths / 8), '#');
  constexpr const char* kParts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += "█";
  return bar + kParts[eighths % 8];
}

std::string Percent(double share) {
  return share > 0 ? fmt::format("{:.{}f}%", share * 100, share < 0.1 ? 1 : 0) : "-";
}

std::string Share(double value, double limit) {
  return limit > 0 && value > 0 ? Percent(value / limit) : "-";
}

void PrintTable(const runtime::Manifest& manifest, const Measured& measured, int threads,
                bool plain) {
  KernelProfile sum;
  for (const KernelProfile& kernel : measured.kernels) {
    sum.uses += kernel.uses;
    sum.ns += kernel.ns;
    sum.flops += kernel.flops;
    sum.bytes += kernel.bytes;
    sum.winograd = sum.winograd || kernel.winograd;
  }
  sum.label = "all kernels";
  const bool limited = measured.limits.gflops > 0;  // a GPU's limits are not known
  std::vector<std::string> head = {"kernel",  "uses",    "time",  "share", "",
                                   "GFLOP/s", "of peak", "moved", "GB/s"};
  if (limited) {
    head.insert(head.end(), {"of memory", "bound by", "of bound"});
  } else {
    head.erase(head.begin() + 6);
  }
  Table table(head);
  const auto add = [&](const KernelProfile& kernel, bool with_bar) {
    const double share = sum.ns > 0 ? kernel.ns / sum.ns : 0;
    const double gflops = kernel.ns > 0 ? kernel.flops / kernel.ns : 0;
    const double gbps = kernel.ns > 0 ? static_cast<double>(kernel.bytes) / kernel.ns : 0;
    std::vector<std::string> row = {
        kernel.label + (kernel.winograd && with_bar ? ", winograd" : ""),
        fmt::format("{}", kernel.uses),
        FormatNs(kernel.ns),
        Percent(share),
        with_bar ? Bar(share, plain) : "",
        FormatGflops(kernel.flops, kernel.ns)};
    if (limited) row.push_back(Share(gflops, measured.limits.gflops));
    row.insert(row.end(), {FormatBytes(kernel.bytes), fmt::format("{:.1f}", gbps)});
    if (limited) {
      const Roofline roofline = RooflineOf(kernel, measured.limits);
      row.insert(row.end(), {Share(gbps, measured.limits.gbps),
                             with_bar ? (roofline.memory ? "memory" : "compute") : "",
                             with_bar ? Percent(roofline.share) : ""});
    }
    table.Add(std::move(row));
  };
  for (const KernelProfile& kernel : measured.kernels) add(kernel, true);
  table.AddRule();
  add(sum, false);
  fmt::print("{}\n", table.ToText(plain));
  fmt::print("one inference{}{}: {}; kernels timed one by one: {}; medians of {} inferences\n",
             manifest.model.empty() ? "" : " of " + manifest.model,
             manifest.independent_rows
                 ? fmt::format(" with {} rows", manifest.RowsOf(measured.block))
                 : "",
             FormatNs(measured.whole_ns), FormatNs(sum.ns), measured.rounds);
  if (!limited) {
    fmt::print("{}; limits of a GPU are not measured here\n", manifest.target);
    return;
  }
  fmt::print(
      "limits measured now: {:.0f} GFLOP/s, {:.1f} GB/s reading {}, as much as the model touches; "
      "{} thread{}; {}\n",
      measured.limits.gflops, measured.limits.gbps,
      FormatBytes(FootprintBytes(manifest, measured.block)), threads, threads == 1 ? "" : "s",
      CpuName());
  fmt::print(
      "bound by: whichever takes longer, the operations at the peak or the bytes at the bandwidth; "
      "of bound: that time over the kernel's. Above 100%: bytes came from a nearer cache{}\n",
      sum.winograd ? ", or Winograd's form did fewer operations than the direct one counted here"
                   : "");
}

void PrintProfileJson(const runtime::Manifest& manifest, const Measured& measured, int threads) {
  nlohmann::json object = {{"schema_version", kJsonSchemaVersion},
                           {"model", manifest.model},
                           {"target", manifest.target},
                           {"threads", threads},
                           {"cpu", CpuName()},
                           {"rounds", measured.rounds},
                           {"rows", manifest.RowsOf(measured.block)},
                           {"footprint_bytes", FootprintBytes(manifest, measured.block)},
                           {"inference_ns", measured.whole_ns},
                           {"kernels", nlohmann::json::array()}};
  const bool limited = measured.limits.gflops > 0;
  if (limited) {
    object["peak_gflops"] = measured.limits.gflops;
    object["bandwidth_gbps"] = measured.limits.gbps;
  }
  for (const KernelProfile& kernel : measured.kernels) {
    nlohmann::json& row =
        object["kernels"].emplace_back(nlohmann::json{{"task", kernel.task},
                                                      {"label", kernel.label},
                                                      {"schedule", kernel.schedule},
                                                      {"winograd", kernel.winograd},
                                                      {"uses", kernel.uses},
                                                      {"ns", kernel.ns},
                                                      {"flops", kernel.flops},
                                                      {"bytes", kernel.bytes}});
    if (!limited) continue;
    const Roofline roofline = RooflineOf(kernel, measured.limits);
    row["bound"] = roofline.memory ? "memory" : "compute";
    row["share_of_bound"] = roofline.share;
  }
  fmt::print("{}\n", object.dump());
}

}  // namespace

Roofline RooflineOf(const KernelProfile& kernel, const MachineLimits& limits) {
  return views::RooflineOf(kernel.ns, kernel.flops, kernel.bytes, limits);
}

std::vector<KernelProfile> ProfileByKernel(const runtime::Manifest& manifest,
                                           const std::vector<double>& call_ns, size_t block) {
  const std::vector<runtime::CallSpec>& calls = manifest.CallsOf(block);
  std::map<int, KernelProfile> by_kernel;
  for (size_t c = 0; c < calls.size(); ++c) {
    const runtime::CallSpec& call = calls[c];
    const runtime::KernelSpec& spec = manifest.kernels[static_cast<size_t>(call.kernel)];
    KernelProfile& kernel = by_kernel[call.kernel];
    kernel.task = spec.task;
    kernel.label = spec.label;
    kernel.schedule = spec.schedule;
    kernel.winograd = spec.numerics.winograd;
    ++kernel.uses;
    kernel.ns += call_ns[c];
    kernel.flops += spec.flops;
    for (const runtime::BufferSlot& slot : call.buffers) kernel.bytes += slot.bytes;
    kernel.bytes -= spec.untouched_bytes;
  }
  std::vector<KernelProfile> kernels;
  for (auto& [index, kernel] : by_kernel) kernels.push_back(std::move(kernel));
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const KernelProfile& a, const KernelProfile& b) { return a.ns > b.ns; });
  return kernels;
}

int64_t FootprintBytes(const runtime::Manifest& manifest, size_t block) {
  int64_t params = 0;
  for (const runtime::CallSpec& call : manifest.CallsOf(block)) {
    for (const runtime::BufferSlot& slot : call.buffers) {
      if (slot.place == runtime::Place::kParam) params = std::max(params, slot.index + slot.bytes);
    }
  }
  int64_t bytes = params + manifest.arena_bytes;
  for (const auto* tensors : {&manifest.inputs, &manifest.outputs}) {
    for (const runtime::TensorSpec& tensor : *tensors)
      bytes += manifest.BytesInBlock(tensor, block);
  }
  return bytes;
}

int PrintProfile(runtime::Executor& executor, size_t block, int threads, int rounds,
                 const OutputOptions& output) {
  const Measured measured = Measure(executor, block, threads, rounds);
  if (!executor.status().ok()) return Fail(executor.status());
  if (measured.rounds == 0) return kInterrupted;
  if (output.json) {
    PrintProfileJson(executor.manifest(), measured, threads);
  } else {
    PrintTable(executor.manifest(), measured, threads, output.plain);
  }
  return kDone;
}

}  // namespace heddle::client
