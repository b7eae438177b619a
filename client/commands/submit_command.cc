#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/clock.h"
#include "base/one_line.h"
#include "base/status_macros.h"
#include "base/vocabulary/strategies.h"
#include "client/commands/commands.h"
#include "client/commands/job_options.h"
#include "client/commands/model_options.h"
#include "client/modules/model_file.h"
#include "client/record_file.h"
#include "client/views/json.h"
#include "client/views/tuning_work.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/import_model.h"

namespace heddle::client {
namespace {

constexpr absl::Duration kImportWait = absl::Seconds(30);
constexpr absl::Duration kImportPoll = absl::Milliseconds(100);

// Models with parts of this size get a line about what was sent.
constexpr int64_t kLargeParts = int64_t{64} << 20;

int DryRun(const GlobalOptions& global, const v1::JobSpec& spec, const ModelFile& model) {
  const absl::StatusOr<Target> target = ParseTarget(spec.target());
  if (!target.ok()) return Fail(target.status());
  const absl::StatusOr<graph::FusedGraph> fused =
      PrepareModel(model.onnx, FromProto(spec.options(), &model), *target);
  if (!fused.ok()) return Fail(fused.status());
  const absl::StatusOr<machine::TargetInfo> info = codegen::DescribeTarget(*target);
  if (!info.ok()) return Fail(info.status());
  const TuningWork work = WorkOf(*fused, *info, spec.trials_per_task());
  int matching = -1;
  std::set<std::string> keys;  // of all devices
  const absl::StatusOr<v1::ListWorkersResponse> devices =
      ServiceClient(global.server).ListDevices();
  if (devices.ok()) {
    matching = 0;
    const DeviceNeeds needs = NeedsOf(*target);
    for (const v1::WorkerStatus& worker : devices->workers()) {
      for (const v1::SlotStatus& status : worker.slots()) {
        const v1::Slot& slot = status.slot();
        if (slot.kind() == v1::SLOT_DEVICE) keys.insert(slot.device_key());
        matching += slot.kind() == v1::SLOT_DEVICE && slot.target() == needs.target &&
                    (needs.cores == 0 || slot.cores_size() == needs.cores) &&
                    (spec.device_key().empty() || slot.device_key() == spec.device_key());
      }
    }
  }
  if (global.output.json) {
    const nlohmann::json object = {{"schema_version", kJsonSchemaVersion},
                                   {"target", spec.target()},
                                   {"tasks", TasksToJson(work)},
                                   {"kernels", work.kernels},
                                   {"flops", work.flops},
                                   {"trials", work.trials},
                                   {"matching_device_slots", matching},
                                   {"device_keys", keys}};
    fmt::print("{}\n", object.dump());
    return kDone;
  }
  fmt::print("{}", WorkTable(work).ToText(global.output.plain));
  fmt::print("\n{} tasks from {} kernel calls, {}; {} trials for {}\n", work.tasks.size(),
             work.kernels, FormatFlops(work.flops), work.trials, spec.target());
  if (matching < 0) {
    fmt::print("devices are unknown: {}\n", Printable(std::string(devices.status().message())));
  } else if (matching == 0) {
    fmt::print("no device matches, so the job would wait until one registers{}\n",
               keys.empty() ? "; there is none at all"
                            : Printable(fmt::format("; there are devices with the keys {}",
                                                    fmt::join(keys, ", "))));
  } else {
    fmt::print("{} matching device slots; about {}\n", matching,
               HumanDuration(DurationOf(work, matching)));
  }
  return kDone;
}

// Waits for the import, after which it is known whether the deadline can be met, and prints that.
// The job stays submitted in any case. kDone unless interrupted.
int TellDeadline(const ServiceClient& client, const std::string& id) {
  const absl::Time give_up = MonotonicNow() + kImportWait;
  while (!Interrupted()) {
    const absl::StatusOr<v1::Job> job = client.GetJob(id);
    if (!job.ok()) return kDone;
    if (job->state() != v1::JOB_IMPORTING) {
      fmt::print(stderr, "deadline {}\n", DeadlineText(*job, absl::Now()));
      for (const std::string& warning : job->warnings()) fmt::print(stderr, "{}\n", warning);
      return kDone;
    }
    if (MonotonicNow() > give_up) {
      fmt::print(stderr,
                 "not imported yet; `heddle show {}` tells whether its deadline will be met\n", id);
      return kDone;
    }
    absl::SleepFor(kImportPoll);
  }
  return kInterrupted;
}

}  // namespace

void TellMissingDevice(const ServiceClient& client, const std::string& device_key) {
  if (device_key.empty()) return;
  const absl::StatusOr<v1::ListWorkersResponse> devices = client.ListDevices();
  if (!devices.ok()) return;
  std::set<std::string> keys;
  for (const v1::WorkerStatus& worker : devices->workers()) {
    for (const v1::SlotStatus& status : worker.slots()) {
      if (status.slot().kind() == v1::SLOT_DEVICE) keys.insert(status.slot().device_key());
    }
  }
  if (keys.contains(device_key)) return;
  fmt::print(stderr, "warning: no device has the key '{}' now, so the job waits; {}\n",
             Printable(device_key),
             keys.empty() ? "there is no device"
                          : Printable(fmt::format("there are {}", fmt::join(keys, ", "))));
}

absl::StatusOr<v1::JobSpec> MakeJobSpec(const SubmitOptions& options, const ModelFile& model) {
  absl::StatusOr<Target> target = ParseTarget(options.target);
  if (!target.ok()) return target.status();
  if (!options.winograd) target->winograd = false;
  target = codegen::ResolveTarget(*target);
  if (!target.ok()) return target.status();
  if (!IsStrategy(options.strategy)) {
    return absl::InvalidArgumentError(
        fmt::format("unknown strategy '{}'; it must be {}", options.strategy, StrategyList()));
  }
  v1::JobSpec spec;
  HEDDLE_ASSIGN_OR_RETURN(const v1::ModelOptions model_options, MakeModelOptions(options.import));
  *spec.mutable_options() = model_options;
  for (const auto& [flag, text] :
       {std::pair("--name", &options.name), std::pair("--device", &options.device_key)}) {
    if (OneLine(ValidText(*text)) != ValidText(*text))
      return absl::InvalidArgumentError(
          fmt::format("{} '{}' has control characters; write one line of text", flag, *text));
    if (ValidText(*text) != *text)
      return absl::InvalidArgumentError(
          fmt::format("{} '{}' is no UTF-8; write it in UTF-8", flag, ValidText(*text)));
  }
  spec.set_name(options.name.empty()
                    ? OneLine(ValidText(std::filesystem::path(options.model).stem().string()))
                    : options.name);
  spec.set_target(ToText(*target));
  spec.set_device_key(options.device_key);
  spec.set_trials_per_task(options.trials);
  spec.set_batch(options.batch);
  spec.set_pipeline_depth(options.depth);
  spec.set_strategy(options.strategy);
  spec.set_seed(options.seed);
  spec.set_no_transfer(!options.transfer);
  spec.set_no_comparison(!options.compare);
  spec.set_plan_search(options.plan);
  spec.set_force(options.force);
  HEDDLE_RETURN_IF_ERROR(FillJobOptions(options.job, absl::Now(), &spec));
  if (const char* user = std::getenv("USER")) spec.set_user(OneLine(ValidText(user)));
  // What the service would refuse is told before anything is sent.
  HEDDLE_RETURN_IF_ERROR(
      ImportModel(model.onnx, FromProto(spec.options(), &model).import).status());
  return spec;
}

absl::StatusOr<std::string> SubmitModel(const ServiceClient& client, const v1::JobSpec& spec,
                                        const ModelFile& model, const OutputOptions& output) {
  const bool animate = CanAnimate(output);
  const bool large = model.part_bytes >= kLargeParts;
  Upload upload;
  int64_t shown = 0;
  const absl::StatusOr<std::string> job =
      client.Submit(spec, model.onnx, model.parts, [&](const Upload& now) {
        upload = now;
        // Off a terminal, a line for each quarter.
        if (!large || now.sent_bytes < shown + (animate ? kLargeParts / 4 : now.bytes / 4 + 1))
          return;
        shown = now.sent_bytes;
        fmt::print(stderr, "{}sending weights: {} of {}{}", animate ? "\r" : "",
                   FormatBytes(now.sent_bytes), FormatBytes(now.bytes), animate ? "\x1b[K" : "\n");
        std::fflush(stderr);
      });
  if (shown > 0 && animate) fmt::print(stderr, "\r\x1b[K");
  if (job.ok() && large) {
    fmt::print(stderr, "weights: {} in {} parts, of which {} in {} were sent\n",
               FormatBytes(model.part_bytes), model.parts.size(), FormatBytes(upload.sent_bytes),
               upload.parts);
  }
  return job;
}

int Submit(const GlobalOptions& global, const SubmitOptions& options) {
  const absl::StatusOr<ModelFile> opened = OpenModelShown(options.model, CanAnimate(global.output));
  if (!opened.ok()) return Fail(opened.status());
  const ModelFile& model = *opened;
  const absl::StatusOr<v1::JobSpec> spec = MakeJobSpec(options, model);
  if (!spec.ok()) return Fail(spec.status());
  if (options.dry_run) return DryRun(global, *spec, model);
  const ServiceClient client(global.server);
  if (!options.records.empty()) {
    const absl::Status offered = OfferRecords(client, *spec, model, options.records);
    if (!offered.ok()) return Fail(offered);
  }
  const absl::StatusOr<std::string> job = SubmitModel(client, *spec, model, global.output);
  if (!job.ok()) return Fail(job.status());
  if (global.output.json) {
    const nlohmann::json object = {
        {"schema_version", kJsonSchemaVersion}, {"job", *job}, {"target", spec->target()}};
    fmt::print("{}\n", object.dump());
  } else {
    fmt::print("{}\n", *job);
    fmt::print(stderr, "submitted {} for {}; next: heddle watch {}\n", spec->name(), spec->target(),
               *job);
  }
  TellMissingDevice(client, spec->device_key());
  if (spec->deadline_unix_ns() > 0) {
    std::fflush(stdout);
    return TellDeadline(client, *job);
  }
  return kDone;
}

}  // namespace heddle::client
