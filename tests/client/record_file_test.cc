// Records in files: which are used, which are skipped, and why.
#include "client/record_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "client/views/json.h"
#include "client/zoo/zoo.h"
#include "compiler/driver/compile.h"

namespace heddle::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kTarget[] = "llvm -mcpu=skylake-avx512";

v1::Record MakeRecord(const std::string& key, const std::string& target, const std::string& device,
                      const std::string& trace = "") {
  v1::Record record;
  record.set_schema_version(kRecordSchemaVersion);
  record.set_workload_key(key);
  record.set_target(target);
  record.set_device_key(device);
  record.set_trace(trace);
  record.mutable_measurement()->set_outcome(v1::OUTCOME_OK);
  record.mutable_measurement()->add_samples_ns(1000);
  record.mutable_measurement()->mutable_evidence()->set_command("bench/run.sh operators");
  return record;
}

class RecordFile : public ::testing::Test {
 protected:
  std::string Write(const std::vector<std::string>& lines) {
    std::ofstream file(path_);
    for (const std::string& line : lines) file << line << '\n';
    return path_;
  }
  ~RecordFile() override { std::remove(path_.c_str()); }

  const std::string path_ = ::testing::TempDir() + "record_file_test.jsonl";
};

TEST_F(RecordFile, HoldsWhatAnExportWrites) {
  const v1::Record a = MakeRecord("0123456789abcdef", kTarget, "skylake-avx512", "unroll i\n");
  const v1::Record b = MakeRecord("0123456789abcdee", kTarget, "skylake-avx512-warm");
  const auto records = ReadRecordFile(Write({ToJsonLine(a), "", ToJsonLine(b)}));
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 2u);
  EXPECT_EQ((*records)[0].SerializeAsString(), a.SerializeAsString());
  EXPECT_EQ((*records)[1].SerializeAsString(), b.SerializeAsString());
}

TEST_F(RecordFile, NamesTheLineThatIsNone) {
  const std::string good = ToJsonLine(MakeRecord("0123456789abcdef", kTarget, "d"));
  EXPECT_THAT(ReadRecordFile(Write({good, "{\"nonsense\": 1}"})).status().message(),
              HasSubstr(".jsonl:2: unknown field 'nonsense'"));
  EXPECT_THAT(ReadRecordFile(Write({"[]"})).status().message(), HasSubstr(":1:"));
  EXPECT_EQ(ReadRecordFile("/nowhere/x.jsonl").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RecordFile, IsReadOneByOneAsOftenAsNeeded) {
  std::vector<std::string> lines;
  for (const char* device : {"a", "b", "c"})
    lines.push_back(ToJsonLine(MakeRecord("0123456789abcdef", kTarget, device)));
  const auto devices = [](RecordFileReader& file) {
    std::string all;
    v1::Record record;
    for (absl::StatusOr<bool> more = file.Next(&record); more.ok() && *more;
         more = file.Next(&record))
      all += record.device_key();
    return all;
  };
  const auto file = RecordFileReader::Open(Write(lines));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(devices(**file), "abc");
  ASSERT_TRUE((*file)->Rewind().ok());
  EXPECT_EQ(devices(**file), "abc");
  // A pipe can be read once only, so it is copied.
  const std::string pipe = path_ + ".pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] {
    std::ofstream out(pipe);
    for (const std::string& line : lines) out << line << '\n';
  });
  const auto piped = RecordFileReader::Open(pipe);
  writer.join();
  ASSERT_TRUE(piped.ok()) << piped.status();
  EXPECT_EQ(devices(**piped), "abc");
  ASSERT_TRUE((*piped)->Rewind().ok());
  EXPECT_EQ(devices(**piped), "abc");
  std::remove(pipe.c_str());
}

TEST_F(RecordFile, AnotherSchemaIsRefusedOrLeftOutWithAWord) {
  const std::string good = ToJsonLine(MakeRecord("0123456789abcdef", kTarget, "d"));
  const std::string path = Write({good, R"({"schema_version": 2, "rows": []})"});
  EXPECT_THAT(ReadRecordFile(path).status().message(), HasSubstr(":2: schema_version is 2"));
  std::vector<std::string> warnings;
  const auto records = ReadRecordFile(path, &warnings);
  ASSERT_TRUE(records.ok());
  EXPECT_EQ(records->size(), 1u);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("1 record is of another schema")));
}

TEST(MatchingRecords, WantTheTargetTheDeviceAndAValidResult) {
  v1::Record failed = MakeRecord("1", kTarget, "skylake");
  failed.mutable_measurement()->set_outcome(v1::OUTCOME_RUN_CRASH);
  const std::vector<v1::Record> records = {
      MakeRecord("1", kTarget, "skylake"), failed, MakeRecord("1", kTarget, "skylake-warm"),
      MakeRecord("1", std::string(kTarget) + " -threads=2", "skylake"),
      MakeRecord("2", std::string(kTarget) + " -winograd=off", "skylake")};
  std::vector<std::string> warnings;
  const auto found = MatchingRecords(records, kTarget, {"skylake", "other"}, &warnings);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].SerializeAsString(), records[0].SerializeAsString());
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("-threads=2'"), HasSubstr("-winograd=off'"),
                                    HasSubstr("device key 'skylake-warm'")));
}

TEST(ReplayingRecords, AreOfTheTasksAndStillReplay) {
  const auto fused = PrepareModel(zoo::MakeZooModel("mlp", 0).value(), {});
  ASSERT_TRUE(fused.ok()) << fused.status();
  const std::vector<graph::Task> tasks = graph::ExtractTasks(*fused);
  const std::vector<v1::Record> records = {
      MakeRecord(tasks[0].key, kTarget, "d", ""),  // no step at all: naive loops
      MakeRecord(tasks[0].key, kTarget, "d", "split nothing.i0 2 2\n"),
      MakeRecord("0123456789abcdef", kTarget, "d", "")};
  std::vector<std::string> warnings;
  const auto found = ReplayingRecords(records, tasks, &warnings);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].workload(), tasks[0].workload);
  EXPECT_EQ(found[0].label(), tasks[0].label);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("does not replay")));
}

TEST(RecordsOfTheRepository, AreReadAndCanBeImported) {
  const std::filesystem::path folder = std::filesystem::path(HEDDLE_ROOT) / "bench" / "records";
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".jsonl") continue;  // the benchmark of large stores
    const std::string device = file.path().stem().string();
    const auto records = ReadRecordFile(file.path().string());
    ASSERT_TRUE(records.ok()) << records.status();
    EXPECT_GT(records->size(), 0u);
    for (const v1::Record& record : *records) {
      EXPECT_EQ(record.device_key(), device);
      EXPECT_EQ(record.workload_key().size(), 16u);
      EXPECT_GT(record.measurement().samples_ns_size(), 0);
      EXPECT_THAT(record.measurement().evidence().command(), HasSubstr("bench/run.sh"));
    }
  }
}

}  // namespace
}  // namespace heddle::client
