// Messages of clients and workers as the scheduler takes them in. The first byte chooses the message.
#include <string>

#include "absl/time/time.h"
#include "google/protobuf/stubs/logging.h"
#include "proto/chunks.h"
#include "proto/common.pb.h"
#include "proto/jobs.pb.h"
#include "proto/message_rules.h"
#include "scheduler/ledger/job_ledger.h"
#include "scheduler/store/memory_record_store.h"
#include "scheduler/store/record_store.h"
#include "scheduler/store/transfer.h"
#include "tests/fuzz/fuzz_target.h"

namespace heddle::fuzz {
namespace {

using scheduler::JobLedger;

constexpr size_t kMostValueBytes = size_t{1} << 16;

void TakeJob(const v1::JobSpec& spec) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  const auto params = JobLedger::ParamsFrom(spec, now, now + absl::Hours(1));
  if (!params.ok()) return;
  Require(params->batch > 0 && params->trials_per_task > 0, "a job has trials and batches");
  // A job is restored from its description after a restart.
  v1::JobSpec stored;
  Require(stored.ParseFromString(spec.SerializeAsString()), "a description is stored");
  Require(JobLedger::ParamsFrom(stored, now, now).ok(), "an accepted job is accepted again");
}

void TakeRecord(const v1::Record& record) {
  if (!CheckRecord(record).ok()) return;
  const auto store = scheduler::MakeMemoryRecordStore();
  scheduler::InsertRecord change{record, 1, true};
  const scheduler::Batch batch = {change};
  const auto applied = store->Apply({batch});
  Require(applied.ok(), "a store takes a checked record");
  v1::RecordQuery query;
  query.set_workload_key(record.workload_key());
  Require(store->Query(query).ok(), "a store finds a record");
  (void)scheduler::RecordDigest(record);
}

void TakeModel(const v1::TransferModel& model) {
  scheduler::TransferModels models;
  models.Put({}, model);
  models.Count("key", 1000);
  (void)scheduler::IsStale(model);
  (void)scheduler::Taught(model, {});
  (void)scheduler::MayStartFrom(model, {}, false, nullptr);
}

// Several chunks, each with its length before it.
void TakeChunks(std::string_view input) {
  ChunkJoiner joiner("model", kMostValueBytes);
  while (!input.empty()) {
    const size_t size = TakeByte(&input) * 16;
    const std::string_view bytes = input.substr(0, size);
    input.remove_prefix(bytes.size());
    v1::Chunk chunk;
    if (!chunk.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) continue;
    (void)joiner.Add(chunk);
    Require(joiner.size() <= kMostValueBytes, "a value has its limit");
  }
  (void)joiner.Take();
}

template <typename Message>
void Parsed(std::string_view input, void (*take)(const Message&)) {
  Message message;
  if (message.ParseFromArray(input.data(), static_cast<int>(input.size()))) take(message);
}

}  // namespace

void Run(std::string_view input) {
  google::protobuf::SetLogHandler(nullptr);  // a line for each text that is no UTF-8
  switch (TakeByte(&input) % 4) {
    case 0:
      return Parsed<v1::JobSpec>(input, TakeJob);
    case 1:
      return Parsed<v1::Record>(input, TakeRecord);
    case 2:
      return Parsed<v1::TransferModel>(input, TakeModel);
    default:
      return TakeChunks(input);
  }
}

}  // namespace heddle::fuzz
