// compare: the stage that times a job's module against the one with default schedules.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/blob_store.h"
#include "base/status_macros.h"
#include "compiler/measure/in_turns.h"
#include "compiler/runtime/device_kind.h"
#include "worker/slots.h"
#include "worker/stages/stages.h"

namespace heddle::worker {
namespace {

absl::StatusOr<runtime::Module> Read(const v1::StageStart& start, const std::string& digest) {
  if (!IsDigest(digest)) return absl::InvalidArgumentError("a module to compare has no digest");
  return runtime::ReadModuleFile(BlobPath(start.blob_folder(), digest));
}

absl::StatusOr<runtime::Executor::Options> OptionsOf(const v1::CompareSpec& spec) {
  runtime::Executor::Options options;
  if (spec.device().empty()) {
    options.threads = spec.threads();
    options.cpus = UsableCores();  // the supervisor has confined this process to the slot's
  } else {
    HEDDLE_ASSIGN_OR_RETURN(const runtime::DeviceName device, runtime::ParseDevice(spec.device()));
    options.gpu = device.ordinal;
  }
  return options;
}

v1::Gain ToProto(const Ratio& ratio) {
  v1::Gain gain;
  gain.set_ratio(ratio.median);
  gain.set_low(ratio.low);
  gain.set_high(ratio.high);
  gain.set_rounds(ratio.rounds);
  return gain;
}

}  // namespace

absl::Status RunCompare(const v1::StageStart& start, StageIo& io) {
  const v1::CompareSpec& spec = start.compare();
  HEDDLE_ASSIGN_OR_RETURN(const runtime::Executor::Options options, OptionsOf(spec));
  HEDDLE_ASSIGN_OR_RETURN(const runtime::Module tuned, Read(start, spec.module()));
  HEDDLE_ASSIGN_OR_RETURN(const runtime::Module plain, Read(start, spec.default_module()));
  std::vector<std::string> inputs;
  for (const runtime::TensorSpec& input : tuned.manifest.inputs)
    inputs.push_back(RandomTensor(input, inputs.size()));
  const std::vector<Contestant> both = {{&tuned, options, inputs}, {&plain, options, inputs}};
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<ModuleTiming> timings,
                          TimeInTurns(both, ComparisonTurns()));
  v1::StageEvent event;
  v1::CompareResult& result = *event.mutable_compared();
  result.set_ns(timings[0].Median());
  result.set_default_ns(timings[1].Median());
  *result.mutable_gain() = ToProto(RatioOf(timings[1].samples_ns, timings[0].samples_ns));
  for (const TaskTiming& task : TimeByTask(both, timings)) {
    if (!task.tuned || task.uses[0] != task.uses[1]) continue;
    v1::CompareResult::Task& out = *result.add_tasks();
    out.set_workload_key(task.task);
    out.set_ns(task.Ns(0) * task.uses[0]);
    out.set_default_ns(task.Ns(1) * task.uses[1]);
    *out.mutable_gain() = ToProto(RatioOf(task.rounds_ns[1], task.rounds_ns[0]));
  }
  io.Write(event);
  return absl::OkStatus();
}

}  // namespace heddle::worker
