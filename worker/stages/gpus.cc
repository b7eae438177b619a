#include "worker/stages/gpus.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/one_line.h"
#include "base/status_macros.h"
#include "base/vocabulary/target.h"
#include "compiler/driver/compile.h"
#include "worker/child/stage_child.h"
#include "worker/confine/policy.h"
#include "worker/confine/stage_folder.h"
#include "worker/frame.h"
#include "worker/process/child_text.h"
#include "worker/stages/candidates.h"

namespace heddle::worker {
namespace {

constexpr absl::Duration kFindLimit = absl::Seconds(10);
constexpr absl::Duration kTryLimit = absl::Minutes(1);
constexpr int kMostGpus = 64;  // of a machine
constexpr size_t kMostBytes = size_t{1} << 20;
constexpr char kSmallKernel[] = R"(program twice(a: f32[4096]) -> (y: f32[4096]) {
  for i in 4096 {
    block y_block(vi < 4096 spatial = i) {
      y[vi] = (a[vi] + a[vi])
    }
  }
}
)";

// Two frames: the stage, and the kernel that it profiles.
absl::StatusOr<std::string> StageInputs(const Gpu& gpu, codegen::Artifact artifact) {
  v1::StageInput first, second;
  v1::StageStart& start = *first.mutable_start();
  start.set_kind(v1::STAGE_PROFILE);
  start.set_target(gpu.info.target);
  start.mutable_profile()->set_workload(kSmallKernel);
  start.mutable_profile()->set_repeats(5);
  start.mutable_profile()->set_min_repeat_us(100);
  start.mutable_profile()->set_device(gpu.name);
  second.mutable_profile()->mutable_candidate()->set_id(1);
  *second.mutable_profile()->mutable_artifact() = ArtifactToProto(std::move(artifact));
  HEDDLE_ASSIGN_OR_RETURN(const std::string start_frame, EncodeFrame(first));
  HEDDLE_ASSIGN_OR_RETURN(const std::string kernel_frame, EncodeFrame(second));
  return start_frame + kernel_frame;
}

// What the stage said of the kernel.
absl::StatusOr<std::string> AnswerOf(const std::string& frames) {
  FrameDecoder decoder;
  decoder.Append(frames);
  v1::StageEvent event;
  std::string fault = "the stage measured nothing";
  while (true) {
    HEDDLE_ASSIGN_OR_RETURN(const bool more, decoder.Next(&event));
    if (!more) return absl::UnavailableError(fault);
    if (event.has_finished() && !event.finished().fault().message().empty())
      fault = event.finished().fault().message();
    if (!event.has_profiled()) continue;
    const v1::Measurement& measured = event.profiled().measurement();
    if (measured.outcome() != v1::OUTCOME_OK || measured.samples_ns().empty())
      return absl::UnavailableError(measured.message());
    const double ns = *std::min_element(measured.samples_ns().begin(), measured.samples_ns().end());
    return absl::StrCat("a small kernel takes ", static_cast<int64_t>(ns), " ns");
  }
}

}  // namespace

int GpusChildMain(int argc, char** argv) {
  pid_t parent = 0;
  if (argc == 5 && absl::SimpleAtoi(argv[3], &parent)) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) return 3;  // the parent died before the call above
  }
  absl::Status first;
  bool any = false;  // one GPU that does not answer takes no other away
  for (const runtime::DeviceKind* kind : runtime::DeviceKinds()) {
    const absl::StatusOr<int> count = kind->Count();
    first.Update(count.status());
    for (int i = 0; count.ok() && i < std::min(*count, kMostGpus); ++i) {
      const absl::StatusOr<runtime::DeviceInfo> info = kind->Describe(i);
      first.Update(info.status());
      if (!info.ok()) continue;
      any = true;
      std::printf("%s:%d\t%s\t%s\t%s\t%s\t%s\n", kind->name().c_str(), i, info->target.c_str(),
                  info->key.c_str(), info->name.c_str(), info->driver.c_str(),
                  info->address.c_str());
    }
  }
  if (!first.ok()) std::fprintf(stderr, "%s\n", OneLine(first).c_str());
  if (!first.ok() && !any) return 1;
  return std::fflush(stdout) == 0 ? 0 : 1;
}

absl::StatusOr<std::vector<Gpu>> FindGpus(const std::vector<std::string>& command) {
  ChildOptions child;
  child.command = command;
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, TextOfChild(child, "", kFindLimit, kMostBytes));
  std::vector<Gpu> gpus;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, '\t');
    if (parts.size() != 6) return absl::UnavailableError("the list of GPUs is malformed");
    gpus.push_back({parts[0],
                    {.target = parts[1],
                     .key = parts[2],
                     .name = parts[3],
                     .driver = parts[4],
                     .address = parts[5]}});
  }
  return gpus;
}

absl::StatusOr<std::string> TryGpu(const Gpu& gpu, const GpuTrialOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const Target target, ParseTarget(gpu.info.target));
  HEDDLE_ASSIGN_OR_RETURN(codegen::Artifact artifact,
                          BuildCandidate(kSmallKernel, ScheduleChoice::kDefault, "", target));
  HEDDLE_ASSIGN_OR_RETURN(const std::string input, StageInputs(gpu, std::move(artifact)));
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<confine::StageFolder> folder,
                          confine::StageFolder::Make(options.folder, options.confinement));
  ChildOptions child;
  child.command = options.stage_command;
  child.confinement = options.confinement;
  child.folder = folder->path();
  child.environment = confine::StageVariables(/*code_folder=*/"");
  HEDDLE_ASSIGN_OR_RETURN(const std::string events,
                          TextOfChild(child, input, kTryLimit, kMostBytes));
  return AnswerOf(events);
}

}  // namespace heddle::worker
