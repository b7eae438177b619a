#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "client/commands/commands.h"
#include "client/embedded_service.h"
#include "client/modules/model_file.h"
#include "client/record_file.h"
#include "client/views/json.h"
#include "client/views/progress_view.h"

namespace heddle::client {

int Tune(const GlobalOptions& global, const TuneOptions& options) {
  const absl::StatusOr<ModelFile> opened =
      OpenModelShown(options.submit.model, CanAnimate(global.output));
  if (!opened.ok()) return Fail(opened.status());
  const ModelFile& model = *opened;
  const absl::StatusOr<v1::JobSpec> spec = MakeJobSpec(options.submit, model);
  if (!spec.ok()) return Fail(spec.status());

  ServerAccess server = global.server;
  std::unique_ptr<EmbeddedService> service;
  if (const absl::Status serving = ServiceClient(server).WaitUntilServing(absl::Milliseconds(500));
      !serving.ok()) {
    if (!MayStartService(server, serving)) return Fail(serving);
    fmt::print(stderr, "no scheduler answers at {}; starting one for this command\n",
               server.address);
    absl::StatusOr<std::unique_ptr<EmbeddedService>> started = EmbeddedService::Start(options.data);
    if (!started.ok()) return Fail(started.status());
    service = std::move(*started);
    server = {service->address(), "", ""};
  }
  const ServiceClient client(server);
  if (!options.submit.records.empty()) {
    const absl::Status offered = OfferRecords(client, *spec, model, options.submit.records);
    if (!offered.ok()) return Fail(offered);
  }
  const absl::StatusOr<std::string> job = SubmitModel(client, *spec, model, global.output);
  if (!job.ok()) return Fail(job.status());
  fmt::print(stderr, "{}: {} for {}, {} trials a task\n", *job, spec->name(), spec->target(),
             spec->trials_per_task());

  v1::Job last;
  const int code = FollowJob(
      client, *job, global.output, &last,
      service == nullptr ? std::function<absl::Status()>() : [&] { return service->CheckAlive(); });
  if (code == kInterrupted) {
    if (service == nullptr) {
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
