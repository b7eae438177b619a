// heddle-bench-records: what a store of millions of records costs.
//
// Fills a database with made-up records, unless it is there already, and measures: the start of a store, with
// the migration of an old database first; the best record of a workload, in the store and through a real
// heddle-scheduler; pages, exports and imports, with the memory that they take; inserts; the removal of old
// records. All records are imported ones, in runs of 64 of one workload, target and device key, as searches
// make them; a workload on a device key has 500 on average.
//
// Two ways to fill it. `--fill store` inserts through the store, in transactions of 512 batches, as the
// scheduler does. `--fill sql` writes the same rows without its checks, and makes the indexes at the end; that is
// for the sizes of which the first takes hours. The time of a fill by SQL says nothing about inserts.
//
// A fill tells on stderr how far it is. Begun again with the same flags, one through the store goes on where it was, and
// one by SQL begins anew. PostgreSQL is filled by COPY. An SQLite file that would not fit on its disk is refused at once.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/quantiles.h"
#include "base/splitmix.h"
#include "base/status_macros.h"
#include "bench/common/usage.h"
#include "bench/records/fill_postgres.h"
#include "proto/jobs.grpc.pb.h"
#include "scheduler/store/open_store.h"
#include "scheduler/store/sqlite_record_store.h"
#include "scheduler/store/sqlite_schema.h"
#include "scheduler/store/sqlite_session.h"
#include "tests/scheduler/service/fake_cluster.h"

extern char** environ;

namespace heddle::scheduler {
namespace {

struct Flags {
  std::string programs;
  std::string data;
  std::string store;  // empty: a file in `data`
  std::string fill = "store";
  int64_t records = 1'000'000;
  int trace_bytes = 900;  // those of bench/records/*.jsonl have 944 on average
  int64_t exported = 1'000'000;
  int seconds = 5;  // of inserts
  bool keep = false;
};

constexpr int64_t kRun = 64;         // records of one group that follow each other
constexpr int64_t kGroupSize = 500;  // records of a workload, target and device key, on average
constexpr int64_t kDevices = 5;
constexpr size_t kGroup = 512;  // batches of a transaction (StoreWriter)
constexpr int64_t kFirstNs = 1'700'000'000'000'000'000;
constexpr int64_t kApartNs = 1'000'000;  // between the times of two records
constexpr int kBeforeStatistics = 12;    // the last version of SQLite's tables without them
constexpr int kShortestTrace = 30;

// Record i of a database of `all` records.
class Maker {
 public:
  Maker(int64_t all, int trace_bytes)
      : workloads_(std::max<int64_t>(1, all / kGroupSize / kDevices)), trace_bytes_(trace_bytes) {}

  int64_t workloads() const { return workloads_; }
  static std::string Key(int64_t workload) {
    return absl::StrFormat("%016x", SplitMix64(static_cast<uint64_t>(workload)));
  }
  static std::string Target(int64_t device) {
    return device == 0 ? "cuda -arch=sm_90" : absl::StrCat("llvm -mcpu=cpu", device);
  }
  static std::string Device(int64_t device) { return absl::StrCat("device-", device); }
  // The group of record i.
  WorkloadId IdOf(int64_t i) const {
    const uint64_t random = SplitMix64(static_cast<uint64_t>(i / kRun) + (uint64_t{1} << 40));
    const auto device = static_cast<int64_t>((random >> 40) % kDevices);
    return {Key(static_cast<int64_t>(random % static_cast<uint64_t>(workloads_))), Target(device),
            Device(device)};
  }
  v1::Record operator()(int64_t i) const {
    const uint64_t random = SplitMix64(static_cast<uint64_t>(i));
    const WorkloadId id = IdOf(i);
    v1::Record record;
    record.set_schema_version(1);
    record.set_workload_key(id.key);
    record.set_label("conv2d 1x56x56x64");
    record.set_flops(1e8);
    record.set_target(id.target);
    record.set_device_key(id.device_key);
    std::string& trace = *record.mutable_trace();
    absl::StrAppend(&trace, "cache_write conv local ", i, "\n");
    for (uint64_t step = 0; static_cast<int>(trace.size()) < trace_bytes_; ++step) {
      absl::StrAppend(&trace, "split conv.i", step, " ", SplitMix64(random + step) % 64, " ",
                      SplitMix64(random - step) % 16, "\n");
    }
    trace.resize(std::min(trace.size(), static_cast<size_t>(trace_bytes_)));
    record.set_created_unix_ns(kFirstNs + i * kApartNs);
    record.set_imported_by("bench");
    record.set_job("j1");
    v1::Measurement& measured = *record.mutable_measurement();
    const bool valid = random % 10 != 0;
    measured.set_outcome(valid ? v1::OUTCOME_OK : v1::OUTCOME_RUN_CRASH);
    if (valid) {
      measured.add_samples_ns(1e4 + static_cast<double>(random >> 40));
      record.set_median_ns(measured.samples_ns(0));
    } else {
      measured.set_message("signal 11");
    }
    measured.set_build_ns(30'000'000);
    measured.set_profile_ns(40'000'000);
    measured.mutable_evidence()->set_worker("worker-7");
    measured.mutable_evidence()->set_toolchain("heddle 0.1.0, LLVM 19.1.7");
    return record;
  }

