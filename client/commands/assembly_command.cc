// `heddle explain JOB TASK --assembly`: the machine code of a task's kernel.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "client/commands/commands.h"
#include "client/modules/kernel_code.h"
#include "client/views/json.h"

namespace heddle::client {

int ExplainAssembly(const GlobalOptions& global, const std::string& job, const std::string& task,
                    int lines) {
  const ServiceClient client(global.server);
  const absl::StatusOr<v1::TaskExplanation> found = client.ExplainTask(job, task);
  if (!found.ok()) return Fail(found.status());
  const absl::StatusOr<JobCode> code = JobCode::Fetch(client, job);
  if (!code.ok()) return Fail(code.status());
  const absl::StatusOr<KernelListing> listing = code->Of(found->task().info().key());
  if (!listing.ok()) return Fail(listing.status());
  const size_t all = listing->lines.size();
  const size_t shown = lines == 0 ? all : std::min(all, static_cast<size_t>(lines));
  if (global.output.json) {
    const nlohmann::json object = {
        {"schema_version", kJsonSchemaVersion},
        {"job", job},
        {"task", found->task().info().key()},
        {"label", listing->label},
        {"symbol", listing->symbol},
        {"schedule", listing->schedule},
        {"target", code->target()},
        {"lines", all},
        {"assembly",
         std::vector<std::string>(listing->lines.begin(),
                                  listing->lines.begin() + static_cast<std::ptrdiff_t>(shown))}};
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return kDone;
  }
  fmt::print(stderr, "{}: {} schedule, {}, as it stands in the module of {}\n",
             Printable(listing->label), listing->schedule, Printable(code->target()), job);
  for (size_t i = 0; i < shown; ++i) fmt::print("{}\n", Printable(listing->lines[i]));
  if (shown < all) {
    fmt::print(stderr, "showing {} of {} lines; --lines 0 shows all\n", shown, all);
  }
  return kDone;
}

}  // namespace heddle::client
