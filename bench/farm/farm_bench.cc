// heddle-bench-farm: a real scheduler and a real tracker with many hollow workers, which speak the real
// protocol and do no work (tests/hollow/hollow_workers.h).
//
// Scheduler, tracker and all workers are three processes on this machine and share its cores. Prints how
// many stages and trials ended in a second, how long a device slot stays free between two stages, and what
// CPU time and memory each process takes. The time between two stages is the scheduler's only while all
// device slots are wanted, so the share of time that they were busy is printed beside it.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/quantiles.h"
#include "base/status_macros.h"
#include "proto/grpc_util.h"
#include "tests/hollow/farm.h"

namespace heddle::hollow {
namespace {

constexpr absl::Duration kStartLimit = absl::Minutes(5);  // until all workers and jobs are there
constexpr int kSubmitters = 4;

struct Flags {
  std::string programs, data;
  int workers = 1000, cpu_slots = 1, device_slots = 1;
  int jobs = 200, tasks = 8, trials = 512;
  double pace = 1;
  int settle = 15, seconds = 30;
  bool json = false;
};

struct Figures {
  double seconds = 0, submit_seconds = 0;
  int64_t stages = 0, trials = 0, faults = 0, interrupted = 0, refused = 0, overlapping = 0;
  int64_t missed_beats = 0;
  int64_t queued_trials = 0;  // that the jobs have yet to run
  double gap_p50_ms = 0, gap_p99_ms = 0, device_busy = 0;
  double scheduler_cores = 0, tracker_cores = 0, workers_cores = 0;  // cores in use
  double scheduler_mib = 0, tracker_mib = 0, workers_mib = 0;        // resident, at the end
};

// The lines that heddle-hollow-worker writes.
class Reports {
 public:
  explicit Reports(int fd) : lines_(fdopen(fd, "r")), thread_([this] { Read(); }) {}
  // After the process that writes has ended.
  ~Reports() {
    thread_.join();
    std::fclose(lines_);
  }
  nlohmann::json Latest() {
    absl::MutexLock lock(&mutex_);
    return latest_;
  }
  // Since the last call.
  std::vector<int64_t> TakeGaps() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(gaps_us_, {});
  }

 private:
  void Read() {
    char* line = nullptr;
    size_t size = 0;
    while (getline(&line, &size, lines_) > 0) {
      nlohmann::json report = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (report.is_discarded()) continue;
      const auto gaps = report["gaps_us"].get<std::vector<int64_t>>();
      report.erase("gaps_us");
      absl::MutexLock lock(&mutex_);
      gaps_us_.insert(gaps_us_.end(), gaps.begin(), gaps.end());
      latest_ = std::move(report);
    }
    std::free(line);
  }

