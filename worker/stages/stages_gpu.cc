// profile on a device of its own.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/one_line.h"
#include "base/status_macros.h"
#include "compiler/measure/measure.h"
#include "compiler/runtime/device_kind.h"
#include "worker/stages/candidates.h"
#include "worker/stages/evidence.h"
#include "worker/stages/stages.h"

namespace heddle::worker {
namespace {

// Ends the process: the GPU refuses further work of it, and the contents of its memory are unknown.
// A fresh process continues. It measures this candidate again if others ran here before, since one
// of those may be to blame (stage_runner.h).
[[noreturn]] void GiveUp(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", OneLine(status).c_str());
  std::fflush(stderr);
  _exit(4);
}

struct StageGpu {
  const runtime::DeviceKind* kind;
  runtime::DeviceInfo info;
};

v1::Evidence EvidenceOf(const StageGpu& gpu) {
  v1::Evidence evidence = CollectEvidence({});
  const runtime::DeviceClimate climate = gpu.kind->ReadClimate(gpu.info);
  evidence.set_gpu_mhz(climate.mhz);
  evidence.set_gpu_memory_mhz(climate.memory_mhz);
  evidence.set_temperature_celsius(climate.celsius);
  evidence.set_driver(gpu.info.driver);
  evidence.set_times_measured(1);
  if (!climate.throttled.empty())
    evidence.set_disturbance(absl::StrCat("the GPU's clock is held down: ", climate.throttled));
  return evidence;
}

v1::Measurement MeasureOnGpu(WorkloadBench& bench, const v1::ProfileItem& item,
                             const StageGpu& gpu) {
  const codegen::Artifact artifact = ArtifactFromProto(item.artifact());
  v1::Measurement measurement;
  const auto begin = std::chrono::steady_clock::now();
  const absl::StatusOr<Measurement> measured = bench.Run(artifact);
  if (absl::IsAborted(measured.status())) GiveUp(measured.status());
  measurement.set_profile_ns(NanosSince(begin));
  *measurement.mutable_evidence() = EvidenceOf(gpu);
  SetResult(measured, &measurement);
  return measurement;
}

}  // namespace

absl::Status RunProfileOnGpu(const v1::StageStart& start, StageIo& io) {
  HEDDLE_ASSIGN_OR_RETURN(const MeasureOptions options, OptionsOf(start.profile()));
  HEDDLE_ASSIGN_OR_RETURN(const runtime::DeviceName device, runtime::ParseDevice(options.device));
  const absl::StatusOr<runtime::DeviceInfo> info = device.kind->Describe(device.ordinal);
  // The GPU was present when the worker started.
  if (!info.ok()) return absl::UnavailableError(info.status().message());
  const StageGpu gpu{device.kind, *info};
  absl::StatusOr<std::unique_ptr<WorkloadBench>> bench =
      WorkloadBench::Create(start.profile().workload(), options);
  if (absl::IsAborted(bench.status())) GiveUp(bench.status());
  if (!bench.ok()) return bench.status();
  ShownLoops loops(start.profile().workload());
  v1::StageInput input;
  while (io.Read(&input)) {
    v1::StageEvent event;
    event.mutable_profiled()->set_candidate(input.profile().candidate().id());
    TellStarted(io, input.profile().candidate().id());
    *event.mutable_profiled()->mutable_measurement() = MeasureOnGpu(**bench, input.profile(), gpu);
    loops.Add(input.profile().candidate(), event.mutable_profiled()->mutable_measurement());
    io.Write(event);
  }
  return absl::OkStatus();
}

}  // namespace heddle::worker
