#include "client/modules/kernel_code.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/vocabulary/target.h"
#include "compiler/codegen/disassemble.h"
#include "compiler/runtime/module_head.h"

namespace heddle::client {

absl::StatusOr<JobCode> JobCode::Fetch(const ServiceClient& client, const std::string& job) {
  std::string bytes;
  std::optional<absl::StatusOr<runtime::Module>> head;  // once it is there, or cannot be read
  const auto fetched =
      client.FetchModule(job, v1::SCHEDULE_BEST, [&](std::string_view piece) -> absl::Status {
        bytes += piece;
        absl::StatusOr<runtime::Module> parsed = runtime::ParseModuleHead(bytes);
        if (absl::IsOutOfRange(parsed.status())) return absl::OkStatus();
        head = std::move(parsed);
        return absl::CancelledError("the rest is not needed");
      });
  if (!head.has_value()) {
    HEDDLE_RETURN_IF_ERROR(fetched.status());
    return absl::DataLossError(absl::StrCat("the module of ", job, " ends before its code"));
  }
  HEDDLE_RETURN_IF_ERROR(head->status());
  return JobCode(**std::move(head));
}

absl::StatusOr<KernelListing> JobCode::Of(const std::string& task_key) const {
  for (const runtime::KernelSpec& kernel : module_.manifest.kernels) {
    if (kernel.task != task_key) continue;
    HEDDLE_ASSIGN_OR_RETURN(const Target target, ParseTarget(module_.manifest.target));
    KernelListing listing{kernel.symbol, kernel.label, kernel.schedule, {}};
    HEDDLE_ASSIGN_OR_RETURN(listing.lines,
                            codegen::Disassemble(module_.code, kernel.symbol, target));
    return listing;
  }
  return absl::NotFoundError(
      absl::StrCat("the module has no kernel of the task ", task_key,
                   ": it is a task of another plan, or its operator is folded into another one"));
}

}  // namespace heddle::client
