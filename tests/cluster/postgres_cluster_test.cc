// A job whose scheduler keeps everything in PostgreSQL is tuned to the end although the scheduler and the
// database server are killed. Its data then moves to a scheduler with a file of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/service_client.h"
#include "proto/job_states.h"
#include "tests/cluster/mini_cluster.h"
#include "tests/cluster/small_job.h"
#include "tests/places.h"
#include "tests/scheduler/store/postgres_server.h"

namespace heddle {
namespace {

using client::ServiceClient;

constexpr absl::Duration kLimit = absl::Seconds(180);

v1::Job WaitFor(const ServiceClient& client, const std::string& job, const std::string& what,
                const std::function<bool(const v1::Job&)>& condition) {
  v1::Job last;
  for (const absl::Time end = absl::Now() + kLimit; absl::Now() < end;
       absl::SleepFor(absl::Milliseconds(20))) {
    const auto now = client.GetJob(job);
    if (!now.ok()) continue;  // the scheduler is away
    last = *now;
    if (condition(last)) return last;
    if (IsFinal(last.state())) break;
  }
  ADD_FAILURE() << "not reached: " << what << "; the job: " << last.ShortDebugString();
  return last;
}

std::set<int64_t> Candidates(const ServiceClient& client, const std::string& job) {
  std::set<int64_t> candidates;
  const auto records = RecordsOf(client, job);
  EXPECT_TRUE(records.ok()) << records.status();
  if (!records.ok()) return candidates;
  for (const v1::Record& record : *records) {
    EXPECT_TRUE(candidates.insert(record.candidate()).second)
        << "candidate " << record.candidate() << " twice";
  }
  return candidates;
}

TEST(PostgresClusterTest, AJobOutlivesItsSchedulerAndItsDatabaseServer) {
  if (!PostgresServer::Installed()) GTEST_SKIP() << kNoPostgres;
  const auto started = PostgresServer::Start(/*durable=*/true);
  ASSERT_TRUE(started.ok()) << started.status();
  PostgresServer& server = **started;
  const std::string url = server.NewDatabase();
  MiniCluster::Options options;
  options.store = url;
  MiniCluster cluster(options);
  cluster.StartTracker();
  cluster.StartWorker();
  cluster.StartScheduler();
  const ServiceClient client(cluster.scheduler_address());
  ASSERT_TRUE(client.WaitUntilServing(absl::Seconds(60)).ok()) << cluster.Logs();

  const auto submitted = client.Submit(
      SmallJob(/*trials_per_task=*/8, /*seed=*/1, /*min_repeat_us=*/20'000), SmallModel());
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  const std::string job = *submitted;

  v1::Job before = WaitFor(client, job, "the first trials",
                           [](const v1::Job& now) { return now.trials() >= 3; });
  ASSERT_EQ(before.state(), v1::JOB_TUNING) << "the job was over too early for this test";
  cluster.scheduler.Kill();
  cluster.StartScheduler();
  ASSERT_FALSE(cluster.scheduler_address().empty()) << cluster.Logs();
  before = WaitFor(client, job, "trials after the scheduler's return",
                   [&](const v1::Job& now) { return now.trials() >= before.trials() + 3; });
  EXPECT_EQ(before.state(), v1::JOB_TUNING) << "the job was over too early for this test";

  server.Kill();
  absl::SleepFor(absl::Seconds(1));
  ASSERT_TRUE(server.Restart().ok());
  const v1::Job done =
      WaitFor(client, job, "done", [](const v1::Job& now) { return now.state() == v1::JOB_DONE; });
  ASSERT_EQ(done.state(), v1::JOB_DONE) << cluster.Logs();
  EXPECT_GE(done.trials(), before.trials()) << "trials were lost";
  EXPECT_TRUE(cluster.scheduler.Running()) << "it never ended";
  const std::set<int64_t> candidates = Candidates(client, job);
  EXPECT_EQ(static_cast<int>(candidates.size()), done.trials());
  const auto rows = server.Sql(url, "SELECT count(*) FROM records");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->front(), absl::StrCat(done.trials()));
  EXPECT_TRUE(client.FetchModule(job, v1::SCHEDULE_BEST).ok());

  // Another scheduler that is not to stand by, even with a data folder of its own, is told who leads.
  MiniCluster second(options);
  second.StartScheduler();
  EXPECT_THAT(second.Logs(), ::testing::HasSubstr(absl::StrCat(
                                 "another heddle-scheduler leads on the same database, at ",
                                 cluster.scheduler_address())));

  EXPECT_EQ(cluster.scheduler.Terminate(), 0);
  // To the folder that has the blobs already, and with them to another folder.
  const auto copy = [&cluster](const std::string& from, const std::string& to) {
    const std::string command = absl::StrCat(HEDDLE_BIN_DIR "/heddle store copy '", from, "' ", to,
                                             " > ", cluster.File("copy.log"), " 2>&1");
    return std::system(command.c_str());
  };
  ASSERT_EQ(copy(url, cluster.File("data")), 0);
  ASSERT_EQ(copy(cluster.File("data"), cluster.File("elsewhere")), 0);
  MiniCluster third;  // for its tracker
  third.StartTracker();
  Process scheduler;
  scheduler.Start({HEDDLE_BIN_DIR "/heddle-scheduler", "--data", cluster.File("elsewhere"),
                   "--tracker", third.tracker_address(), "--listen", cluster.scheduler_address()},
                  cluster.File("scheduler.log"));
  ASSERT_TRUE(client.WaitUntilServing(absl::Seconds(60)).ok()) << cluster.Logs();
  EXPECT_EQ(Candidates(client, job), candidates);
  EXPECT_TRUE(client.FetchModule(job, v1::SCHEDULE_BEST).ok());
}

}  // namespace
}  // namespace heddle
