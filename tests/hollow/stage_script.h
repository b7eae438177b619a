// What hollow workers answer, and after what time: plausible results that follow from the seed and from
// what was asked, so that the same question gets the same answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/worker.pb.h"

namespace heddle::hollow {

struct ScriptOptions {
  uint64_t seed = 1;
  int tasks = 8;    // of each model
  double pace = 1;  // factor of all times
  // Shares in [0, 1]: of candidates that crash when they are measured, of stages that end with an
  // infrastructure fault, and of stages whose call breaks.
  double candidate_faults = 0.02;
  double stage_faults = 0;
  double breaks = 0;
};

class StageScript {
 public:
  explicit StageScript(const ScriptOptions& options) : options_(options) {}

  // How long a stage takes, or one candidate of a stage that has candidates. It scatters by a quarter
  // around the usual time of its kind, which is between 0.2 s and 2 s.
  absl::Duration TimeOf(const v1::StageStart& start, int64_t candidate) const;
  bool Faulty(const v1::StageStart& start) const;
  bool Breaks(const v1::StageStart& start) const;

  // The answer about one candidate of a build or profile stage.
  v1::StageEvent AnswerTo(const v1::StageStart& start, const v1::StageInput& input) const;
  // What a stage without candidates sends before `finished`. Empty: it cannot do what is asked
  // (plan stages).
  std::vector<v1::StageEvent> Results(const v1::StageStart& start) const;

 private:
  // Uniform in [0, 1), for the n-th question about this text.
  double Chance(const std::string& text, uint64_t n) const;

  const ScriptOptions options_;
};

}  // namespace heddle::hollow
