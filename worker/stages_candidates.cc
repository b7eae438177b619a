// build and profile: the stages that take candidates one by one.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "compiler/compile.h"
#include "compiler/ir/status_macros.h"
#include "compiler/measure.h"
#include "worker/evidence.h"
#include "worker/guard.h"
#include "worker/monotonic.h"
#include "worker/slots.h"
#include "worker/stages.h"

namespace heddle::worker {
namespace {

// An event with an artifact has to fit a message; kernels are some ten KB.
constexpr size_t kMaxArtifactBytes = 3 << 20;
constexpr int kMaxRepeats = 1000;
// Repeating what was disturbed may use so much of a candidate's time limit, and of the stage's:
// the rest is for the candidates that are left.
constexpr int kRepeatPart = 3;
constexpr absl::Duration kCandidateLimit = absl::Seconds(30);  // where the start tells none

void TellStarted(StageIo& io, int64_t candidate) {
  v1::StageEvent event;
  event.mutable_candidate_started()->set_candidate(candidate);
  io.Write(event);
}

int64_t NanosSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                              begin)
      .count();
}

std::string OneLine(absl::string_view text) { return absl::StrReplaceAll(text, {{"\n", " "}}); }

absl::StatusOr<codegen::Artifact> BuildOne(const std::string& workload, const std::string& trace,
                                           const ir::Target& target) {
  HEDDLE_ASSIGN_OR_RETURN(codegen::Artifact artifact,
                          BuildCandidate(workload, ScheduleChoice::kTrace, trace, target));
  if (artifact.shared_object.size() > kMaxArtifactBytes) {
    return absl::FailedPreconditionError(absl::StrCat("its code has ",
                                                      artifact.shared_object.size(), " bytes; ",
                                                      kMaxArtifactBytes, " are allowed"));
  }
  return artifact;
}

v1::Outcome OutcomeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
      return v1::OUTCOME_WRONG_RESULT;
    case absl::StatusCode::kInvalidArgument:  // the code does not load
      return v1::OUTCOME_BUILD_ERROR;
    default:
      return v1::OUTCOME_RUN_CRASH;
  }
}

absl::StatusOr<MeasureOptions> OptionsOf(const v1::ProfileSpec& spec) {
  MeasureOptions options;
  if (spec.repeats() < 0 || spec.repeats() > kMaxRepeats) {
    return absl::InvalidArgumentError(absl::StrCat("repeats are 0 to ", kMaxRepeats));
  }
  if (spec.repeats() > 0) options.timing.repeats = spec.repeats();
  if (spec.min_repeat_us() < 0)
    return absl::InvalidArgumentError("the minimum repeat time is not negative");
  if (spec.min_repeat_us() > 0)
    options.timing.min_repeat = absl::Microseconds(spec.min_repeat_us());
  options.cpus = UsableCores();  // the supervisor has confined this process to the slot's
  options.threads = spec.threads() > 0 ? spec.threads() : 1;
  if (options.threads > static_cast<int>(options.cpus.size())) {
    return absl::InvalidArgumentError(absl::StrCat("a kernel of ", options.threads,
                                                   " threads does not fit a slot of ",
                                                   options.cpus.size(), " cores"));
  }
  return options;
}

v1::Artifact ToProto(codegen::Artifact artifact) {
  v1::Artifact proto;
  proto.set_shared_object(std::move(artifact.shared_object));
  for (const codegen::KernelInfo& info : artifact.kernels) {
    v1::Kernel* kernel = proto.add_kernels();
    kernel->set_symbol(info.symbol);
    kernel->set_workspace_bytes(info.workspace_bytes);
    for (const codegen::Argument& argument : info.arguments) {
      v1::Kernel::Argument* added = kernel->add_arguments();
      added->set_name(argument.name);
      added->set_bytes(argument.bytes);
    }
  }
  return proto;
}

