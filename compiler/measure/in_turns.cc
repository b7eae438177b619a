#include "compiler/measure/in_turns.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/quantiles.h"
#include "base/status_macros.h"
#include "base/vocabulary/row_blocks.h"
#include "compiler/ir/arithmetic.h"

namespace heddle {
namespace {

constexpr absl::Duration kSample = absl::Milliseconds(50);
constexpr int kMostProfiles = 50;  // runs with timed calls in one round, for very small models
constexpr double kSureness = 0.95;

// One module's part of a round.
absl::Status TimeOnce(const Contestant& contestant, ModuleTiming* timing) {
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Executor> executor,
                          runtime::Executor::Create(*contestant.module, contestant.options));
  const std::vector<TimedBlock>& blocks = timing->blocks;
  const runtime::Manifest& manifest = executor->manifest();
  for (size_t i = 0; i < std::min(manifest.inputs.size(), contestant.inputs.size()); ++i) {
    const std::string& bytes = contestant.inputs[i];
    const auto wanted = manifest.BytesInBlock(manifest.inputs[i], blocks[0].block);
    if (static_cast<size_t>(wanted) == bytes.size())
      std::memcpy(executor->InputData(static_cast<int>(i)), bytes.data(), bytes.size());
  }
  runtime::TimingOptions options;
  options.repeats = 1;
  options.warmup_calls = 0;
  options.min_repeat = kSample / static_cast<int64_t>(blocks.size());
  double sum = 0;
  size_t next = 0;  // of calls_ns
  for (const TimedBlock& timed : blocks) {
    // Twice: the first run may load kernels, and the second one may record them as a graph
    // (runtime/cuda/executor.cc).
    for (int warm = 0; warm < 2; ++warm) HEDDLE_RETURN_IF_ERROR(executor->Run(timed.block));
    const double ns = runtime::TimeCalls([&] { executor->Run(timed.block).IgnoreError(); }, options)
                          .samples_ns.front();
    const double runs = absl::ToDoubleNanoseconds(options.min_repeat) / std::max(ns, 1.0);
    const std::vector<double> calls = executor->ProfileNs(
        static_cast<int>(std::clamp<double>(runs, 1, kMostProfiles)), timed.block);
    HEDDLE_RETURN_IF_ERROR(executor->status());
    sum += ns * static_cast<double>(timed.runs);
    for (const double call : calls) timing->calls_ns[next++].push_back(call);
  }
  timing->samples_ns.push_back(sum);
  return absl::OkStatus();
}

}  // namespace

double ModuleTiming::Median() const { return heddle::Median(samples_ns); }

double ModuleTiming::Percentile(double p) const { return Quantile(samples_ns, p / 100); }

double TaskTiming::Ns(size_t module) const {
  return uses[module] == 0 ? 0 : Median(rounds_ns[module]) / uses[module];
}

Turns ComparisonTurns() { return {.rounds = 20, .limit = absl::Seconds(5), .least_rounds = 7}; }

int64_t RowsOfRun(const runtime::Manifest& manifest) {
  const bool has_rows = !manifest.inputs.empty() && !manifest.inputs[0].shape.empty();
  return has_rows ? manifest.inputs[0].shape[0] : 1;
}

absl::StatusOr<std::vector<TimedBlock>> BlocksOf(const Contestant& contestant) {
  const runtime::Manifest& manifest = contestant.module->manifest;
  if (!manifest.independent_rows) {
    // It may be an older module of a model whose rows are independent, which does not say so.
    const int64_t rows = RowsOfRun(manifest);
    if (contestant.rows == 0 || contestant.rows == rows) return std::vector<TimedBlock>{{0, 1}};
    return absl::InvalidArgumentError(
        absl::StrCat("the module of ", manifest.model, " cannot be timed with ", contestant.rows,
                     " rows: its rows are fixed at ", rows, ", so give as many"));
  }
  std::vector<TimedBlock> blocks;
  std::string sizes;
  for (size_t b = 0; b < manifest.NumBlocks(); ++b) {
    const int64_t rows = manifest.RowsOf(b);
    if (contestant.rows == 0) blocks.push_back({b, RunsOfBlock(manifest.RowsOf(0), rows)});
    if (contestant.rows != 0 && contestant.rows == rows) return std::vector<TimedBlock>{{b, 1}};
    absl::StrAppend(&sizes, b == 0 ? "" : " or ", rows);
  }
  if (contestant.rows == 0) return blocks;
  return absl::InvalidArgumentError(
      absl::StrCat("the module of ", manifest.model, " has no block of ", contestant.rows,
                   " rows, which is needed to time it; give ", sizes, " rows"));
}

