// The scheduler's services on a port of their own over a database on disk, and calls to them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "scheduler/service/services.h"
#include "scheduler/service/storage/store_service.h"
#include "scheduler/store/sqlite_record_store.h"
#include "tests/scheduler/service/fake_cluster.h"

namespace heddle::scheduler {

inline constexpr absl::Duration kServiceLimit =
    absl::Seconds(60);  // for a machine that does a lot besides

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest();
  ~ServiceTest() override;
  void SetUp() override;
  void TearDown() override;

  // What the scheduler uses as its store, made of the one on disk.
  virtual std::unique_ptr<RecordStore> Wrap(std::unique_ptr<RecordStore> store) { return store; }

  // What the service allows.
  virtual ServiceLimits Limits() const;

  // How long jobs that have ended stay in memory.
  virtual absl::Duration KeepFinished() const;

  void Start();
  // As abruptly as a process can do it to itself: running stages are cut off.
  void Stop();

  static v1::JobSpec Spec(int trials = 6);
  grpc::Status Submit(const v1::JobSpec& spec, const std::string& model, std::string* job,
                      const std::string& digest = "", const std::string& submit_key = "");
  std::string MustSubmit(const v1::JobSpec& spec, const std::string& model = "a model");
  v1::Job Get(const std::string& job);
  v1::Job Wait(const std::string& job, const std::function<bool(const v1::Job&)>& until);
  v1::Job WaitFinal(const std::string& job);
  // Waits until nothing of a paused job happens any more: no slot is held, none was given away for a
  // while, and all that was measured is shown. (A stage that was ordered before the pause may get its
  // lease only after it.)
  void WaitQuiet(const std::string& job);
  using Method = grpc::Status (v1::JobService::Stub::*)(grpc::ClientContext*,
                                                        const v1::JobActionRequest&, v1::Job*);
  grpc::Status Act(Method method, const std::string& job, v1::Job* response);
  grpc::Status Fetch(const std::string& job, v1::ScheduleChoice choice, std::string* module);
  std::vector<v1::Record> Query(const v1::RecordQuery& query);
  void ExpectEachTrialOnce(const v1::Job& job);

  FakeCluster cluster_;
  std::string directory_;
  std::unique_ptr<RecordStore> store_;
  std::unique_ptr<BlobStore> blobs_;
  std::unique_ptr<SchedulerLoop> loop_;
  CallLimits calls_{{}};
  std::unique_ptr<JobServiceImpl> jobs_service_;
  std::unique_ptr<RecordServiceImpl> records_service_;
  std::unique_ptr<Collector> collector_;
  std::unique_ptr<StoreServiceImpl> store_service_;
  std::string address_;  // of the services
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::RecordService::Stub> records_;
};

// A fixture whose scheduler uses a `Store` around the one on disk, such as a GatedStore.
template <typename Store, typename Fixture = ServiceTest>
class WrappedStoreTest : public Fixture {
 protected:
  std::unique_ptr<RecordStore> Wrap(std::unique_ptr<RecordStore> store) override {
    auto wrapped = std::make_unique<Store>(std::move(store));
    wrapped_ = wrapped.get();
    return wrapped;
  }

  Store* wrapped_ = nullptr;  // while the service runs
};

}  // namespace heddle::scheduler