codegen::Artifact FromProto(const v1::Artifact& proto) {
  codegen::Artifact artifact;
  artifact.shared_object = proto.shared_object();
  for (const v1::Kernel& kernel : proto.kernels()) {
    codegen::KernelInfo& info = artifact.kernels.emplace_back();
    info.symbol = kernel.symbol();
    info.workspace_bytes = kernel.workspace_bytes();
    for (const v1::Kernel::Argument& argument : kernel.arguments()) {
      info.arguments.push_back({argument.name(), argument.bytes()});
    }
  }
  return artifact;
}

// The cores the kernel runs on; their disturbance is what counts.
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
    double canaries[3];
    for (double& ns : canaries) ns = guard.read().canary_ns;
    std::sort(std::begin(canaries), std::end(canaries));
    guard.canary_usual_ns = canaries[1];
  }
  return guard;
}

v1::Measurement Measure(WorkloadBench& bench, const v1::ProfileItem& item,
                        const std::vector<int>& cores, GuardOptions& guard) {
  codegen::Artifact artifact = FromProto(item.artifact());
  artifact.winograd = UsesWinograd(item.candidate().trace());
  v1::Measurement measurement;
  *measurement.mutable_evidence() = CollectEvidence(cores);
  std::vector<absl::StatusOr<Measurement>> runs;
  const auto begin = std::chrono::steady_clock::now();
  const GuardedRun run = RunGuarded(guard, [&] {
    runs.push_back(bench.Run(artifact));
    return runs.back().ok();
  });
  measurement.set_profile_ns(NanosSince(begin));
  Describe(run, guard.canary_usual_ns, measurement.mutable_evidence());
  guard.resigned = !run.quietness.disturbance.empty();
  const absl::StatusOr<Measurement>& measured = runs[run.kept];
  if (!measured.ok()) {
    measurement.set_outcome(OutcomeOf(measured.status()));
    measurement.set_message(OneLine(measured.status().message()));
    return measurement;
  }
  measurement.set_outcome(v1::OUTCOME_OK);
  measurement.mutable_samples_ns()->Assign(measured->timing.samples_ns.begin(),
                                           measured->timing.samples_ns.end());
  measurement.mutable_evidence()->set_max_error(measured->max_error);
  return measurement;
}

}  // namespace

absl::Status RunBuild(const v1::StageStart& start, StageIo& io) {
  HEDDLE_ASSIGN_OR_RETURN(const ir::Target target, ir::ParseTarget(start.target()));
  v1::StageInput input;
  while (io.Read(&input)) {
    const v1::Candidate& candidate = input.build().candidate();
    TellStarted(io, candidate.id());
    const auto begin = std::chrono::steady_clock::now();
    absl::StatusOr<codegen::Artifact> artifact =
        BuildOne(start.build().workload(), candidate.trace(), target);
    v1::StageEvent event;
    v1::BuildResult* result = event.mutable_built();
    result->set_candidate(candidate.id());
    result->set_build_ns(NanosSince(begin));
    if (artifact.ok()) {
      *result->mutable_artifact() = ToProto(*std::move(artifact));
    } else {
      result->mutable_failure()->set_outcome(v1::OUTCOME_BUILD_ERROR);
      result->mutable_failure()->set_message(OneLine(artifact.status().message()));
      result->mutable_failure()->set_build_ns(result->build_ns());
      result->mutable_failure()->mutable_evidence()->set_toolchain(HEDDLE_TOOLCHAIN);
    }
    io.Write(event);
  }
  return absl::OkStatus();
}

absl::Status RunProfile(const v1::StageStart& start, StageIo& io) {
  HEDDLE_ASSIGN_OR_RETURN(const MeasureOptions options, OptionsOf(start.profile()));
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<WorkloadBench> bench,
                          WorkloadBench::Create(start.profile().workload(), options));
  const absl::Time stage_begin = MonotonicNow();
  const absl::Duration candidate_limit = start.candidate_time_limit_ms() > 0
                                             ? absl::Milliseconds(start.candidate_time_limit_ms())
                                             : kCandidateLimit;
  const std::vector<int> cores = MeasuringCores(options);
  GuardOptions guard = GuardFor(start, cores);
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
        Measure(*bench, input.profile(), cores, guard);
    io.Write(event);
  }
  return absl::OkStatus();
}

}  // namespace heddle::worker
