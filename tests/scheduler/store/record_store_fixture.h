// Rows, records and folders for tests of record stores.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

inline std::string TempDirectory() {
  const std::string path = ::testing::TempDir() + "/" +
                           ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                           std::to_string(getpid());
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

inline JobRow MakeJob(int64_t id, v1::JobState state = v1::JOB_TUNING) {
  JobRow row;
  row.id = id;
  row.job.set_id(JobName(id));
  row.job.mutable_spec()->set_name("model");
  row.job.mutable_spec()->set_target("llvm -mcpu=x");
  row.job.set_state(state);
  row.job.set_created_unix_ns(1000 + id);
  row.job.add_inputs("x: f32[1]");
  row.job.set_plan("plan 1\n");
  row.job.set_machine("machine 1\n");
  row.device_key = "dev";
  return row;
}

inline std::string Key(int n) { return absl::StrCat("000000000000000", n); }

inline TaskRow MakeTask(int64_t job, int index) {
  TaskRow row;
  row.job = job;
  row.index = index;
  row.info.set_key(Key(index));
  row.info.set_workload(absl::StrCat("workload ", index));
  row.info.set_label("conv");
  row.info.set_weight(2);
  row.estimated_weight = 3;
  row.rival_weight = 5;
  row.budget = 64;
  return row;
}

inline CandidateRow MakeCandidate(int64_t job, int64_t id, int task,
                                  const std::string& origin = "random") {
  CandidateRow row;
  row.job = job;
  row.id = id;
  row.task = task;
  row.trace = absl::StrCat("trace ", id);
  row.origin = origin;
  return row;
}

inline InsertRecord MakeRecord(int64_t job, int64_t candidate, int task, double ns,
                               uint64_t token = 1, int attempt = 1) {
  InsertRecord insert;
  v1::Record& record = insert.record;
  record.set_schema_version(1);
  record.set_workload_key(Key(task));
  record.set_workload(absl::StrCat("workload ", task));
  record.set_target("llvm -mcpu=x");
  record.set_device_key("dev");
  record.set_trace(absl::StrCat("trace ", candidate));
  record.set_created_unix_ns(5000 + candidate);
  record.set_job(JobName(job));
  record.set_candidate(candidate);
  record.set_attempt(attempt);
  v1::Measurement& measured = *record.mutable_measurement();
  measured.set_outcome(ns > 0 ? v1::OUTCOME_OK : v1::OUTCOME_RUN_CRASH);
  if (ns > 0) {
    for (double sample : {ns + 1, ns, ns - 1}) measured.add_samples_ns(sample);
  } else {
    measured.set_message("signal 11");
  }
  measured.mutable_evidence()->set_worker("w1");
  measured.mutable_evidence()->set_slot("profile0");
  insert.fencing_token = token;
  return insert;
}

}  // namespace heddle::scheduler
