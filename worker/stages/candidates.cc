#include "worker/stages/candidates.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/one_line.h"
#include "base/quantiles.h"
#include "base/vocabulary/job_limits.h"
#include "compiler/schedule/trace.h"
#include "proto/check_message.h"
#include "worker/slots.h"

namespace heddle::worker {
namespace {

void LaunchToProto(const runtime::GpuLaunch& launch, v1::Kernel::Launch* proto) {
  proto->set_symbol(launch.symbol);
  proto->mutable_grid()->Assign(launch.grid.begin(), launch.grid.end());
  proto->mutable_block()->Assign(launch.block.begin(), launch.block.end());
  proto->set_static_shared_bytes(launch.static_shared_bytes);
  proto->set_dynamic_shared_bytes(launch.dynamic_shared_bytes);
  for (const runtime::GpuArgument& argument : launch.arguments) {
    v1::Kernel::Launch::Argument* added = proto->add_arguments();
    added->set_buffer(argument.buffer);
    added->set_workspace_offset(argument.workspace_offset);
  }
  proto->set_registers(launch.registers);
  proto->set_local_bytes(launch.local_bytes);
}

// Missing extents become 0, which no launch may have.
template <typename Field>
std::array<int64_t, 3> Extents(const Field& field) {
  std::array<int64_t, 3> extents = {0, 0, 0};
  std::copy_n(field.begin(), std::min<size_t>(3, static_cast<size_t>(field.size())),
              extents.begin());
  return extents;
}

runtime::GpuLaunch LaunchFromProto(const v1::Kernel::Launch& proto) {
  runtime::GpuLaunch launch;
  launch.symbol = proto.symbol();
  launch.grid = Extents(proto.grid());
  launch.block = Extents(proto.block());
  launch.static_shared_bytes = proto.static_shared_bytes();
  launch.dynamic_shared_bytes = proto.dynamic_shared_bytes();
  for (const v1::Kernel::Launch::Argument& argument : proto.arguments()) {
    launch.arguments.push_back({argument.buffer(), argument.workspace_offset()});
  }
  launch.registers = proto.registers();
  launch.local_bytes = proto.local_bytes();
  return launch;
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

}  // namespace

v1::Artifact ArtifactToProto(codegen::Artifact artifact) {
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
    for (const runtime::GpuLaunch& launch : info.launches)
      LaunchToProto(launch, kernel->add_launches());
  }
  proto.mutable_numerics()->set_winograd(artifact.numerics.winograd);
  proto.mutable_numerics()->set_tf32(artifact.numerics.tf32);
  proto.mutable_numerics()->set_tensor_cores(artifact.numerics.tensor_cores);
  proto.mutable_numerics()->set_sum_terms(artifact.numerics.sum_terms);
  return proto;
}

codegen::Artifact ArtifactFromProto(const v1::Artifact& proto) {
  codegen::Artifact artifact;
  artifact.shared_object = proto.shared_object();
  for (const v1::Kernel& kernel : proto.kernels()) {
    codegen::KernelInfo& info = artifact.kernels.emplace_back();
    info.symbol = kernel.symbol();
    info.workspace_bytes = kernel.workspace_bytes();
    for (const v1::Kernel::Argument& argument : kernel.arguments()) {
      info.arguments.push_back({argument.name(), argument.bytes()});
    }
    for (const v1::Kernel::Launch& launch : kernel.launches()) {
      info.launches.push_back(LaunchFromProto(launch));
    }
  }
  artifact.numerics = {.winograd = proto.numerics().winograd(),
                       .tf32 = proto.numerics().tf32(),
                       .tensor_cores = proto.numerics().tensor_cores(),
                       .sum_terms = proto.numerics().sum_terms()};
  return artifact;
}

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

void SetResult(const absl::StatusOr<Measurement>& measured, v1::Measurement* measurement) {
  if (!measured.ok()) {
    measurement->set_outcome(OutcomeOf(measured.status()));
    measurement->set_message(OneLine(measured.status()));
    return;
  }
  measurement->set_outcome(v1::OUTCOME_OK);
  measurement->mutable_samples_ns()->Assign(measured->timing.samples_ns.begin(),
                                            measured->timing.samples_ns.end());
  measurement->mutable_evidence()->set_max_error(measured->max_error);
}

void ShownLoops::Add(const v1::Candidate& candidate, v1::Measurement* measurement) {
  if (measurement->outcome() != v1::OUTCOME_OK || !naive_.ok()) return;
  const auto& samples = measurement->samples_ns();
  const double ns = Median({samples.begin(), samples.end()});
  const bool fastest = best_ns_ == 0 || ns < best_ns_;
  if (fastest) best_ns_ = ns;
  if (!fastest && candidate.origin() != "default") return;
  const absl::StatusOr<schedule::Trace> trace = schedule::ParseTrace(candidate.trace());
  if (!trace.ok()) return;
  const absl::StatusOr<ir::Program> scheduled = schedule::Replay(*naive_, *trace);
  if (!scheduled.ok()) return;
  std::string text = ir::Print(*scheduled);
  static const size_t most =
      MostTextBytes(*v1::Measurement::descriptor(), v1::Measurement::kLoopsFieldNumber);
  if (text.size() <= most) measurement->set_loops(std::move(text));
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
  options.device = spec.device();
  options.threads = spec.threads() > 0 ? spec.threads() : 1;
  if (options.threads > static_cast<int>(options.cpus.size())) {
    return absl::InvalidArgumentError(absl::StrCat("a kernel of ", options.threads,
                                                   " threads does not fit a slot of ",
                                                   options.cpus.size(), " cores"));
  }
  return options;
}

}  // namespace heddle::worker
