#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/commands/commands.h"
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

}  // namespace heddle::client
