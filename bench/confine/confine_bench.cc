// What confinement costs: the start of a stage, and kernels, with and without it in turns. Both
// kinds of stage are real children of a real supervisor; this program is also its own child.
//
//   heddle-confine-bench --cores 1                      start of a small program, and kernels
//   heddle-confine-bench --cores 1 --child heddle-worker  start of the worker's own program
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/command_documents.h"
#include "base/quantiles.h"
#include "compiler/runtime/thread_pool.h"
#include "worker/child/stage_child.h"
#include "worker/confine/mechanisms.h"
#include "worker/slots.h"
#include "worker/supervisor/stage_runner.h"

namespace heddle::bench {
namespace {

using worker::confine::Confinement;

double NanosSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
}

// Arithmetic in caches.
void MultiplyMatrices() {
  constexpr int kSize = 192;
  static std::vector<float> a(kSize * kSize, 1.5f), b(kSize * kSize, 0.5f), c(kSize * kSize);
  for (int i = 0; i < kSize; ++i) {
    for (int k = 0; k < kSize; ++k) {
      const float factor = a[i * kSize + k];
      for (int j = 0; j < kSize; ++j) c[i * kSize + j] += factor * b[k * kSize + j];
    }
  }
  asm volatile("" : : "r"(c.data()) : "memory");
}

// Memory beyond caches, at random.
void WalkMemory() {
  constexpr size_t kWords = size_t{16} << 20;
  static std::vector<uint32_t> memory(kWords, 1);
  uint32_t at = 1;
  constexpr int kSteps = 200'000;
  for (int step = 0; step < kSteps; ++step) {
    at = at * 1664525u + 1013904223u;
    memory[at % kWords] += at;
  }
  asm volatile("" : : "r"(memory.data()) : "memory");
}

// What kernels ask of the system: new memory, and threads that sleep and wake.
void AskSystem() {
  static const runtime::ThreadPool pool(2);
  constexpr int kLoops = 50;
  for (int loop = 0; loop < kLoops; ++loop) {
    const auto body = [](void*, int64_t, int64_t, int32_t) {};
    pool.host()->parallel_for(pool.host(), 2, body, nullptr);
    constexpr size_t kBytes = size_t{4} << 20;
    std::vector<char> fresh(kBytes, 1);  // mapped and unmapped
    asm volatile("" : : "r"(fresh.data()) : "memory");
    usleep(1);
  }
}

// Warns one line "name nanoseconds" for each kernel.
absl::Status RunKernels(const v1::StageStart& start, worker::StageIo& io) {
  if (start.propose().search().strategy() != "kernels") return absl::OkStatus();
  const std::map<std::string, void (*)()> kernels = {
      {"arithmetic", MultiplyMatrices}, {"memory", WalkMemory}, {"system", AskSystem}};
  constexpr int kRepeats = 20;
  for (const auto& [name, kernel] : kernels) {
    kernel();
    std::vector<double> times;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      const auto begin = std::chrono::steady_clock::now();
      kernel();
      times.push_back(NanosSince(begin));
    }
    io.Warn(absl::StrCat(name, " ", Median(times)));
  }
  return absl::OkStatus();
}

class NoCaller final : public worker::StageCaller {
 public:
  bool Read(v1::StageInput*) override { return false; }
  bool InputEnded() override { return true; }
  bool Gone() override { return false; }
  bool Write(const v1::StageEvent&, const std::function<void()>&) override { return true; }
};

struct Samples {
  std::vector<double> without, with;
  void Print(const std::string& name, double unit_ns, const char* unit) const {
    const double before = Median(without) / unit_ns, after = Median(with) / unit_ns;
    std::printf("%-12s %10.3f %10.3f %s  %+8.3f %s  x %.4f\n", name.c_str(), before, after, unit,
                after - before, unit, before > 0 ? after / before : 0);
  }
};

v1::StageFinished Run(const std::string& strategy, const worker::RunnerOptions& options) {
  v1::StageStart start;
  start.set_kind(v1::STAGE_PROPOSE);
  start.mutable_propose()->mutable_search()->set_strategy(strategy);
  NoCaller caller;
  worker::StageSession session;
  return worker::StageRunner(start, options, caller, session).Run();
}

int Measure(worker::RunnerOptions options, const Confinement& wanted, int rounds, bool kernels) {
  const Confinement confinement =
      worker::confine::Available(wanted, worker::confine::ProbeConfinement(wanted));
  std::printf("confined by %s; medians of %d rounds in turns\n",
              worker::confine::ToText(confinement).c_str(), rounds);
  std::printf("%-12s %10s %10s\n", "", "without", "with");
  Samples starts, cpu;
  std::map<std::string, Samples> times;
  for (int round = 0; round < rounds; ++round) {
    for (const bool confined : {round % 2 == 0, round % 2 != 0}) {
      options.confinement = confined ? confinement : Confinement{};
      const v1::StageFinished finished = Run("nothing", options);
      if (kernels && finished.fault().kind() != v1::FAULT_NONE) {
        std::fprintf(stderr, "%s\n", finished.fault().message().c_str());
        return 1;
      }
      (confined ? starts.with : starts.without).push_back(static_cast<double>(finished.wall_ns()));
      (confined ? cpu.with : cpu.without).push_back(static_cast<double>(finished.cpu_ns()));
      if (!kernels) continue;
      const v1::StageFinished measured = Run("kernels", options);
      if (measured.warnings().empty()) {
        std::fprintf(stderr, "%s\n", measured.fault().message().c_str());
        return 1;
      }
      for (const std::string& line : measured.warnings()) {
        const std::vector<std::string> words = absl::StrSplit(line, ' ');
        double ns = 0;
        if (words.size() != 2 || !absl::SimpleAtod(words[1], &ns)) continue;
        Samples& samples = times[words[0]];
        (confined ? samples.with : samples.without).push_back(ns);
      }
    }
  }
  starts.Print("stage", 1e6, "ms");
  cpu.Print("its CPU", 1e6, "ms");  // of the child alone; says something on a busy host, too
  for (const auto& [name, samples] : times) samples.Print(name, 1e6, "ms");
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], heddle::worker::kStageChildFlag) == 0)
    return heddle::worker::StageChildMain(argc, argv, heddle::bench::RunKernels);
  signal(SIGPIPE, SIG_IGN);
  heddle::worker::RunnerOptions options;
  std::string child, confined_by = "all";
  int rounds = 100;
  CLI::App app("heddle-confine-bench: what the confinement of stages costs");
  app.add_option("--cores", options.cores, "Cores of the stages; default: any")->delimiter(',');
  app.add_option(
      "--child", child,
      "A program with --stage-child whose start is measured; default: this one, with kernels");
  app.add_option("--confine", confined_by, "As that of heddle-worker")->capture_default_str();
  app.add_option("--rounds", rounds)->check(CLI::Range(2, 100'000))->capture_default_str();
  if (const auto end = heddle::ParseCommandLine(&app, argc, argv)) return *end;
  const auto wanted = heddle::worker::confine::ParseConfinement(confined_by);
  if (!wanted.ok()) {
    std::fprintf(stderr, "%s\n", std::string(wanted.status().message()).c_str());
    return 2;
  }
  // A stage starts in a folder of its own.
  options.child_command = {child.empty() ? "/proc/self/exe" : std::filesystem::absolute(child),
                           heddle::worker::kStageChildFlag};
  return heddle::bench::Measure(options, *wanted, rounds, child.empty());
}
