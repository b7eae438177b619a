// heddle-store-bench: how fast a record store takes measured trials and finds the best of a workload.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "scheduler/store/open_store.h"

namespace heddle::scheduler {
namespace {

constexpr int kWorkloads = 200;
constexpr int kBatchesAtATime = 512;  // as StoreWriter gathers them at most
constexpr int kLookups = 5000;
constexpr char kTarget[] = "llvm -mcpu=bench";

std::string Key(int workload) { return absl::StrCat(1'000'000'000'000'000 + workload); }

// A measured trial of job 1: a candidate and its record.
Batch Trial(int64_t id, std::mt19937* random) {
  const int task = static_cast<int>(id % kWorkloads);
  CandidateRow row;
  row.job = 1;
  row.id = id;
  row.task = task;
  row.trace = absl::StrCat(std::string(600, 't'), id);
  row.origin = "random";
  InsertRecord insert;
  v1::Record& record = insert.record;
  record.set_workload_key(Key(task));
  record.set_workload("workload");
  record.set_target(kTarget);
  record.set_device_key("bench");
  record.set_trace(row.trace);
  record.set_created_unix_ns(id);
  record.set_job("j1");
  record.set_candidate(id);
  record.set_attempt(1);
  v1::Measurement& measured = *record.mutable_measurement();
  measured.set_outcome(v1::OUTCOME_OK);
  for (int i = 0; i < 10; ++i)
    measured.add_samples_ns(1e5 + static_cast<double>((*random)() % 100'000));
  measured.mutable_evidence()->set_worker("w");
  measured.mutable_evidence()->set_slot("profile0");
  insert.fencing_token = 1;
  return {InsertCandidate{std::move(row)}, std::move(insert)};
}

absl::Status Apply(RecordStore* store, const std::vector<Batch>& batches) {
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<absl::Status> results, store->Apply(batches));
  for (const absl::Status& result : results) HEDDLE_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

absl::Status Run(const std::string& address, int trials) {
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<RecordStore> store, OpenRecordStore(address));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t last, store->LastJob());
  if (last != 0) return absl::FailedPreconditionError("the store has data; give an empty one");
  Batch job = {PutJob{}};
  std::get<PutJob>(job.front()).row.id = 1;
  for (int i = 0; i < kWorkloads; ++i) {
    TaskRow task;
    task.job = 1;
    task.index = i;
    task.info.set_key(Key(i));
    task.info.set_workload("workload");
    job.push_back(PutTask{task});
  }
  HEDDLE_RETURN_IF_ERROR(Apply(store.get(), {job}));
  std::mt19937 random(1);
  absl::Duration inserting;
  for (int64_t id = 1; id <= trials;) {
    std::vector<Batch> group;
    for (int i = 0; i < kBatchesAtATime && id <= trials; ++i) group.push_back(Trial(id++, &random));
    const absl::Time began = MonotonicNow();
    HEDDLE_RETURN_IF_ERROR(Apply(store.get(), group));
    inserting += MonotonicNow() - began;
  }
  std::printf("%d trials: %.0f a second\n", trials, trials / absl::ToDoubleSeconds(inserting));
  std::vector<double> lookups;
  for (int i = 0; i < kLookups; ++i) {
    const WorkloadId id{Key(static_cast<int>(random() % kWorkloads)), kTarget, "bench"};
    const absl::Time began = MonotonicNow();
    const auto best = store->BestMeasured(id);
    lookups.push_back(absl::ToDoubleMicroseconds(MonotonicNow() - began));
    HEDDLE_RETURN_IF_ERROR(best.status());
    if (!*best) return absl::InternalError("a workload has no record");
  }
  std::sort(lookups.begin(), lookups.end());
  std::printf("best of a workload: p50 %.0f us, p99 %.0f us\n", lookups[kLookups / 2],
              lookups[kLookups * 99 / 100]);
  return absl::OkStatus();
}

}  // namespace
}  // namespace heddle::scheduler

int main(int argc, char** argv) {
  std::string store;
  int trials = 50'000;
  CLI::App app("heddle-store-bench: inserts a second and best-of lookups of a record store");
  app.add_option("--store", store, "A new SQLite file, or postgresql://USER@HOST/DATABASE")
      ->required();
  app.add_option("--trials", trials, "Trials to insert")->check(CLI::Range(1, 100'000'000));
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = heddle::scheduler::Run(store, trials);
  if (status.ok()) return 0;
  std::fprintf(stderr, "heddle-store-bench: %s\n", std::string(status.message()).c_str());
  return 1;
}
