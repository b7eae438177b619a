// The machine code of a job's kernels, read from the job's module. The code is disassembled as it was
// built by a worker and stored by the service; nothing is compiled or run for it here.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/service_client.h"
#include "compiler/runtime/module.h"

namespace heddle::client {

struct KernelListing {
  std::string symbol, label;
  std::string schedule;            // "tuned", "default" or "naive"
  std::vector<std::string> lines;  // of codegen::Disassemble
};

class JobCode {
 public:
  // Fetches the beginning of the job's module with the best schedules, without the parameters. For a job
  // that still runs, a worker compiles the module now. Errors as ServiceClient::FetchModule; DataLoss: the
  // module is damaged.
  static absl::StatusOr<JobCode> Fetch(const ServiceClient& client, const std::string& job);

  const std::string& target() const { return module_.manifest.target; }
  // The code of the task's kernel. NotFound: the module has none. Other errors as codegen::Disassemble.
  absl::StatusOr<KernelListing> Of(const std::string& task_key) const;

 private:
  explicit JobCode(runtime::Module module) : module_(std::move(module)) {}

  runtime::Module module_;  // without parameters
};

}  // namespace heddle::client
