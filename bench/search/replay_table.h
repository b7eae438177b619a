// Replay tables: measured candidates of one operator, kept as data, so that search methods are
// compared in seconds, and the same comparison gives the same result every time.
//
// A file is gzip'ed lines of JSON. The first one says of what the table is and by which command it
// was made; every further one is a candidate. Candidates carry the trace, which outlives changes of
// the space's rules, and the point it had in the space it was drawn from, whose decisions the first
// line describes.
//
// A search that runs on a table searches what the table holds and nothing else (ReplaySpace):
//  - a random draw gives a candidate that was drawn at random, uniformly from the real space, when
//    the table was made: so random search does what it would do live;
//  - a mutation gives one of the candidates nearest to the point, counted in decisions that differ.
//    Where the table is dense, around the best, those were made by mutations of the real space,
//    unselected, so good points have as many bad neighbours as they really have;
//  - any other point is infeasible, as are many live; crossover takes the nearest candidate to what
//    it mixes.
// The space says the size of the real one, so that no search enumerates a table as a small space. A
// run has to be short beside the table, else it ends where a live one would go on: `compare` wants
// kRowsPerTrial times as many rows as the longest run has trials.
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
  double reference_ns = 0;  // of the default schedule in the first batch: the unit of all times
};

// How a candidate came into the table.
enum class ReplayOrigin { kDefault, kRandom, kMutation };

struct ReplayRow {
  schedule::Point point;
  std::string trace;
  ReplayOrigin origin = ReplayOrigin::kRandom;
  double seconds = 0;    // median, in reference conditions; 0: it failed
  std::string error;     // why
  bool checked = false;  // measured again beside others of the best
};

struct ReplayTable {
  ReplayHeader header;
  std::vector<ReplayRow> rows;  // the first one is the default schedule; no trace twice

  // Of the valid ones; 0 if there is none.
  double BestSeconds() const;
  double BestFoundSeconds() const;  // the default schedule left out
};

// InvalidArgument names the file and the line.
absl::StatusOr<ReplayTable> ReadReplayTable(const std::string& path);
// A new file of the header alone; then rows are appended in portions.
absl::Status StartReplayTable(const std::string& path, const ReplayHeader& header);
absl::Status AppendRows(const std::string& path, const std::vector<ReplayRow>& rows);
// In place of what is there.
absl::Status WriteReplayTable(const std::string& path, const ReplayTable& table);

// Of each row, those that a mutation of it may give.
std::vector<std::vector<size_t>> FindNeighbours(const ReplayTable& table);
// The candidates of a table as a space. Both arguments must outlive it.
std::unique_ptr<schedule::Space> MakeReplaySpace(
    const ReplayTable& table, const std::vector<std::vector<size_t>>& neighbours);

// A table with what its searches share: the cost of reading it is paid once, not for every method
// and seed. Rows whose trace does not replay are left out and counted; FailedPrecondition if the
// first row's does not, or more than one in kMaxLeftOut. Traces are kept as a search writes them
// (schedule::ToText); of rows that are then the same one, the first stays.
class ReplayProblem {
 public:
  static constexpr int kMaxLeftOut = 20;

  static absl::StatusOr<std::unique_ptr<ReplayProblem>> Make(ReplayTable table);

  const ReplayTable& table() const { return table_; }
  int left_out() const { return left_out_; }
  cost_model::Task MakeTask() const;
  // 0 for what failed. NotFound for a trace that the table does not have.
  absl::StatusOr<double> Seconds(const std::string& trace) const;
  const std::vector<float>& FeaturesOf(size_t row) const;  // of the schedule, as a search sees it
  // From now on these are the choices that make a candidate instead, to see what features are
  // worth: each in the column of its decision's name, -1 elsewhere. New names take the next
  // columns; those beyond the table of features are left out.
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
