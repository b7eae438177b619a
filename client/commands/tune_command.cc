#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/files/output_file.h"
#include "client/commands/commands.h"
#include "client/embedded_service.h"
#include "client/modules/model_file.h"
#include "client/record_file.h"
#include "client/views/json.h"
#include "client/views/progress_view.h"

namespace heddle::client {

int Tune(const GlobalOptions& global, const TuneOptions& options) {
  // Not after hours of tuning.
  if (const absl::Status room = CheckWritable(options.output); !room.ok()) return Fail(room);
  const absl::StatusOr<ModelFile> opened =
      OpenModelShown(options.submit.model, CanAnimate(global.output));
  if (!opened.ok()) return Fail(opened.status());
  const ModelFile& model = *opened;
  const absl::StatusOr<v1::JobSpec> spec = MakeJobSpec(options.submit, model);
  if (!spec.ok()) return Fail(spec.status());

  absl::StatusOr<std::unique_ptr<CommandService>> found =
      CommandService::Find(global.server, options.data, options.http);
  if (!found.ok()) return Fail(found.status());
  CommandService& service = **found;
  const ServiceClient client(service.server());
  if (!options.submit.records.empty()) {
    const absl::Status offered = OfferRecords(client, *spec, model, options.submit.records);
    if (!offered.ok()) return Fail(offered);
  }
  const absl::StatusOr<std::string> job = SubmitModel(client, *spec, model, global.output);
  if (!job.ok()) return Fail(job.status());
  fmt::print(stderr, "{}: {} for {}, {} trials a task\n", *job, spec->name(), spec->target(),
             spec->trials_per_task());
  // A service that was just started does not know its devices yet.
  if (!service.is_private()) TellMissingDevice(client, spec->device_key());

  v1::Job last;
  const int code =
      FollowJob(client, *job, global.output, &last, [&service] { return service.CheckAlive(); });
  if (code == kInterrupted) {
    if (!service.is_private()) {
      fmt::print(
          stderr,
          "detached; the job goes on. `heddle watch {}` comes back, `heddle cancel {}` ends it.\n",
          *job, *job);
    } else {
      fmt::print(stderr,
                 "stopped; measurements so far are kept, and the same command reuses them.\n");
      (void)client.CancelJob(*job,
                             "interrupted");  // otherwise the next service would resume the job
    }
    return kInterrupted;
  }
  if (code != kDone) return code;
  if (const absl::Status alive = service.CheckAlive(); !alive.ok()) return Fail(alive);
  const absl::StatusOr<int64_t> module =
      FetchModuleFile(client, *job, v1::SCHEDULE_BEST, options.output);
  if (!module.ok()) return Fail(module.status());
  if (!global.output.json && !CanAnimate(global.output))
    fmt::print(stderr, "{}", TaskTable(last, global.output.plain));
  fmt::print(stderr, "{}: {}; next: heddle run {} --evaluate\n", options.output,
             FormatBytes(*module), options.output);
  return kDone;
}

}  // namespace heddle::client