absl::StatusOr<std::vector<ModuleTiming>> TimeInTurns(const std::vector<Contestant>& contestants,
                                                      const Turns& turns) {
  std::vector<ModuleTiming> timings(contestants.size());
  for (size_t m = 0; m < contestants.size(); ++m) {
    HEDDLE_ASSIGN_OR_RETURN(timings[m].blocks, BlocksOf(contestants[m]));
    size_t calls = 0;
    for (const TimedBlock& timed : timings[m].blocks)
      calls += contestants[m].module->manifest.CallsOf(timed.block).size();
    timings[m].calls_ns.resize(calls);
  }
  const absl::Time begin = MonotonicNow();
  for (int round = 0; round < turns.rounds; ++round) {
    if (turns.stop && turns.stop()) break;
    if (round >= turns.least_rounds && MonotonicNow() - begin > turns.limit) break;
    for (size_t i = 0; i < contestants.size(); ++i) {
      const size_t m = round % 2 == 0 ? i : contestants.size() - 1 - i;
      HEDDLE_RETURN_IF_ERROR(TimeOnce(contestants[m], &timings[m]));
    }
  }
  return timings;
}

std::vector<TaskTiming> TimeByTask(const std::vector<Contestant>& contestants,
                                   const std::vector<ModuleTiming>& timings) {
  std::vector<TaskTiming> tasks;
  std::map<std::string, size_t> index;
  for (size_t m = 0; m < contestants.size(); ++m) {
    const runtime::Manifest& manifest = contestants[m].module->manifest;
    size_t next = 0;  // of calls_ns
    for (const TimedBlock& timed : timings[m].blocks) {
      for (const runtime::CallSpec& spec : manifest.CallsOf(timed.block)) {
        const runtime::KernelSpec& kernel = manifest.kernels[static_cast<size_t>(spec.kernel)];
        const auto [place, fresh] = index.try_emplace(kernel.task, tasks.size());
        if (fresh) {
          TaskTiming& added = tasks.emplace_back();
          added.task = kernel.task;
          added.label = kernel.label;
          added.flops = kernel.flops;
          added.tuned = m == 0 && kernel.schedule == "tuned";
          added.uses.resize(contestants.size());
          added.rounds_ns.resize(contestants.size());
        }
        TaskTiming& task = tasks[place->second];
        task.uses[m] += static_cast<int>(timed.runs);
        std::vector<double>& sums = task.rounds_ns[m];
        const std::vector<double>& call = timings[m].calls_ns[next++];
        sums.resize(std::max(sums.size(), call.size()));
        for (size_t r = 0; r < call.size(); ++r)
          sums[r] += call[r] * static_cast<double>(timed.runs);
      }
    }
  }
  return tasks;
}

Ratio RatioOf(const std::vector<double>& first, const std::vector<double>& second) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(first.size(), second.size()); ++i) {
    if (first[i] > 0 && second[i] > 0) ratios.push_back(first[i] / second[i]);
  }
  if (ratios.empty()) return {};
  std::sort(ratios.begin(), ratios.end());
  // The k-th least and the k-th greatest of n independent values hold the median between them unless
  // fewer than k of the n lie on one side of it: with probability 1 - 2 P(Binomial(n, 1/2) < k).
  const size_t n = ratios.size();
  size_t k = 0;
  double below = 0, term = std::pow(0.5, static_cast<double>(n));
  for (size_t next = 0; next < n / 2; ++next) {
    below += term;  // P(Binomial < next + 1)
    if (1 - 2 * below < kSureness) break;
    k = next;
    term *= static_cast<double>(n - next) / static_cast<double>(next + 1);
  }
  return {Median(ratios), ratios[k], ratios[n - 1 - k], static_cast<int>(n)};
}

std::string RandomTensor(const runtime::TensorSpec& spec, uint64_t seed) {
  std::string bytes(static_cast<size_t>(spec.SizeBytes()), '\0');
  std::mt19937_64 rng(seed);
  const auto unit = [&rng] { return static_cast<double>(rng() >> 11) * 0x1p-52 - 1.0; };
  const auto fill = [&]<typename T>(T, auto draw) {
    for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
      const T value = static_cast<T>(draw());
      std::memcpy(bytes.data() + i, &value, sizeof value);
    }
  };
  const auto small = [&rng] { return rng() % 8; };
  size_t element = 0;
  const auto sampled = [&] {
    const std::vector<float>& values = spec.samples[element++ % spec.samples.size()];
    return values.empty() ? static_cast<float>(unit()) : values[rng() % values.size()];
  };
  if (spec.dtype == "f32" && !spec.samples.empty())
    fill(float{}, sampled);
  else if (spec.dtype == "f32")
    fill(float{}, unit);
  else if (spec.dtype == "f64")
    fill(double{}, unit);
  else if (const auto half = ir::DTypeFromName(spec.dtype); half && ir::IsHalf(*half))
    fill(uint16_t{}, [&] { return ir::HalfBits(static_cast<float>(unit()), *half); });
  else if (spec.dtype == "i16" || spec.dtype == "u16")
    fill(uint16_t{}, small);
  else if (spec.dtype == "i32" || spec.dtype == "u32")
    fill(int32_t{}, small);
  else if (spec.dtype == "i64" || spec.dtype == "u64")
    fill(int64_t{}, small);
  else if (spec.dtype == "bool")
    fill(uint8_t{}, [&rng] { return rng() & 1; });
  else
    fill(uint8_t{}, small);
  return bytes;
}

}  // namespace heddle
