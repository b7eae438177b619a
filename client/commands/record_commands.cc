#include <fmt/format.h>

#include <map>
#include <memory>

#include "base/files/output_file.h"
#include "base/vocabulary/limits.h"
#include "client/commands/commands.h"
#include "client/modules/table_input.h"
#include "client/record_file.h"
#include "client/views/json.h"
#include "views/figures.h"

namespace heddle::client {
namespace {

constexpr int64_t kShownRecords = 1000;  // where there is no --limit

std::string OutcomeWord(v1::Outcome outcome) {
  switch (outcome) {
    case v1::OUTCOME_OK:
      return "ok";
    case v1::OUTCOME_BUILD_ERROR:
      return "build error";
    case v1::OUTCOME_BUILD_TIMEOUT:
      return "build timeout";
    case v1::OUTCOME_WRONG_RESULT:
      return "wrong result";
    case v1::OUTCOME_RUN_CRASH:
      return "crash";
    case v1::OUTCOME_RUN_TIMEOUT:
      return "run timeout";
    case v1::OUTCOME_EXCEEDS_LIMITS:
      return "over limits";
    case v1::OUTCOME_LOST:
      return "lost";
    default:
      return "unknown";
  }
}

std::string FateOf(const v1::Record& record) {
  if (record.has_retraction()) return fmt::format("retracted ({})", record.retraction().reason());
  return OutcomeWord(record.measurement().outcome());
}

// The place of the measurement and how quiet it was there (Evidence in proto/common.proto).
const std::vector<std::string> kEvidenceHeader = {"slot",   "steal", "others",   "switches",
                                                  "canary", "taken", "disturbed"};

std::vector<std::string> EvidenceCells(const v1::Record& record) {
  const v1::Evidence& evidence = record.measurement().evidence();
  std::string where = evidence.command().empty()
                          ? fmt::format("{}/{}", evidence.worker(), evidence.slot())
                          : evidence.command();
  if (where == "/") where = "-";
  if (!record.imported_by().empty()) where += ", imported by " + record.imported_by();
  // Only measurements under a worker's guard have shares.
  if (evidence.times_measured() == 0) return {where, "-", "-", "-", "-", "-", "-"};
  const std::string canary =
      evidence.canary_before() > 0
          ? fmt::format("{:.2f} {:.2f}", evidence.canary_before(), evidence.canary_after())
          : "-";
  return {where,
          fmt::format("{:.1f} %", 100 * evidence.steal_share()),
          fmt::format("{:.1f} %", 100 * evidence.other_share()),
          fmt::format("{}", evidence.involuntary_switches()),
          canary,
          fmt::format("{}x", evidence.times_measured()),
          evidence.disturbance().empty() ? "no" : evidence.disturbance()};
}

// Keys of workloads are 16 hexadecimal digits (base/vocabulary/workload_key.h).
bool IsKey(const std::string& text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Replaces a label, or the beginning of a key, by the key of its task. With `parts`, a part of a label does as well, if there is
// no label that is the whole text. NotFound: no task with records matches. InvalidArgument: several do.
absl::Status FindTask(const ServiceClient& client, bool parts, v1::RecordQuery* query) {
  const std::string wanted = query->workload_key();
  if (wanted.empty() || IsKey(wanted)) return absl::OkStatus();
  std::map<std::string, std::string> labels, partly;  // of the tasks that match, by key
  // The best records name most tasks and are few; a task of failures has none, and is found among the newest
  // million.
  for (const bool best_only : {true, false}) {
    v1::RecordQuery all = *query;
    all.clear_workload_key();
    all.set_limit(best_only ? kAllRecords : kMaxQueryLimit);
    all.set_best_only(best_only && !query->retracted());
    const absl::Status status = client.QueryRecords(all, [&](const v1::Record& record) {
      const bool begins = wanted.size() >= 4 && record.workload_key().starts_with(wanted);
      if (begins || record.label() == wanted) labels[record.workload_key()] = record.label();
      if (parts && record.label().find(wanted) != std::string::npos)
        partly[record.workload_key()] = record.label();
      return !Interrupted();
    });
    if (!status.ok()) return status;
    if (labels.empty()) labels = partly;
    if (!labels.empty()) break;
  }
  if (labels.size() == 1) {
    query->set_workload_key(labels.begin()->first);
    return absl::OkStatus();
  }
  if (labels.empty()) {
    return absl::NotFoundError(fmt::format(
        "no record is of a task '{}'; --task takes a key, at least 4 characters with which a key "
        "begins, or a label{}, as `heddle records` shows them",
        wanted, parts ? " or a part of it" : ""));
  }
  std::vector<std::string> names;
  for (const auto& [key, label] : labels) names.push_back(fmt::format("{} ({})", key, label));
  return absl::InvalidArgumentError(
      fmt::format("--task '{}' matches {} tasks; name one by its key: {}", wanted, labels.size(),
                  SomeNames(names)));
}

}  // namespace

int QueryRecords(const GlobalOptions& global, const v1::RecordQuery& asked) {
  const ServiceClient client(global.server);
  v1::RecordQuery query = asked;
  if (const absl::Status found = FindTask(client, /*parts=*/true, &query); !found.ok())
    return Fail(found);
  const bool evidence = global.output.verbosity > 0;
  std::vector<std::string> header = {"task", "device", "outcome", "median", "GFLOP/s",
                                     "job",  "when",   "key",     "id"};
  if (evidence) header.insert(header.end(), kEvidenceHeader.begin(), kEvidenceHeader.end());
  Table table(header);
  // One more than is shown tells whether there are others.
  const bool limited = query.limit() > 0;
  if (!limited) query.set_limit(kShownRecords + 1);
  int64_t count = 0;
  bool more = false;
  const absl::Status status = client.QueryRecords(query, [&](const v1::Record& record) {
    more = !limited && count == kShownRecords;
    if (more) return false;
    ++count;
    const bool imported = !record.imported_by().empty();  // its job is none of here
    if (global.output.json) {
      fmt::print("{}\n", ToJsonLine(record));
    } else {
      std::vector<std::string> cells = {record.label(),
                                        record.device_key(),
                                        FateOf(record),
                                        FormatNs(record.median_ns()),
                                        FormatGflops(record.flops(), record.median_ns()),
                                        global.output.plain && imported ? "" : MadeFor(record),
                                        FormatWallTime(record.created_unix_ns()),
                                        record.workload_key(),
                                        fmt::format("{}", record.id())};
      if (evidence) {
        const std::vector<std::string> how = EvidenceCells(record);
        cells.insert(cells.end(), how.begin(), how.end());
      }
      table.Add(cells);
    }
    return !Interrupted();
  });
  if (!status.ok()) return Fail(status);
  if (more) {
    fmt::print(stderr,
               "showing the newest {} records; --limit N shows more, `heddle records export` all\n",
               kShownRecords);
  }
  if (!global.output.json && count > 0) fmt::print("{}", table.ToText(global.output.plain));
  if (count == 0) fmt::print(stderr, "no records match\n");
  return Interrupted() ? kInterrupted : kDone;
}

int ExportRecords(const GlobalOptions& global, const v1::RecordQuery& query,
                  const std::string& output) {
  const ServiceClient client(global.server);
  v1::RecordQuery full = query;
  if (const absl::Status found = FindTask(client, /*parts=*/true, &full); !found.ok())
    return Fail(found);
  full.set_with_workload(true);
  if (full.limit() == 0) full.set_limit(kAllRecords);  // by default an export is complete
  absl::StatusOr<OutputFile> file = OutputFile::Open(output.empty() ? "-" : output);
  if (!file.ok()) return Fail(file.status());
  absl::Status written;
  int64_t count = 0;
  const absl::Status status = client.QueryRecords(full, [&](const v1::Record& record) {
    ++count;
    written = file->Append(ToFileJsonLine(record) + "\n");
    return written.ok() && !Interrupted();
  });
  if (!status.ok()) return Fail(status);
  if (Interrupted()) return kInterrupted;
  if (written.ok()) written = file->Commit();
  // As for what other commands print.
  if (!written.ok() && output.empty()) return Fail(kInternal, std::string(written.message()));
  if (!written.ok()) return Fail(written);
  fmt::print(stderr, "{} records exported\n", count);
  return kDone;
}

int ImportRecords(const GlobalOptions& global, const std::string& input) {
  absl::StatusOr<std::unique_ptr<RecordFileReader>> file = RecordFileReader::Open(input);
  if (!file.ok()) return Fail(file.status());
  // The whole file is checked before the first record is sent, so that a typo in line 1000 imports
  // nothing instead of 999 records.
  v1::Record checked;
  absl::StatusOr<bool> more = true;
  while (more.ok() && *more && !Interrupted()) more = (*file)->Next(&checked);
  const absl::Status again = more.ok() ? (*file)->Rewind() : more.status();
  if (!again.ok()) {
    return Fail(absl::Status(
        again.code(), fmt::format("{}; nothing was imported", std::string(again.message()))));
  }
  const absl::StatusOr<v1::ImportRecordsResponse> response =
      ServiceClient(global.server).ImportRecords([&](v1::Record* record) -> absl::StatusOr<bool> {
        if (Interrupted())
          return absl::CancelledError(
              "interrupted; import the file again: known records are skipped");
        return (*file)->Next(record);
      });
  if (!response.ok()) {
    Fail(response.status());
    return Interrupted() ? static_cast<int>(kInterrupted) : ExitCodeFor(response.status());
  }
  if (global.output.json) fmt::print("{}\n", ToJsonLine(*response));
  fmt::print(stderr, "{} records imported, {} known already, {} rejected\n", response->imported(),
             response->skipped(), response->rejected());
  if (response->rejected() > 0)
    return Fail(absl::InvalidArgumentError("first rejected: " + response->first_error()));
  return kDone;
}

int RetractRecords(const GlobalOptions& global, const v1::RecordQuery& asked,
                   const std::string& reason) {
  const ServiceClient client(global.server);
  v1::RecordQuery query = asked;
  if (const absl::Status found = FindTask(client, /*parts=*/false, &query); !found.ok())
    return Fail(found);
  const absl::StatusOr<int64_t> count = client.RetractRecords(query, reason);
  if (!count.ok()) return Fail(count.status());
  if (global.output.json) {
    v1::RetractRecordsResponse response;
    response.set_retracted(*count);
    fmt::print("{}\n", ToJsonLine(response));
  }
  fmt::print(stderr, "{} records retracted; heddle records --retracted shows them\n", *count);
  return kDone;
}

}  // namespace heddle::client
