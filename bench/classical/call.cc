// heddle-bench-call: what a call of libheddle.so takes beyond the kernels of the module. Prints a line for each number of rows.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/command_documents.h"
#include "base/status_macros.h"
#include "compiler/measure/in_turns.h"
#include "compiler/runtime/executor.h"
#include "compiler/runtime/heddle.h"
#include "compiler/runtime/timing.h"

namespace heddle::bench {
namespace {

constexpr int kRounds = 7;     // calls and kernels are timed in turns
constexpr int kSamples = 500;  // of calls in one round, each short, so that few are interrupted
constexpr double kProfileNs = 5e7;  // time of runs with timed kernels in one round
constexpr int kReadings = 10001;

double MedianOf(std::vector<double> values) {
  runtime::Timing timing;
  timing.samples_ns = std::move(values);
  return timing.MedianNs();
}

// What one reading of the clock adds to the time of a kernel.
double ClockNs() {
  using Clock = std::chrono::steady_clock;
  std::vector<double> samples;
  for (int i = 0; i < kReadings; ++i) {
    const Clock::time_point start = Clock::now();
    const std::chrono::duration<double, std::nano> elapsed = Clock::now() - start;
    samples.push_back(elapsed.count());
  }
  return MedianOf(std::move(samples));
}

struct FreeModel {
  void operator()(heddle_model* model) const { heddle_free(model); }
};

absl::Status Print(const std::string& path, const runtime::Module& module, size_t block,
                   int threads) {
  const runtime::Manifest& manifest = module.manifest;
  const int64_t rows = manifest.RowsOf(block);
  runtime::Executor::Options options;
  options.threads = threads;
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Executor> executor,
                          runtime::Executor::Create(module, options));
  heddle_model* loaded = nullptr;
  if (heddle_load(path.c_str(), threads, &loaded) != 0)
    return absl::InternalError(heddle_last_error());
  const std::unique_ptr<heddle_model, FreeModel> model(loaded);
  std::vector<std::string> tensors;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  const size_t count = manifest.inputs.size() + manifest.outputs.size();
  tensors.reserve(count);  // the addresses stay
  for (const runtime::TensorSpec& spec : manifest.inputs) {
    tensors.push_back(RandomTensor(manifest.InBlock(spec, block), inputs.size()));
    inputs.push_back(tensors.back().data());
  }
  for (const runtime::TensorSpec& spec : manifest.outputs) {
    tensors.emplace_back(static_cast<size_t>(manifest.BytesInBlock(spec, block)), '\0');
    outputs.push_back(tensors.back().data());
  }
  HEDDLE_RETURN_IF_ERROR(executor->RunRows(rows, inputs.data(), outputs.data()));
  std::vector<double> calls, kernels;
  for (int round = 0; round < kRounds; ++round) {
    int failed = 0;
    runtime::TimingOptions timing;
    timing.repeats = kSamples;
    timing.min_repeat = absl::Microseconds(50);
    timing.limit = absl::Milliseconds(50);
    calls.push_back(
        runtime::TimeCalls(
            [&] { failed |= heddle_run_rows(loaded, rows, inputs.data(), outputs.data()); }, timing)
            .MedianNs());
    if (failed != 0) return absl::InternalError(heddle_last_error());
    double sum = 0;
    const double clock = ClockNs();
    const int profiles = static_cast<int>(std::clamp(kProfileNs / calls.back(), 10.0, 2000.0));
    for (const double ns : executor->ProfileNs(profiles, block)) sum += ns - clock;
    kernels.push_back(sum);
  }
  const double call = MedianOf(calls), in_kernels = MedianOf(kernels);
  std::printf("%lld rows: a call %.0f ns, its %zu kernels %.0f ns, beyond them %.0f ns\n",
              static_cast<long long>(rows), call, manifest.CallsOf(block).size(), in_kernels,
              call - in_kernels);
  return absl::OkStatus();
}

absl::Status Run(const std::string& path, int threads) {
  HEDDLE_ASSIGN_OR_RETURN(const runtime::Module module, runtime::ReadModuleFile(path));
  if (!module.manifest.independent_rows)
    return absl::InvalidArgumentError(path + ": its rows are not independent");
  for (size_t b = module.manifest.NumBlocks(); b-- > 0;)
    HEDDLE_RETURN_IF_ERROR(Print(path, module, b, threads));
  return absl::OkStatus();
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
  std::string module;
  int threads = 1;
  CLI::App app(
      "What a call of libheddle.so takes beyond the kernels of a module of decision trees.");
  app.add_option("module", module, "module file")->required();
  app.add_option("--threads", threads, "threads of a kernel")->check(CLI::Range(1, 256));
  if (const auto end = heddle::ParseCommandLine(&app, argc, argv)) return *end;
  const absl::Status status = heddle::bench::Run(module, threads);
  if (status.ok()) return 0;
  std::fprintf(stderr, "heddle-bench-call: %s\n", std::string(status.message()).c_str());
  return 1;
}
