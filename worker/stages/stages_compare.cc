// compare: the stage that times a job's module against others of the same model.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files/blob_store.h"
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

absl::StatusOr<runtime::Executor::Options> ExecutorOptionsOf(const v1::CompareSpec& spec) {
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

v1::Gain GainToProto(const Ratio& ratio) {
  v1::Gain gain;
  gain.set_ratio(ratio.median);
  gain.set_low(ratio.low);
  gain.set_high(ratio.high);
  gain.set_rounds(ratio.rounds);
  return gain;
}

// Reports the tasks whose kernel is not the default one in the first of two modules, unless `seen` has them.
void AddTasks(const std::vector<Contestant>& pair, const std::vector<ModuleTiming>& timings,
              std::set<std::string>* seen, v1::CompareResult* result) {
  for (const TaskTiming& task : TimeByTask(pair, timings)) {
    if (!task.tuned || task.uses[0] != task.uses[1] || !seen->insert(task.task).second) continue;
    v1::CompareResult::Task& out = *result->add_tasks();
    out.set_workload_key(task.task);
    out.set_ns(task.Ns(0) * task.uses[0]);
    out.set_default_ns(task.Ns(1) * task.uses[1]);
    *out.mutable_gain() = GainToProto(RatioOf(task.rounds_ns[1], task.rounds_ns[0]));
  }
}

}  // namespace

absl::Status RunCompare(const v1::StageStart& start, StageIo& io) {
  const v1::CompareSpec& spec = start.compare();
  HEDDLE_ASSIGN_OR_RETURN(const runtime::Executor::Options options, ExecutorOptionsOf(spec));
  // Pairs of a tuned module and its default one.
  std::vector<std::string> digests = {spec.module(), spec.default_module()};
  const bool other = !spec.other_module().empty();
  if (other) digests.insert(digests.end(), {spec.other_module(), spec.other_default()});
  std::vector<runtime::Module> modules;
  for (const std::string& digest : digests) {
    HEDDLE_ASSIGN_OR_RETURN(runtime::Module module, Read(start, digest));
    modules.push_back(std::move(module));
  }
  std::vector<std::string> inputs;
  for (const runtime::TensorSpec& input : modules[0].manifest.inputs)
    inputs.push_back(RandomTensor(input, inputs.size()));
  std::vector<Contestant> contestants;
  for (const runtime::Module& module : modules) contestants.push_back({&module, options, inputs});
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<ModuleTiming> timings,
                          TimeInTurns(contestants, ComparisonTurns()));
  const auto gain = [&](size_t of, size_t over) {
    return GainToProto(RatioOf(timings[over].samples_ns, timings[of].samples_ns));
  };
  v1::StageEvent event;
  v1::CompareResult& result = *event.mutable_compared();
  const size_t plain = other ? 3 : 1;
  result.set_ns(timings[0].Median());
  result.set_default_ns(timings[plain].Median());
  *result.mutable_gain() = gain(0, plain);
  if (other) {
    result.set_other_ns(timings[2].Median());
    *result.mutable_other_gain() = gain(0, 2);
    *result.mutable_other_over_default() = gain(2, 3);
  }
  std::set<std::string> seen;
  for (size_t i = 0; i < contestants.size(); i += 2) {
    AddTasks({contestants[i], contestants[i + 1]}, {timings[i], timings[i + 1]}, &seen, &result);
  }
  io.Write(event);
  return absl::OkStatus();
}

}  // namespace heddle::worker