  FILE* const lines_;
  absl::Mutex mutex_;
  nlohmann::json latest_ ABSL_GUARDED_BY(mutex_) = nlohmann::json::object();
  std::vector<int64_t> gaps_us_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

template <typename Condition>
absl::Status WaitFor(const std::string& what, const Condition& condition) {
  const absl::Time give_up = MonotonicNow() + kStartLimit;
  while (!condition()) {
    if (MonotonicNow() > give_up)
      return absl::DeadlineExceededError(absl::StrCat("waited too long for ", what));
    absl::SleepFor(absl::Milliseconds(500));
  }
  return absl::OkStatus();
}

absl::Status SubmitAll(const Flags& flags, Farm* farm) {
  std::atomic<int> next{0};
  absl::Mutex mutex;
  absl::Status failed;
  std::vector<std::thread> threads;
  for (int i = 0; i < kSubmitters; ++i) {
    threads.emplace_back([&] {
      for (int number = next++; number < flags.jobs; number = next++) {
        const auto job = farm->Submit(number, flags.trials);
        absl::MutexLock lock(&mutex);
        if (!job.ok()) failed = job.status();
        if (!failed.ok()) return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failed;
}

// Unfinished jobs that are not imported yet; -1 if the scheduler does not answer.
int Importing(Farm* farm) {
  int importing = 0;
  v1::ListJobsRequest request;
  while (true) {
    grpc::ClientContext context;
    SetDeadline(&context, absl::Seconds(30));
    v1::ListJobsResponse response;
    if (!farm->jobs()->ListJobs(&context, request, &response).ok()) return -1;
    for (const v1::Job& job : response.jobs()) importing += job.state() == v1::JOB_IMPORTING;
    if (!response.more() || response.jobs().empty()) return importing;
    request.set_before(response.jobs(response.jobs_size() - 1).id());
  }
}

absl::StatusOr<Figures> Measure(const Flags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<Farm> farm,
                          Farm::Start(flags.programs, flags.data));
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0) return absl::UnavailableError("no pipe");
  auto started = Process::Start(
      {flags.programs + "/heddle-hollow-worker", "--tracker", farm->tracker_address(), "--workers",
       absl::StrCat(flags.workers), "--cpu-slots", absl::StrCat(flags.cpu_slots), "--device-slots",
       absl::StrCat(flags.device_slots), "--tasks", absl::StrCat(flags.tasks), "--pace",
       absl::StrCat(flags.pace)},
      pipe[1]);
  close(pipe[1]);
  Reports reports(pipe[0]);
  HEDDLE_RETURN_IF_ERROR(started.status());
  const std::unique_ptr<Process> workers = *std::move(started);
  HEDDLE_RETURN_IF_ERROR(WaitFor("the workers to register", [&] {
    return reports.Latest().value("registered", 0) == flags.workers;
  }));
  Figures figures;
  const absl::Time submitting = MonotonicNow();
  HEDDLE_RETURN_IF_ERROR(SubmitAll(flags, farm.get()));
  figures.submit_seconds = absl::ToDoubleSeconds(MonotonicNow() - submitting);
  HEDDLE_RETURN_IF_ERROR(WaitFor("the imports", [&] { return Importing(farm.get()) == 0; }));
  absl::SleepFor(absl::Seconds(flags.settle));

  struct Cpu {
    double scheduler, tracker, workers;
  };
  const auto cpu = [&] {
    return Cpu{farm->scheduler().CpuSeconds(), farm->tracker().CpuSeconds(), workers->CpuSeconds()};
  };
  const nlohmann::json before = reports.Latest();
  (void)reports.TakeGaps();
  const absl::Time begin = MonotonicNow();
  const Cpu cpu_before = cpu();
  absl::SleepFor(absl::Seconds(flags.seconds));
  const nlohmann::json after = reports.Latest();
  const std::vector<int64_t> gaps = reports.TakeGaps();
  const Cpu cpu_after = cpu();
  figures.seconds = absl::ToDoubleSeconds(MonotonicNow() - begin);
  const auto grown = [&](const char* name) {
    return after.value(name, int64_t{0}) - before.value(name, int64_t{0});
  };
  figures.stages = grown("stages");
  figures.trials = grown("trials");
  figures.faults = grown("faults");
  figures.interrupted = grown("interrupted");
  figures.refused = grown("refused");
  figures.overlapping = after.value("overlapping", int64_t{0});
  figures.missed_beats = grown("missed_beats");
  figures.queued_trials =
      int64_t{flags.jobs} * flags.tasks * flags.trials - after.value("trials", int64_t{0});
  figures.gap_p50_ms = Quantile(gaps, 0.5) * 1e-3;
  figures.gap_p99_ms = Quantile(gaps, 0.99) * 1e-3;
  figures.device_busy = (after.value("device_seconds", 0.0) - before.value("device_seconds", 0.0)) /
                        (figures.seconds * flags.workers * flags.device_slots);
  figures.scheduler_cores = (cpu_after.scheduler - cpu_before.scheduler) / figures.seconds;
  figures.tracker_cores = (cpu_after.tracker - cpu_before.tracker) / figures.seconds;
  figures.workers_cores = (cpu_after.workers - cpu_before.workers) / figures.seconds;
  figures.scheduler_mib = farm->scheduler().ResidentMib();
  figures.tracker_mib = farm->tracker().ResidentMib();
  figures.workers_mib = workers->ResidentMib();
  if (!farm->scheduler().Alive() || !farm->tracker().Alive() || !workers->Alive())
    return absl::InternalError("a process has ended; see the logs");
  return figures;
}

void Print(const Flags& flags, const Figures& f) {
  const double stages = static_cast<double>(f.stages) / f.seconds;
  const double trials = static_cast<double>(f.trials) / f.seconds;
  if (flags.json) {
    const nlohmann::json all = {{"workers", flags.workers},
                                {"jobs", flags.jobs},
                                {"tasks", flags.tasks},
                                {"pace", flags.pace},
                                {"submit_seconds", f.submit_seconds},
                                {"stages_per_second", stages},
                                {"trials_per_second", trials},
                                {"faults", f.faults},
                                {"interrupted", f.interrupted},
                                {"refused", f.refused},
                                {"overlapping", f.overlapping},
                                {"missed_beats", f.missed_beats},
                                {"queued_trials", f.queued_trials},
                                {"gap_p50_ms", f.gap_p50_ms},
                                {"gap_p99_ms", f.gap_p99_ms},
                                {"device_busy", f.device_busy},
                                {"scheduler_cores", f.scheduler_cores},
                                {"tracker_cores", f.tracker_cores},
                                {"workers_cores", f.workers_cores},
                                {"scheduler_mib", f.scheduler_mib},
                                {"tracker_mib", f.tracker_mib},
                                {"workers_mib", f.workers_mib}};
    std::printf("%s\n", all.dump().c_str());
    return;
  }
  std::printf("%d workers, %d jobs of %d tasks (submitted in %.1f s), pace %g, %.0f s\n",
              flags.workers, flags.jobs, flags.tasks, f.submit_seconds, flags.pace, f.seconds);
  std::printf("stages a second %.0f, trials a second %.0f, trials queued %lld\n", stages, trials,
              static_cast<long long>(f.queued_trials));
  std::printf("device slot free between two stages: p50 %.1f ms, p99 %.1f ms; busy %.1f %%\n",
              f.gap_p50_ms, f.gap_p99_ms, 100 * f.device_busy);
  std::printf("%-12s%12s%12s\n", "", "cores", "MiB");
  std::printf("%-12s%12.2f%12.0f\n", "scheduler", f.scheduler_cores, f.scheduler_mib);
  std::printf("%-12s%12.2f%12.0f\n", "tracker", f.tracker_cores, f.tracker_mib);
  std::printf("%-12s%12.2f%12.0f\n", "workers", f.workers_cores, f.workers_mib);
  std::printf(
      "stages with faults %lld, interrupted %lld, refused %lld, overlapping %lld; "
      "heartbeats without an answer %lld\n",
      static_cast<long long>(f.faults), static_cast<long long>(f.interrupted),
      static_cast<long long>(f.refused), static_cast<long long>(f.overlapping),
      static_cast<long long>(f.missed_beats));
}

}  // namespace
}  // namespace heddle::hollow

int main(int argc, char** argv) {
  heddle::hollow::Flags flags;
  flags.programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  flags.data =
      (std::filesystem::temp_directory_path() / absl::StrCat("heddle-farm-", getpid())).string();
  CLI::App app("heddle-bench-farm: a scheduler and a tracker with many hollow workers");
  app.add_option("--workers", flags.workers, "hollow workers")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--cpu-slots", flags.cpu_slots, "CPU slots of each")->capture_default_str();
  app.add_option("--device-slots", flags.device_slots, "device slots of each")
      ->capture_default_str();
  app.add_option("--jobs", flags.jobs, "jobs")->check(CLI::Range(1, 10'000))->capture_default_str();
  app.add_option("--tasks", flags.tasks, "tasks of each")
      ->check(CLI::Range(1, 8192))
      ->capture_default_str();
  app.add_option("--trials", flags.trials, "trials for each task")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--pace", flags.pace, "factor of the times that stages take")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  app.add_option("--settle", flags.settle, "seconds between the imports and the measurement")
      ->check(CLI::Range(0, 600))
      ->capture_default_str();
  app.add_option("--seconds", flags.seconds, "time of the measurement")
      ->check(CLI::Range(1, 600))
      ->capture_default_str();
  app.add_option("--data", flags.data, "folder for the scheduler's data, removed at the end");
  app.add_flag("--json", flags.json, "print JSON");
  CLI11_PARSE(app, argc, argv);
  const auto figures = heddle::hollow::Measure(flags);
  if (!figures.ok()) {
    std::fprintf(stderr, "heddle-bench-farm: %s\n",
                 std::string(figures.status().message()).c_str());
    return 1;
  }
  heddle::hollow::Print(flags, *figures);
  return figures->overlapping == 0 ? 0 : 1;
}