 private:
  const int64_t workloads_;
  const int trace_bytes_;
};

double Since(absl::Time begin) { return absl::ToDoubleSeconds(absl::Now() - begin); }

struct Times {
  std::vector<double> seconds;
  double At(double q) const { return Quantile(seconds, q); }
  std::string Text() const {
    return absl::StrFormat("p50 %.3f ms, p99 %.3f ms, longest %.3f ms of %d", 1e3 * At(0.5),
                           1e3 * At(0.99), 1e3 * At(1), seconds.size());
  }
};

void Tell(const std::string& what, const std::string& value) {
  std::printf("%-34s%s\n", what.c_str(), value.c_str());
  std::fflush(stdout);
}

std::string Database(const Flags& flags) { return flags.data + "/heddle.db"; }

// Tells on stderr how far a fill is, every ten seconds.
class Progress {
 public:
  Progress(int64_t begin, int64_t all) : begin_(begin), all_(all) {}
  void At(int64_t done) {
    if (absl::Now() < next_) return;
    next_ = absl::Now() + absl::Seconds(10);
    const double rate = static_cast<double>(done - begin_) / std::max(1e-3, Since(since_));
    std::fprintf(stderr, "%s\n",
                 absl::StrFormat("%d of %d records, %.0f a second, %.0f min left", done, all_, rate,
                                 static_cast<double>(all_ - done) / std::max(1.0, rate) / 60)
                     .c_str());
  }

