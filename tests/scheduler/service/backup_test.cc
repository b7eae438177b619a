// Backups and checks of a scheduler that works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <fstream>

#include "base/sha256.h"
#include "client/service_client.h"
#include "scheduler/store/maintenance.h"
#include "tests/scheduler/service/service_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class BackupTest : public ServiceTest {
 protected:
  std::string BackupDirectory() const { return directory_ + "-backup"; }
  void TearDown() override {
    ServiceTest::TearDown();
    std::filesystem::remove_all(BackupDirectory());
  }
  client::Backup BackUp() {
    const auto backup = client::ServiceClient(address_).BackUp(
        BackupDirectory(), [](const client::Backup&) { return true; });
    EXPECT_TRUE(backup.ok()) << backup.status();
    return backup.ok() ? *backup : client::Backup();
  }
  std::vector<std::string> Check(bool read_blobs) {
    std::vector<std::string> findings;
    const absl::Status status =
        client::ServiceClient(address_).CheckStore(read_blobs, [&](const v1::CheckProgress& now) {
          if (!now.finding().empty()) findings.push_back(now.finding());
          return true;
        });
    EXPECT_TRUE(status.ok()) << status;
    return findings;
  }
  std::string PathOf(const std::string& digest) { return BlobPath(directory_ + "/blobs", digest); }
};

// A service that begins a check and then says no more.
class SilentStore final : public v1::StoreService::Service {
 public:
  grpc::Status Check(grpc::ServerContext* context, const v1::CheckRequest*,
                     grpc::ServerWriter<v1::CheckProgress>* writer) override {
    v1::CheckProgress progress;
    progress.set_step("database");
    writer->Write(progress);
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(10));
    return grpc::Status::CANCELLED;
  }
  grpc::Status Collect(grpc::ServerContext* context, const v1::CollectRequest*,
                       grpc::ServerWriter<v1::CollectProgress>* writer) override {
    writer->Write({});
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(10));
    return grpc::Status::CANCELLED;
  }
};

