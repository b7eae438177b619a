#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "client/commands/commands.h"
#include "client/embedded_service.h"
#include "client/views/json.h"

namespace heddle::client {
namespace {

// A line on a terminal that is written over and over.
class ProgressLine {
 public:
  explicit ProgressLine(const OutputOptions& output) : shown_(CanAnimate(output)) {}
  ~ProgressLine() { Show(""); }
  void Show(const std::string& text) {
    if (!shown_ || text == last_) return;
    last_ = text;
    fmt::print(stderr, "\r{}\x1b[K", text);
    std::fflush(stderr);
  }

 private:
  const bool shown_;
  std::string last_;
};

// "30d", or what absl::ParseDuration takes; "0" is any age.
absl::StatusOr<absl::Duration> ParseAge(const std::string& text) {
  absl::Duration age;
  int days = 0;
  if (text.ends_with('d') && absl::SimpleAtoi(text.substr(0, text.size() - 1), &days)) {
    age = absl::Hours(24) * days;
  } else if (!absl::ParseDuration(text, &age)) {
    age = -absl::InfiniteDuration();
  }
  if (age >= absl::ZeroDuration() && age < absl::Hours(24 * 365 * 100)) return age;
  return absl::InvalidArgumentError(fmt::format(
      "--older-than '{}' is not an age; write for example --older-than 30d, or 12h", text));
}

}  // namespace

int BackUp(const GlobalOptions& global, const std::string& directory) {
  ProgressLine line(global.output);
  const absl::StatusOr<Backup> backup =
      ServiceClient(global.server).BackUp(directory, [&](const Backup& now) {
        line.Show(now.fetched_bytes == 0
                      ? fmt::format("database: {}", FormatBytes(now.database_bytes))
                      : fmt::format("blobs: {} of at most {}, {}", now.fetched, now.blobs,
                                    FormatBytes(now.fetched_bytes)));
        return !Interrupted();
      });
  line.Show("");
  if (!backup.ok()) {
    Fail(backup.status());
    return Interrupted() ? static_cast<int>(kInterrupted) : ExitCodeFor(backup.status());
  }
  if (global.output.json) {
    const nlohmann::json object = {{"schema_version", kJsonSchemaVersion},
                                   {"directory", directory},
                                   {"database_bytes", backup->database_bytes},
                                   {"blobs", backup->blobs},
                                   {"fetched", backup->fetched},
                                   {"fetched_bytes", backup->fetched_bytes},
                                   {"missing", backup->missing}};
    fmt::print("{}\n", object.dump());
  } else {
    fmt::print("{}: database {}, {} blobs, of which {} with {} are new\n", directory,
               FormatBytes(backup->database_bytes), backup->blobs, backup->fetched,
               FormatBytes(backup->fetched_bytes));
  }
  if (backup->missing == 0) return kDone;
  return Fail(absl::DataLossError(fmt::format(
      "{} blobs that jobs refer to are missing in the service, and so in the backup (heddle check "
      "names them)",
      backup->missing)));
}

int CheckStore(const GlobalOptions& global, bool read_blobs) {
  ProgressLine line(global.output);
  int findings = 0;
  const absl::Status status =
      ServiceClient(global.server).CheckStore(read_blobs, [&](const v1::CheckProgress& now) {
        if (!now.finding().empty()) {
          ++findings;
          line.Show("");
          if (!global.output.json) fmt::print("{}\n", now.finding());
        }
        if (global.output.json) fmt::print("{}\n", ToJsonLine(now));
        line.Show(now.total() == 0
                      ? fmt::format("checking: {}", now.step())
                      : fmt::format("checking: {}, {} of {}", now.step(), FormatBytes(now.done()),
                                    FormatBytes(now.total())));
        return !Interrupted();
      });
  line.Show("");
  if (Interrupted()) return kInterrupted;
  if (!status.ok()) return Fail(status);
  if (findings > 0) return Fail(absl::DataLossError(fmt::format("{} findings", findings)));
  if (!global.output.json) fmt::print(stderr, "nothing is wrong\n");
  return kDone;
}

int Collect(const GlobalOptions& global, const CollectOptions& options) {
  const absl::StatusOr<absl::Duration> age = ParseAge(options.older_than);
  if (!age.ok()) return Fail(age.status());
  v1::CollectRequest request;
  request.set_dry_run(options.dry_run);
  request.set_older_than_s(absl::ToInt64Seconds(*age));
  request.set_keep_jobs(options.keep_jobs);
  const bool json = global.output.json;
  Table table({"job", "name", "ended", "rows", "database", "blobs", "bytes"});
  ProgressLine line(global.output);
  int64_t jobs = 0;
  const auto total = ServiceClient(global.server).Collect(request, [&](const auto& job) {
    ++jobs;
    if (json) {
      fmt::print("{}\n", ToJsonLine(job));
    } else {
      table.Add({job.id(), job.name(), FormatWallTime(job.finished_unix_ns()),
                 fmt::format("{}", job.rows()), FormatBytes(job.database_bytes()),
                 fmt::format("{}", job.blobs()), FormatBytes(job.blob_bytes())});
      line.Show(fmt::format("{} jobs", jobs));
    }
    return !Interrupted();
  });
  line.Show("");
  if (!json && jobs > 0) fmt::print("{}", table.ToText(global.output.plain));
  if (Interrupted()) return kInterrupted;
  if (!total.ok()) return Fail(total.status());
  if (json) {
    fmt::print("{}\n", ToJsonLine(*total));
    return kDone;
  }
  const char* done = options.dry_run ? "would be collected" : "collected";
  if (jobs == 0 && total->records() == 0) {
    fmt::print(stderr,
               "nothing to collect: no job or record is left that this rule does not keep\n");
    return kDone;
  }
  if (jobs > 0)
    fmt::print(stderr, "{} jobs {}: {} rows with about {} of the database, {} blobs with {}\n",
               jobs, done, total->rows(), FormatBytes(total->database_bytes()), total->blobs(),
               FormatBytes(total->blob_bytes()));
  if (total->records() > 0)
    fmt::print(stderr, "{} old records {}: about {} of the database\n", total->records(),
               options.dry_run ? "would be removed" : "removed",
               FormatBytes(total->record_bytes()));
  if (!options.dry_run && total->swept_bytes() < total->blob_bytes())
    fmt::print(stderr, "{} of blobs were in use within the last day and go later\n",
               FormatBytes(total->blob_bytes() - total->swept_bytes()));
  return kDone;
}

int CopyStore(const std::string& from, const std::string& to) {
  const std::string program = SiblingBinary("heddle-scheduler");
  execlp(program.c_str(), program.c_str(), "copy-store", from.c_str(), to.c_str(), nullptr);
  return Fail(absl::NotFoundError(
      fmt::format("{}: {}; install the scheduler on this machine", program, std::strerror(errno))));
}

}  // namespace heddle::client