 private:
  const int64_t begin_, all_;
  const absl::Time since_ = absl::Now();
  absl::Time next_ = since_ + absl::Seconds(10);
};

// Bytes that a record takes in a file, about: its row, of which a page of 4 kB holds whole ones, and four indexes.
double BytesOfRecord(int trace_bytes) {
  constexpr double kRest = 165, kPage = 4088, kIndexes = 170;
  const double row = trace_bytes + kRest;
  return kIndexes + (row < kPage ? kPage / std::floor(kPage / row) : row);
}

// ResourceExhausted: the disk of the folder is too small for the records and for the space that sorting the largest index takes.
absl::Status CheckRoom(const Flags& flags) {
  constexpr double kSorting = 60, kSpare = 2e9;
  std::error_code error;
  const auto room = static_cast<double>(std::filesystem::space(flags.data, error).available);
  if (error) return absl::InternalError(absl::StrCat(flags.data, ": ", error.message()));
  const auto needed = [&](int trace_bytes) {
    return static_cast<double>(flags.records) * (BytesOfRecord(trace_bytes) + kSorting) + kSpare;
  };
  const double bytes = needed(flags.trace_bytes);
  Tell("expected size",
       absl::StrFormat("about %.1f GB; %.1f GB of the disk are free", 1e-9 * bytes, 1e-9 * room));
  if (bytes <= room) return absl::OkStatus();
  int fits = flags.trace_bytes;
  while (fits >= kShortestTrace && needed(fits) > room) fits -= 10;
  return absl::ResourceExhaustedError(
      fits < kShortestTrace
          ? "there is no room for so many records; give fewer --records or another --data"
          : absl::StrCat("there is no room for traces of ", flags.trace_bytes,
                         " bytes; --trace-bytes ", fits, " would fit"));
}

// How many records of a fill are there. InvalidArgument: there are records that this fill does not make.
absl::StatusOr<int64_t> Filled(const Flags& flags, const Maker& make, RecordStore* store) {
  HEDDLE_ASSIGN_OR_RETURN(const RecordPage newest, store->QueryPage({}, std::nullopt, 1));
  if (newest.records.empty()) return 0;
  HEDDLE_ASSIGN_OR_RETURN(const auto first, store->Known(make.IdOf(0)));
  if (first.total == 0)
    return absl::InvalidArgumentError("it has other records; give the --records that it has");
  // Transactions come in order, and what was inserted after the fill has larger numbers.
  const int64_t last = (newest.records.front().created_unix_ns() - kFirstNs) / kApartNs;
  return std::min(flags.records, last + 1);
}

absl::Status FillThroughStore(const Flags& flags, const Maker& make, RecordStore* store) {
  HEDDLE_ASSIGN_OR_RETURN(const int64_t begin, Filled(flags, make, store));
  if (begin == flags.records) return absl::OkStatus();
  const absl::Time since = absl::Now();
  Progress progress(begin, flags.records);
  for (int64_t i = begin; i < flags.records;) {
    std::vector<Batch> group;
    for (; i < flags.records && group.size() < kGroup; ++i)
      group.push_back({InsertRecord{make(i), 0, true}});
    HEDDLE_RETURN_IF_ERROR(store->Apply(group).status());
    progress.At(i);
  }
  const int64_t made = flags.records - begin;
  Tell("filled by store", absl::StrFormat("%d records in %.0f s, %.0f a second", made, Since(since),
                                          static_cast<double>(made) / Since(since)));
  return absl::OkStatus();
}

// Leaves a database of the version before statistics were kept.
absl::Status FillBySql(const std::string& path, const Flags& flags, const Maker& make) {
  HEDDLE_ASSIGN_OR_RETURN(const Connection connection,
                          Connect(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  sqlite3* const db = connection.get();
  HEDDLE_RETURN_IF_ERROR(Migrate(db, kBeforeStatistics));
  HEDDLE_RETURN_IF_ERROR(Execute(db,
                                 "PRAGMA journal_mode=DELETE; PRAGMA journal_mode=OFF; "
                                 "PRAGMA synchronous=OFF; PRAGMA cache_size=-500000"));
  SqliteSession session(db);
  std::vector<std::pair<std::string, std::string>> indexes;
  {
    Statement rows(&session,
                   "SELECT name, sql FROM sqlite_schema WHERE type='index' AND tbl_name='records' "
                   "AND sql IS NOT NULL");
    while (rows.Step()) indexes.emplace_back(rows.Text(0), rows.Text(1));
    HEDDLE_RETURN_IF_ERROR(rows.status());
  }
  for (const auto& [name, sql] : indexes)
    HEDDLE_RETURN_IF_ERROR(Execute(db, absl::StrCat("DROP INDEX ", name).c_str()));
  HEDDLE_RETURN_IF_ERROR(Execute(db, "BEGIN"));
  {
    Statement workload(&session, "INSERT INTO workloads(key,text,label,flops) VALUES(?,'',?,?)");
    for (int64_t i = 0; i < make.workloads(); ++i) {
      HEDDLE_RETURN_IF_ERROR(workload.Bind(Maker::Key(i), "conv2d 1x56x56x64", 1e8).Run());
    }
    Statement target(&session, "INSERT OR IGNORE INTO targets(text) VALUES(?)");
    Statement device(&session, "INSERT OR IGNORE INTO devices(key) VALUES(?)");
    for (int64_t i = 0; i < kDevices; ++i) {
      HEDDLE_RETURN_IF_ERROR(target.Bind(Maker::Target(i)).Run());
      HEDDLE_RETURN_IF_ERROR(device.Bind(Maker::Device(i)).Run());
    }
    Statement row(&session,
                  "INSERT INTO records(workload,target,device,trace,outcome,median_ns,created_ns,"
                  "provenance,measurement,digest,imported_by) VALUES("
                  "(SELECT id FROM workloads WHERE key=?),(SELECT id FROM targets WHERE text=?),"
                  "(SELECT id FROM devices WHERE key=?),?,?,?,?,?,?,?,?)");
    Progress progress(0, flags.records);
    for (int64_t i = 0; i < flags.records; ++i) {
      progress.At(i);
      const v1::Record record = make(i);
      const std::string measured = record.measurement().SerializeAsString();
      HEDDLE_RETURN_IF_ERROR(
          row.Bind(record.workload_key(), record.target(), record.device_key(), record.trace(),
                   record.measurement().outcome(), record.median_ns(), record.created_unix_ns(),
                   record.job(), Blob{measured}, Blob{RecordDigest(record)}, record.imported_by())
              .Run());
    }
  }
  HEDDLE_RETURN_IF_ERROR(Execute(db, "COMMIT"));
  for (const auto& [name, sql] : indexes) {
    std::fprintf(stderr, "making the index %s\n", name.c_str());
    HEDDLE_RETURN_IF_ERROR(Execute(db, sql.c_str()));
  }
  return absl::OkStatus();
}

v1::RecordQuery BestOf(const WorkloadId& id) {
  v1::RecordQuery query;
  query.set_workload_key(id.key);
  query.set_target(id.target);
  query.set_device_key(id.device_key);
  query.set_best_only(true);
  query.set_valid_only(true);
  return query;
}

// Runs `work` that often with the number of the run.
absl::StatusOr<Times> Repeat(int64_t times, const std::function<absl::Status(int64_t)>& work) {
  Times measured;
  for (int64_t i = 0; i < times; ++i) {
    const absl::Time begin = absl::Now();
    HEDDLE_RETURN_IF_ERROR(work(i));
    measured.seconds.push_back(Since(begin));
  }
  return measured;
}

int64_t AnyRecord(const Flags& flags, int64_t i) {
  return static_cast<int64_t>(SplitMix64(static_cast<uint64_t>(i) + 77) %
                              static_cast<uint64_t>(flags.records));
}

// Looks the best records up of groups from all of the database, which may be larger than memory, and then those of the last
// thousand of these groups again and again.
absl::Status MeasureBest(const std::string& where, const Flags& flags, const Maker& make,
                         int64_t lookups,
                         const std::function<absl::Status(const v1::RecordQuery&)>& look) {
  const auto at = [&](int64_t i) { return look(BestOf(make.IdOf(AnyRecord(flags, i)))); };
  HEDDLE_ASSIGN_OR_RETURN(Times any, Repeat(lookups, at));
  Tell(absl::StrCat("best record, ", where), any.Text());
  const int64_t last = lookups - std::min<int64_t>(lookups, 1000);
  HEDDLE_ASSIGN_OR_RETURN(
      Times again, Repeat(lookups, [&](int64_t i) { return at(last + i % (lookups - last)); }));
  Tell("the same, asked for before", again.Text());
  return absl::OkStatus();
}

absl::Status MeasureReads(const Flags& flags, const Maker& make, RecordStore* store) {
  constexpr int64_t kLookups = 20'000;
  HEDDLE_RETURN_IF_ERROR(
      MeasureBest("in the store", flags, make, kLookups,
                  [&](const v1::RecordQuery& query) { return store->Query(query).status(); }));
  HEDDLE_ASSIGN_OR_RETURN(Times known, Repeat(kLookups, [&](int64_t i) {
                            return store->Known(make.IdOf(AnyRecord(flags, i))).status();
                          }));
  Tell("what is known of a workload", known.Text());
  HEDDLE_ASSIGN_OR_RETURN(Times devices, Repeat(20, [&](int64_t) {
                            return store->DeviceKeys(Maker::Target(1)).status();
                          }));
  Tell("device keys of a target", devices.Text());
  HEDDLE_ASSIGN_OR_RETURN(Times newest, Repeat(200, [&](int64_t) {
                            return store->QueryPage({}, std::nullopt, 100).status();
                          }));
  Tell("newest 100 records", newest.Text());
  v1::RecordQuery nobody;
  nobody.set_worker("nobody");
  std::optional<RecordPlace> place;
  HEDDLE_ASSIGN_OR_RETURN(Times pages, Repeat(100, [&](int64_t) -> absl::Status {
                            HEDDLE_ASSIGN_OR_RETURN(const RecordPage page,
                                                    store->QueryPage(nobody, place, 100));
                            place = page.last;
                            return absl::OkStatus();
                          }));
  Tell("a page of which nothing matches", pages.Text());
  bench::ForgetPeak(getpid());
  const double before = bench::MemoryMib(getpid(), "VmHWM");
  const absl::Time begin = absl::Now();
  int64_t read = 0;
  place.reset();
  do {
    HEDDLE_ASSIGN_OR_RETURN(const RecordPage page, store->QueryPage({}, place, 2000));
    read += static_cast<int64_t>(page.records.size());
    place = page.last;
  } while (place && read < flags.exported);
  Tell("all records in pages, in the store",
       absl::StrFormat("%d records, %.0f a second, peak memory %.0f MiB after %.0f MiB", read,
                       static_cast<double>(read) / Since(begin),
                       bench::MemoryMib(getpid(), "VmHWM"), before));
  return absl::OkStatus();
}

absl::Status MeasureWrites(const Flags& flags, const Maker& make, RecordStore* store) {
  int64_t inserted = 0, refused = 0;
  Times transactions;
  const absl::Time begin = absl::Now();
  double making = 0;
  while (Since(begin) < flags.seconds) {
    const absl::Time made = absl::Now();
    std::vector<Batch> group;
    for (size_t k = 0; k < kGroup; ++k, ++inserted)
      group.push_back({InsertRecord{make(flags.records + inserted), 0, true}});
    making += Since(made);
    const absl::Time applied = absl::Now();
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<absl::Status> results, store->Apply(group));
    transactions.seconds.push_back(Since(applied));
    for (const absl::Status& result : results) {
      // Those that an earlier measurement inserted are there, and cost less.
      if (!result.ok() && !absl::IsAlreadyExists(result)) return result;
      if (!result.ok()) ++refused;
    }
  }
  Tell("inserts, 512 a transaction",
       absl::StrFormat("%.0f a second, of which %d of %d were there; a transaction: %s",
                       static_cast<double>(inserted) / (Since(begin) - making), refused, inserted,
                       transactions.Text()));
  // As a collection does it (collector.cc). The newest hundred of each group stay.
  const OldRecordRule rule{std::numeric_limits<int64_t>::max(), 100};
  Times looks, removals;
  int64_t removed = 0;
  std::optional<OldRecordPlace> after;
  for (int step = 0; step < 400 && (step == 0 || after); ++step) {
    absl::Time step_begin = absl::Now();
    HEDDLE_ASSIGN_OR_RETURN(const OldRecords page, store->FindOldRecords(rule, after, 250));
    looks.seconds.push_back(Since(step_begin));
    if (!page.ids.empty()) {
      step_begin = absl::Now();
      HEDDLE_RETURN_IF_ERROR(store->Apply({Batch{RemoveRecords{rule, after, 250}}}).status());
      removals.seconds.push_back(Since(step_begin));
      removed += static_cast<int64_t>(page.ids.size());
    }
    after = page.last;
  }
  Tell("old records, a look", looks.Text());
  Tell("old records, a removal", absl::StrFormat("%s; %d records", removals.Text(), removed));
  return absl::OkStatus();
}

// A real scheduler on the database, whose tracker and worker are in this process and have nothing to do.
class Service {
 public:
  explicit Service(const Flags& flags) : flags_(flags) {}
  ~Service() {
    if (pid_ == 0) return;
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }

  absl::Status Start() {
    const std::string port_file = flags_.data + "/port";
    std::filesystem::remove(port_file);
    std::vector<std::string> command = {flags_.programs + "/heddle-scheduler",
                                        "--listen",
                                        "127.0.0.1:0",
                                        "--tracker",
                                        cluster_.tracker_address(),
                                        "--data",
                                        flags_.data,
                                        "--port-file",
                                        port_file};
    if (!flags_.store.empty()) command.insert(command.end(), {"--store", flags_.store});
    std::vector<char*> arguments;
    for (std::string& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const absl::Time begin = absl::Now();
    if (posix_spawn(&pid_, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0) {
      pid_ = 0;
      return absl::NotFoundError(absl::StrCat(command[0], " does not start; build it"));
    }
    for (int i = 0; i < 60'000 && port_ == 0; ++i) {
      std::ifstream(port_file) >> port_;
      if (port_ == 0) absl::SleepFor(absl::Milliseconds(10));
    }
    if (port_ == 0) return absl::UnavailableError("the scheduler does not serve");
    Tell("start of a scheduler", absl::StrFormat("%.2f s", Since(begin)));
    stub_ = v1::RecordService::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port_), grpc::InsecureChannelCredentials()));
    return absl::OkStatus();
  }

  absl::Status Measure(const Maker& make) {
    HEDDLE_RETURN_IF_ERROR(MeasureBest(
        "through gRPC", flags_, make, 5000,
        [&](const v1::RecordQuery& query) { return Query(query, [](const v1::Record&) {}); }));
    bench::ForgetPeak(pid_);
    const double before = bench::MemoryMib(pid_, "VmHWM");
    v1::RecordQuery all;
    all.set_limit(flags_.exported);
    all.set_with_workload(true);
    int64_t read = 0;
    absl::Time begin = absl::Now();
    HEDDLE_RETURN_IF_ERROR(Query(all, [&](const v1::Record&) { ++read; }));
    Tell("export",
         absl::StrFormat("%d records, %.0f a second; the scheduler's peak %.0f MiB after %.0f MiB",
                         read, static_cast<double>(read) / Since(begin),
                         bench::MemoryMib(pid_, "VmHWM"), before));
    bench::ForgetPeak(pid_);
    grpc::ClientContext context;
    v1::ImportRecordsResponse response;
    const auto writer = stub_->ImportRecords(&context, &response);
    // Half of them are there.
    const int64_t sent = flags_.exported / 5;
    begin = absl::Now();
    for (int64_t i = 0; i < sent; ++i) {
      const int64_t number = i % 2 == 0 ? AnyRecord(flags_, i) : 2 * flags_.records + i;
      if (!writer->Write(make(number))) break;
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    if (!status.ok()) return absl::InternalError(status.error_message());
    Tell("import", absl::StrFormat("%d new, %d known, %d refused; %.0f a second; the scheduler's "
                                   "peak %.0f MiB",
                                   response.imported(), response.skipped(), response.rejected(),
                                   static_cast<double>(sent) / Since(begin),
                                   bench::MemoryMib(pid_, "VmHWM")));
    return absl::OkStatus();
  }

 private:
  absl::Status Query(const v1::RecordQuery& query,
                     const std::function<void(const v1::Record&)>& on_record) {
    grpc::ClientContext context;
    const auto reader = stub_->QueryRecords(&context, query);
    v1::Record record;
    while (reader->Read(&record)) on_record(record);
    const grpc::Status status = reader->Finish();
    return status.ok() ? absl::OkStatus() : absl::InternalError(status.error_message());
  }

  const Flags flags_;
  FakeCluster cluster_;
  pid_t pid_ = 0;
  int port_ = 0;
  std::unique_ptr<v1::RecordService::Stub> stub_;
};

absl::StatusOr<int64_t> Uncounted(const Flags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(Connection db, ConnectReader(Database(flags)));
  SqliteSession session(std::move(db));
  Statement row(&session, "SELECT count(*) FROM record_groups WHERE counted=0");
  const int64_t count = row.Step() ? row.Int(0) : 0;
  HEDDLE_RETURN_IF_ERROR(row.status());
  return count;
}

// Whether the file has the last record of the fill. The tables are not migrated by this, since that belongs to the first opening.
absl::StatusOr<bool> IsComplete(const Flags& flags) {
  if (!std::filesystem::exists(Database(flags))) return false;
  HEDDLE_ASSIGN_OR_RETURN(Connection db, ConnectReader(Database(flags)));
  SqliteSession session(std::move(db));
  Statement newest(&session, "SELECT coalesce(max(created_ns), 0) FROM records");
  const bool complete = newest.Step() && newest.Int(0) >= kFirstNs + (flags.records - 1) * kApartNs;
  HEDDLE_RETURN_IF_ERROR(newest.status());
  return complete;
}

template <typename Open>
absl::Status TellOpenings(const Open& open) {
  for (const char* which : {"first", "second"}) {
    const absl::Time begin = absl::Now();
    HEDDLE_RETURN_IF_ERROR(open().status());
    Tell(absl::StrCat(which, " opening"), absl::StrFormat("%.3f s", Since(begin)));
  }
  return absl::OkStatus();
}

// What does not depend on a file of SQLite's, of the store at flags.store.
absl::Status MeasureStore(const Flags& flags, const Maker& make) {
  HEDDLE_RETURN_IF_ERROR(TellOpenings([&] { return OpenRecordStore(flags.store); }));
  HEDDLE_ASSIGN_OR_RETURN(const auto store, OpenRecordStore(flags.store));
  Tell("expected size, about",
       absl::StrFormat("%.1f GB", 1e-9 * static_cast<double>(flags.records) *
                                      BytesOfRecord(flags.trace_bytes)));
  if (flags.fill == "sql") {
    HEDDLE_ASSIGN_OR_RETURN(const int64_t there, Filled(flags, make, store.get()));
    if (there == 0) {
      const absl::Time begin = absl::Now();
      Progress progress(0, flags.records);
      HEDDLE_RETURN_IF_ERROR(
          FillPostgres(flags.store, flags.records, make, [&](int64_t done) { progress.At(done); }));
      Tell("filled by sql", absl::StrFormat("%d records in %.0f s", flags.records, Since(begin)));
    }
  }
  HEDDLE_RETURN_IF_ERROR(FillThroughStore(flags, make, store.get()));
  HEDDLE_RETURN_IF_ERROR(MeasureReads(flags, make, store.get()));
  return MeasureWrites(flags, make, store.get());
}

absl::Status MeasureFile(const Flags& flags, const Maker& make) {
  std::filesystem::create_directories(flags.data);
  if (!std::filesystem::exists(Database(flags))) {
    HEDDLE_RETURN_IF_ERROR(CheckRoom(flags));
    if (flags.fill == "sql") {
      const absl::Time begin = absl::Now();
      const std::string part = Database(flags) + ".part";  // until it is complete
      for (const char* end : {"", "-wal", "-shm", "-journal"}) std::filesystem::remove(part + end);
      HEDDLE_RETURN_IF_ERROR(FillBySql(part, flags, make));
      std::filesystem::rename(part, Database(flags));
      Tell("filled by sql",
           absl::StrFormat("%d records in %.0f s, %.0f a second", flags.records, Since(begin),
                           static_cast<double>(flags.records) / Since(begin)));
    }
  }
  if (flags.fill == "store") {
    HEDDLE_ASSIGN_OR_RETURN(const bool complete, IsComplete(flags));
    if (!complete) {
      HEDDLE_ASSIGN_OR_RETURN(const auto store, OpenSqliteRecordStore(Database(flags)));
      HEDDLE_RETURN_IF_ERROR(FillThroughStore(flags, make, store.get()));
    }
  }
  const auto bytes = std::filesystem::file_size(Database(flags));
  Tell("size", absl::StrFormat("%.2f GB, %.0f bytes a record with %d of its trace",
                               1e-9 * static_cast<double>(bytes),
                               static_cast<double>(bytes) / static_cast<double>(flags.records),
                               flags.trace_bytes));
  HEDDLE_RETURN_IF_ERROR(TellOpenings([&] { return OpenSqliteRecordStore(Database(flags)); }));
  HEDDLE_ASSIGN_OR_RETURN(int64_t uncounted, Uncounted(flags));
  HEDDLE_ASSIGN_OR_RETURN(const auto store, OpenSqliteRecordStore(Database(flags)));
  if (uncounted > 0) {
    Times steps;
    const int64_t groups = uncounted;
    while (uncounted > 0) {
      for (int i = 0; i < 100; ++i) {
        const absl::Time begin = absl::Now();
        HEDDLE_RETURN_IF_ERROR(store->Apply({Batch{}}).status());
        steps.seconds.push_back(Since(begin));
      }
      HEDDLE_ASSIGN_OR_RETURN(uncounted, Uncounted(flags));
    }
    Tell("statistics of an old database",
         absl::StrFormat("%d groups; a step: %s", groups, steps.Text()));
  }
  HEDDLE_RETURN_IF_ERROR(MeasureReads(flags, make, store.get()));
  return MeasureWrites(flags, make, store.get());
}

absl::Status Run(const Flags& flags) {
  const Maker make(flags.records, flags.trace_bytes);
  if (flags.store.empty()) {
    HEDDLE_RETURN_IF_ERROR(MeasureFile(flags, make));
  } else {
    HEDDLE_RETURN_IF_ERROR(MeasureStore(flags, make));
    std::filesystem::create_directories(flags.data);  // of the scheduler's blobs
  }
  Service service(flags);
  HEDDLE_RETURN_IF_ERROR(service.Start());
  return service.Measure(make);
}

}  // namespace
}  // namespace heddle::scheduler

int main(int argc, char** argv) {
  heddle::scheduler::Flags flags;
  flags.programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  flags.data =
      (std::filesystem::temp_directory_path() / absl::StrCat("heddle-records-", getpid())).string();
  CLI::App app("heddle-bench-records: what a store of millions of records costs");
  app.add_option("--records", flags.records)->check(CLI::Range(1000, 1'000'000'000));
  app.add_option("--fill", flags.fill, "how a new database is filled")
      ->check(CLI::IsMember({"store", "sql"}))
      ->capture_default_str();
  app.add_option("--trace-bytes", flags.trace_bytes, "of a record")
      ->check(CLI::Range(heddle::scheduler::kShortestTrace, 100'000))
      ->capture_default_str();
  app.add_option("--export", flags.exported, "records that are exported; a fifth is imported")
      ->check(CLI::Range(1000, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--seconds", flags.seconds, "of inserts")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  app.add_option("--data", flags.data, "folder of the database; one that is there is measured")
      ->capture_default_str();
  app.add_option(
         "--store", flags.store,
         "postgresql://USER@HOST/DATABASE: measure that database instead; one without all of the "
         "records is filled")
      ->excludes("--data");
  app.add_flag("--keep", flags.keep, "keep a folder that is made");
  CLI11_PARSE(app, argc, argv);
  const bool fresh = !std::filesystem::exists(flags.data);
  setenv("SQLITE_TMPDIR", flags.data.c_str(), 0);  // indexes are sorted on the disk of the file
  const absl::Status status = heddle::scheduler::Run(flags);
  // After a failure a fill may go on.
  if (fresh && !flags.keep && status.ok()) std::filesystem::remove_all(flags.data);
  if (status.ok()) return 0;
  std::fprintf(stderr, "heddle-bench-records: %s\n", std::string(status.message()).c_str());
  return 1;
}
