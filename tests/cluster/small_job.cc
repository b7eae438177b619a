#include "tests/cluster/small_job.h"

#include <cstdlib>

#include "client/zoo/zoo.h"
#include "compiler/codegen/backend.h"

namespace heddle {

std::string SmallModel() { return zoo::MakeZooModel("mlp", 1).value(); }

v1::JobSpec SmallJob(int trials_per_task, uint32_t seed, int64_t min_repeat_us) {
  v1::JobSpec spec;
  spec.set_name("mlp");
  spec.set_target(ToText(codegen::ResolveTarget(Target{}).value()));
  spec.set_plan_search("off");
  spec.set_allocation("uniform");
  spec.set_strategy("random");
  spec.set_trials_per_task(trials_per_task);
  spec.set_batch(4);
  spec.set_seed(seed);
  spec.set_force(true);
  spec.set_repeats(3);
  spec.set_min_repeat_us(min_repeat_us);
  return spec;
}

absl::StatusOr<std::vector<v1::Record>> RecordsOf(const client::ServiceClient& client,
                                                  const std::string& job) {
  v1::RecordQuery query;
  query.set_job(job);
  query.set_limit(client::kAllRecords);
  std::vector<v1::Record> records;
  const absl::Status read = client.QueryRecords(query, [&](const v1::Record& record) {
    records.push_back(record);
    return true;
  });
  if (!read.ok()) return read;
  return records;
}

int FromEnvironment(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

}  // namespace heddle
