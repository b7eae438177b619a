// Replay tables: measured candidates of one operator, kept as data, so that search methods are
// compared in seconds, and the same comparison gives the same result every time.
//
// A file is gzip'ed lines of JSON. The first line names the operator and the command that made the
// table; every further line is a candidate. A candidate has its trace, which survives changes of
// the space's rules, and its point in the space it was drawn from, whose decisions the first line
// describes.
//
// A search that runs on a table searches what the table holds and nothing else (ReplaySpace):
//  - a random draw gives a candidate that was drawn uniformly from the real space when the table
//    was made, so that random search behaves as it does live;
//  - a mutation gives one of the candidates nearest to the point, counted in decisions that differ.
//    Around the best, where the table is dense, these were made by unselected mutations of the real
//    space, so that good points have as many bad neighbours as they really have;
//  - any other point is infeasible, as many points of the real space are; crossover takes the
//    candidate nearest to the mixture.
// The space reports the size of the real one, so that no search enumerates a table as a small
// space. A run must be short relative to the table, or it ends where a live one would continue:
// `compare` requires kRowsPerTrial times as many rows as the longest run has trials.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/machine/target_info.h"
#include "compiler/schedule/space.h"
#include "cost_model/search/candidate_space.h"

namespace heddle::bench {

inline constexpr int kReplaySchema = 1;
inline constexpr size_t kRowsPerTrial = 2;

struct ReplayDecision {
  std::string what;
  int32_t choices = 1;
  bool operator==(const ReplayDecision&) const = default;
};

struct ReplayHeader {
  std::string name;  // of the operator
  std::string workload;
  machine::TargetInfo target;
  std::string device_key;  // of the machine that measured
  std::string command;     // that made the table
  double flops = 0;
  std::vector<ReplayDecision> decisions;
  double reference_ns =
      0;  // time of the default schedule in the first batch; the unit of all times
};

// How a candidate came into the table.
enum class ReplayOrigin { kDefault, kRandom, kMutation };

struct ReplayRow {
  schedule::Point point;
  std::string trace;
  ReplayOrigin origin = ReplayOrigin::kRandom;
  double seconds = 0;    // median, scaled to the reference; 0: it failed
  std::string error;     // why
  bool checked = false;  // measured again, together with others of the best
};

struct ReplayTable {
  ReplayHeader header;
  std::vector<ReplayRow> rows;  // the first one is the default schedule; no trace twice

  // The best of the valid rows; 0 if there is none.
  double BestSeconds() const;
  double BestFoundSeconds() const;  // without the default schedule
};

// InvalidArgument names the file and the line.
absl::StatusOr<ReplayTable> ReadReplayTable(const std::string& path);
// Writes a new file with only the header. Rows are then appended in portions.
absl::Status StartReplayTable(const std::string& path, const ReplayHeader& header);
absl::Status AppendRows(const std::string& path, const std::vector<ReplayRow>& rows);
// Replaces an existing file.
absl::Status WriteReplayTable(const std::string& path, const ReplayTable& table);

// For each row, the rows to which a mutation may lead.
std::vector<std::vector<size_t>> FindNeighbours(const ReplayTable& table);
// The candidates of a table as a space. Both arguments must outlive it.
std::unique_ptr<schedule::Space> MakeReplaySpace(
    const ReplayTable& table, const std::vector<std::vector<size_t>>& neighbours);

// A table with everything that its searches share, computed once for all methods and seeds. Rows
// whose trace does not replay are left out and counted; FailedPrecondition if this is the first row
// or more than one row in kMaxLeftOut. Traces are normalised (schedule::ToText); of equal rows the
// first stays.
class ReplayProblem {
 public:
  static constexpr int kMaxLeftOut = 20;

  static absl::StatusOr<std::unique_ptr<ReplayProblem>> Make(ReplayTable table);

  const ReplayTable& table() const { return table_; }
  int left_out() const { return left_out_; }
  cost_model::Task MakeTask() const;
  // 0 for a failed candidate. NotFound if the table does not have the trace.
  absl::StatusOr<double> Seconds(const std::string& trace) const;
  const std::vector<float>& FeaturesOf(size_t row) const;  // the features of the row's program
  // Replaces all features by the candidate's decisions, to show what features are worth: each
  // choice in the column of its decision's name, -1 elsewhere. New names take the next columns;
  // those beyond the table of features are left out.
  void SeeKnobs(std::map<std::string, size_t>* columns);

 private:
  ReplayProblem() = default;

  ReplayTable table_;
  ir::Program naive_;
  std::vector<std::vector<size_t>> neighbours_;
  std::shared_ptr<cost_model::KnownFeatures> features_;
  std::unordered_map<std::string, double> seconds_;
  int left_out_ = 0;
};

}  // namespace heddle::bench
