// build and profile: the stages that take candidates one by one.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/one_line.h"
#include "base/quantiles.h"
#include "base/status_macros.h"
#include "compiler/driver/compile.h"
#include "compiler/measure/measure.h"
#include "compiler/runtime/machine_limits.h"
#include "worker/child/guard.h"
#include "worker/slots.h"
#include "worker/stages/candidates.h"
#include "worker/stages/evidence.h"
#include "worker/stages/machine_of.h"
#include "worker/stages/stages.h"

namespace heddle::worker {
namespace {

// An event with an artifact must fit into a message; kernels have some tens of KB.
constexpr size_t kMaxArtifactBytes = 3 << 20;
// Repetitions of disturbed measurements may use 1 / kRepeatPart of a candidate's time limit, and of
// the stage's; the rest is for the remaining candidates.
constexpr int kRepeatPart = 3;
constexpr absl::Duration kCandidateLimit = absl::Seconds(30);  // if StageStart gives none

absl::StatusOr<codegen::Artifact> BuildOne(const std::string& workload, const std::string& trace,
                                           const Target& target,
                                           const std::optional<machine::MeasuredMachine>& machine) {
  HEDDLE_ASSIGN_OR_RETURN(codegen::Artifact artifact,
                          BuildCandidate(workload, ScheduleChoice::kTrace, trace, target, machine));
  if (artifact.shared_object.size() > kMaxArtifactBytes) {
    return absl::FailedPreconditionError(absl::StrCat("its code has ",
                                                      artifact.shared_object.size(), " bytes; ",
                                                      kMaxArtifactBytes, " are allowed"));
  }
  return artifact;
}

// The cores on which the kernel runs, and whose disturbance counts.
std::vector<int> MeasuringCores(const MeasureOptions& options) {
  const size_t count = std::min(options.cpus.size(), static_cast<size_t>(options.threads));
  return {options.cpus.begin(), options.cpus.begin() + static_cast<std::ptrdiff_t>(count)};
}

GuardOptions GuardFor(const v1::StageStart& start, const std::vector<int>& cores) {
  GuardOptions guard;
  guard.read = [cores] { return TakeReading(cores); };
  guard.sleep = [](absl::Duration time) { absl::SleepFor(time); };
  guard.repeat = !start.profile().unguarded();
  guard.canary_usual_ns = start.profile().canary_usual_ns();
  if (!(guard.canary_usual_ns > 0)) {
    std::vector<double> canaries(3);
    for (double& ns : canaries) ns = guard.read().canary_ns;
    guard.canary_usual_ns = Median(canaries);
  }
  return guard;
}

// Measures the machine limits of the slot, in the first stage on it and in some later ones. The
// worker remembers the best values (SlotGuard).
void MeasureLimits(const v1::StageStart& start, int threads, v1::Evidence* evidence) {
  constexpr int64_t kBeyondCaches = int64_t{256} << 20;
  constexpr int64_t kOneIn = 8;  // one stage in so many, since it takes some tenths of a second
  if (start.profile().canary_usual_ns() > 0 && start.attempt_id() % kOneIn != 0) return;
  evidence->set_peak_gflops(runtime::MeasureFmaPeak(threads));
  evidence->set_memory_gbps(runtime::MeasureBandwidth(kBeyondCaches, threads));
}

v1::Measurement Measure(WorkloadBench& bench, const v1::ProfileItem& item,
                        const std::vector<int>& cores, const v1::Evidence& limits,
                        GuardOptions& guard) {
  const codegen::Artifact artifact = ArtifactFromProto(item.artifact());
  v1::Measurement measurement;
  *measurement.mutable_evidence() = CollectEvidence(cores);
  measurement.mutable_evidence()->MergeFrom(limits);
  std::vector<absl::StatusOr<Measurement>> runs;
  const auto begin = std::chrono::steady_clock::now();
  const GuardedRun run = RunGuarded(guard, [&] {
    runs.push_back(bench.Run(artifact));
    return runs.back().ok();
  });
  measurement.set_profile_ns(NanosSince(begin));
  Describe(run, guard.canary_usual_ns, measurement.mutable_evidence());
  guard.resigned = !run.quietness.disturbance.empty();
  SetResult(runs[run.kept], &measurement);
  return measurement;
}

}  // namespace

absl::Status RunBuild(const v1::StageStart& start, StageIo& io) {
  HEDDLE_ASSIGN_OR_RETURN(const Target target, ParseTarget(start.target()));
  const std::optional<machine::MeasuredMachine> machine = MachineOf(start, io);
  v1::StageInput input;
  while (io.Read(&input)) {
    const v1::Candidate& candidate = input.build().candidate();
    TellStarted(io, candidate.id());
    const auto begin = std::chrono::steady_clock::now();
    absl::StatusOr<codegen::Artifact> artifact =
        BuildOne(start.build().workload(), candidate.trace(), target, machine);
    // This host has no compiler for the target; another worker may have one.
    if (absl::IsUnavailable(artifact.status())) return artifact.status();
    v1::StageEvent event;
    v1::BuildResult* result = event.mutable_built();
    result->set_candidate(candidate.id());
    result->set_build_ns(NanosSince(begin));
    if (artifact.ok()) {
      *result->mutable_artifact() = ArtifactToProto(*std::move(artifact));
    } else {
      result->mutable_failure()->set_outcome(absl::IsResourceExhausted(artifact.status())
                                                 ? v1::OUTCOME_EXCEEDS_LIMITS
                                                 : v1::OUTCOME_BUILD_ERROR);
      result->mutable_failure()->set_message(OneLine(artifact.status()));
      result->mutable_failure()->set_build_ns(result->build_ns());
      result->mutable_failure()->mutable_evidence()->set_toolchain(HEDDLE_TOOLCHAIN);
    }
    io.Write(event);
  }
  return absl::OkStatus();
}

absl::Status RunProfile(const v1::StageStart& start, StageIo& io) {
  if (!start.profile().device().empty()) return RunProfileOnGpu(start, io);
  HEDDLE_ASSIGN_OR_RETURN(const MeasureOptions options, OptionsOf(start.profile()));
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<WorkloadBench> bench,
                          WorkloadBench::Create(start.profile().workload(), options));
  const absl::Time stage_begin = MonotonicNow();
  const absl::Duration candidate_limit = start.candidate_time_limit_ms() > 0
                                             ? absl::Milliseconds(start.candidate_time_limit_ms())
                                             : kCandidateLimit;
  const std::vector<int> cores = MeasuringCores(options);
  GuardOptions guard = GuardFor(start, cores);
  v1::Evidence limits;
  MeasureLimits(start, options.threads, &limits);
  ShownLoops loops(start.profile().workload());
  v1::StageInput input;
  while (io.Read(&input)) {
    const int64_t candidate = input.profile().candidate().id();
    TellStarted(io, candidate);
    guard.repeat_before = MonotonicNow() + candidate_limit / kRepeatPart;
    if (start.time_limit_ms() > 0) {
      guard.repeat_before =
          std::min(guard.repeat_before,
                   stage_begin + absl::Milliseconds(start.time_limit_ms()) / kRepeatPart);
    }
    v1::StageEvent event;
    event.mutable_profiled()->set_candidate(candidate);
    *event.mutable_profiled()->mutable_measurement() =
        Measure(*bench, input.profile(), cores, limits, guard);
    loops.Add(input.profile().candidate(), event.mutable_profiled()->mutable_measurement());
    io.Write(event);
  }
  return absl::OkStatus();
}

}  // namespace heddle::worker