class SilentServer {
 public:
  SilentServer() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&store_);
    server_ = builder.BuildAndStart();
  }
  ~SilentServer() { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  SilentStore store_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST(CheckStore, EndsIfTheServiceSaysNothing) {
  const SilentServer server;
  int told = 0;
  const absl::Status status = client::ServiceClient(server.address())
                                  .CheckStore(
                                      false,
                                      [&](const v1::CheckProgress&) {
                                        ++told;
                                        return true;
                                      },
                                      absl::Seconds(2));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(told, 1);
}

TEST(Collect, EndsIfTheServiceSaysNothing) {
  const SilentServer server;
  int told = 0;
  const auto total = client::ServiceClient(server.address())
                         .Collect(
                             {},
                             [&](const v1::CollectProgress::Job&) {
                               ++told;
                               return true;
                             },
                             absl::Seconds(2));
  EXPECT_TRUE(absl::IsDeadlineExceeded(total.status())) << total.status();
  EXPECT_EQ(told, 0) << "a word that it still works is no job";
}

TEST_F(BackupTest, ABackupIsADataDirectoryOfOneMoment) {
  const std::string first = MustSubmit(Spec(), "a model");
  WaitFinal(first);
  cluster_.behaviour.candidate_ms = 5;
  const std::string second = MustSubmit(Spec(200), "another model");
  Wait(second, [](const v1::Job& now) { return now.trials() >= 5; });
  const client::Backup backup = BackUp();
  const int trials = Get(second).trials();
  EXPECT_GT(backup.database_bytes, 0);
  EXPECT_GE(backup.blobs, 3) << "two models and a module";
  EXPECT_EQ(backup.fetched, backup.blobs);
  EXPECT_EQ(backup.missing, 0);
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/heddle.db.backup"));
  Wait(second, [&](const v1::Job& now) { return now.trials() > trials; });

  // The job goes on while it is backed up; a later backup brings only what is new.
  const client::Backup again = BackUp();
  EXPECT_EQ(again.fetched, 0);
  EXPECT_EQ(again.blobs, backup.blobs);

  // A scheduler takes the backup for its own.
  Stop();
  const std::string original = directory_;
  std::filesystem::remove_all(original);
  std::filesystem::rename(BackupDirectory(), original);
  cluster_.behaviour.candidate_ms = 0;
  Start();
  EXPECT_EQ(Get(first).state(), v1::JOB_DONE);
  EXPECT_GE(Get(second).trials(), 5);
  std::string module;
  EXPECT_TRUE(Fetch(first, v1::SCHEDULE_BEST, &module).ok());
  EXPECT_EQ(module, "module of a model, choice 0, best 2");
  const v1::Job done = WaitFinal(second);
  EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  ExpectEachTrialOnce(done);
  EXPECT_THAT(Check(true), IsEmpty());
}

TEST_F(BackupTest, TheDirectoryOfASchedulerIsNotOverwritten) {
  std::filesystem::create_directories(BackupDirectory());
  std::ofstream(BackupDirectory() + "/lock") << "";
  const auto backup = client::ServiceClient(address_).BackUp(
      BackupDirectory(), [](const client::Backup&) { return true; });
  EXPECT_TRUE(absl::IsFailedPrecondition(backup.status())) << backup.status();
  EXPECT_FALSE(std::filesystem::exists(BackupDirectory() + "/heddle.db"));
}

TEST_F(BackupTest, AnInterruptedBackupLeavesTheEarlierOne) {
  WaitFinal(MustSubmit(Spec(), "a model"));
  BackUp();
  const auto size = std::filesystem::file_size(BackupDirectory() + "/heddle.db");
  WaitFinal(MustSubmit(Spec(8), "another model"));
  const auto backup = client::ServiceClient(address_).BackUp(
      BackupDirectory(), [](const client::Backup& now) { return now.fetched_bytes == 0; });
  EXPECT_TRUE(absl::IsCancelled(backup.status())) << backup.status();
  EXPECT_EQ(std::filesystem::file_size(BackupDirectory() + "/heddle.db"), size);
  auto store = OpenSqliteRecordStore(BackupDirectory() + "/heddle.db");
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_THAT(*(*store)->LoadJobs(), SizeIs(1));
}

TEST_F(BackupTest, ACheckFindsWhatIsMissingOrDamaged) {
  const std::string first = MustSubmit(Spec(), "a model"), second = MustSubmit(Spec(), "a model");
  WaitFinal(first);
  WaitFinal(second);
  EXPECT_THAT(Check(true), IsEmpty());
  const std::string module = Get(first).module_digest(), model = Sha256Hex("a model");
  {
    std::fstream damage(PathOf(module), std::ios::in | std::ios::out);
    damage.put('X');
  }
  EXPECT_THAT(Check(false), IsEmpty()) << "blobs are not read";
  EXPECT_THAT(Check(true),
              ElementsAre(AllOf(HasSubstr(module), HasSubstr("damaged"), HasSubstr("job"))));
  std::filesystem::remove(PathOf(model));
  const std::vector<std::string> findings = Check(false);
  EXPECT_THAT(findings, ::testing::UnorderedElementsAre(
                            AllOf(HasSubstr(module), HasSubstr("missing")),
                            AllOf(HasSubstr(model), HasSubstr("jobs j1, j2 need it"))));
  const client::Backup backup = BackUp();
  EXPECT_EQ(backup.missing, 2);
}

TEST_F(BackupTest, ACheckFindsRowsThatDoNotFitTogether) {
  WaitFinal(MustSubmit(Spec()));
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open((directory_ + "/heddle.db").c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db,
                         "PRAGMA foreign_keys=OFF; DELETE FROM candidates WHERE id=2; DELETE "
                         "FROM tasks WHERE idx=1",
                         nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(db);
  const std::vector<std::string> findings = Check(false);
  EXPECT_THAT(findings, ::testing::Contains(HasSubstr("a row of candidates refers to a row of "
                                                      "tasks that is not there")));
  EXPECT_THAT(findings,
              ::testing::Contains(HasSubstr("there is a record of candidate 2 of job j1")));
}

TEST_F(BackupTest, ADamagedPageIsFound) {
  WaitFinal(MustSubmit(Spec(12)));
  Stop();
  const std::string copy = directory_ + "/copy.db";
  std::filesystem::copy_file(directory_ + "/heddle.db", copy);
  const auto size = std::filesystem::file_size(copy);
  {
    std::fstream damage(copy, std::ios::in | std::ios::out);
    damage.seekp(4096);  // the first page has the schema
    damage << std::string(size - 4096, 'x');
  }
  const auto findings = CheckDatabase(copy, 5, [] { return true; });
  ASSERT_TRUE(findings.ok()) << findings.status();
  EXPECT_THAT(*findings, ::testing::Contains(HasSubstr("damaged")));
  EXPECT_LE(findings->size(), 5u);
  Start();
}

}  // namespace
}  // namespace heddle::scheduler
