// The live view of a job on stderr: redrawn in place on a terminal, elsewhere an occasional line.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "client/views/terminal.h"
#include "proto/jobs.pb.h"
#include "views/figures.h"

namespace heddle::client {

class ProgressView {
 public:
  explicit ProgressView(const OutputOptions& options);
  // `job` is the latest state. Call this at least ten times a second to keep the clock running.
  void Show(const v1::Job& job, absl::Time now);
  // Leaves the last picture in place.
  void Finish();

 private:
  std::string Picture(const v1::Job& job, absl::Time now) const;
  std::string Line(const v1::Job& job) const;

  OutputOptions options_;
  bool animate_;
  int drawn_lines_ = 0;
  std::string last_line_;
  absl::Time last_shown_ = absl::InfinitePast();
  int last_trials_ = -1;
  v1::JobState last_state_ = v1::JOB_UNSPECIFIED;
};

// One row per task: its number (for `heddle explain`), label, uses, trials, best latency, GFLOP/s, gain
// over the default schedule, what it is doing. Once the whole module was compared with the default one,
// the gain is the one found there.
std::string TaskTable(const v1::Job& job, bool plain);
// The same for a terminal that is `width` columns wide, in at most `rows` lines (at least 3): what runs
// stands first, and less important columns are left out where there is no room.
std::string LiveTaskTable(const v1::Job& job, int width, int rows);

}  // namespace heddle::client
