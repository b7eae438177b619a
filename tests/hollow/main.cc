// heddle-hollow-worker: workers without work, for load tests (hollow_workers.h).
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/daemon/libraries.h"
#include "tests/hollow/hollow_workers.h"

int main(int argc, char** argv) {
  heddle::SetUpLibraries();
  heddle::hollow::HollowOptions options;
  options.tracker = "127.0.0.1:9191";
  CLI::App app(
      "heddle-hollow-worker: many workers in one process that speak the real protocol and do no "
      "work. Writes a line of JSON a second with what they did");
  app.add_option("--tracker", options.tracker, "Address of heddle-tracker on this machine")
      ->capture_default_str();
  app.add_option("--name", options.name, "They are called NAME-0, NAME-1, ..")
      ->capture_default_str();
  app.add_option("--workers", options.workers, "How many")->capture_default_str();
  app.add_option("--cpu-slots", options.cpu_slots, "CPU slots of each")->capture_default_str();
  app.add_option("--device-slots", options.device_slots, "Device slots of each")
      ->capture_default_str();
  app.add_option("--target", options.target, "Target of the device slots")->capture_default_str();
  app.add_option("--device-key", options.device_key, "Device key of the device slots")
      ->capture_default_str();
  app.add_option("--tasks", options.script.tasks, "Tasks of each model")
      ->check(CLI::Range(1, 8192))
      ->capture_default_str();
  app.add_option("--pace", options.script.pace, "Factor of the times that stages take")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  app.add_option("--seed", options.script.seed, "Seed of all times and results")
      ->capture_default_str();
  const CLI::Range share(0.0, 1.0);
  app.add_option("--candidate-faults", options.script.candidate_faults,
                 "Share of candidates that crash when they are measured")
      ->check(share)
      ->capture_default_str();
  app.add_option("--stage-faults", options.script.stage_faults,
                 "Share of stages that end with an infrastructure fault")
      ->check(share)
      ->capture_default_str();
  app.add_option("--breaks", options.script.breaks, "Share of stages whose connection breaks")
      ->check(share)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const auto workers = heddle::hollow::HollowWorkers::Start(options);
  if (!workers.ok()) {
    std::fprintf(stderr, "heddle-hollow-worker: %s\n",
                 std::string(workers.status().message()).c_str());
    return 2;
  }
  const timespec second{.tv_sec = 1, .tv_nsec = 0};
  while (sigtimedwait(&signals, nullptr, &second) < 0) {
    const heddle::hollow::HollowCounts counts = (*workers)->TakeCounts();
    const nlohmann::json line = {{"registered", (*workers)->Registered()},
                                 {"stages", counts.stages},
                                 {"faults", counts.faults},
                                 {"interrupted", counts.interrupted},
                                 {"refused", counts.refused},
                                 {"overlapping", counts.overlapping},
                                 {"trials", counts.trials},
                                 {"missed_beats", counts.missed_beats},
                                 {"cpu_seconds", counts.cpu_seconds},
                                 {"device_seconds", counts.device_seconds},
                                 {"gaps_us", counts.gaps_us}};
    std::printf("%s\n", line.dump().c_str());
    if (std::fflush(stdout) != 0) break;  // nobody reads any more
  }
  return 0;
}
