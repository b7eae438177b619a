#include "cost_model/search/candidate_space.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/splitmix.h"
#include "base/status_macros.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/pass/hoist_constants.h"
#include "cost_model/features/features.h"

namespace heddle::cost_model {
namespace {

using schedule::Point;
using schedule::Rng;

// Most draws for one random candidate. A full batch is nearly always found even if only one point
// in a hundred is feasible and new.
constexpr int kDrawsPerCandidate = 64;
constexpr int kDrawsPerCall = 256;
// Spaces up to this size are enumerated when redraws find nothing. An expansion takes well under a
// millisecond.
constexpr double kEnumerable = 1024;

// Features are rounded to steps of 2^-8, so that a restored search sees the same numbers as one
// that was never saved. Magnitudes are logarithms, for which a step is 0.3 %.
constexpr float kFeatureStep = 1.0f / 256;

std::string PointKey(const Point& point) {
  return std::string(reinterpret_cast<const char*>(point.data()), point.size() * sizeof(point[0]));
}

std::vector<float> Features(const ir::Program& program, const machine::TargetInfo& target,
                            KnownStatements* known = nullptr) {
  // Prepacking happens when the module is made, and costs nothing at run time.
  std::vector<float> features =
      ExtractFeatures(pass::HoistConstants(program).kernel, target, known);
  for (float& v : features) v = std::round(v / kFeatureStep) * kFeatureStep;
  return features;
}

}  // namespace

absl::StatusOr<Task> MakeTask(std::string_view workload, const machine::TargetInfo& target) {
  Task task;
  absl::StatusOr<ir::Program> naive = ir::Parse(workload);
  if (!naive.ok()) {
    return absl::InvalidArgumentError("workload: " + std::string(naive.status().message()));
  }
  const absl::Status verified = ir::Verify(*naive);
  if (!verified.ok()) {
    return absl::InvalidArgumentError("workload: " + std::string(verified.message()));
  }
  task.naive = *std::move(naive);
  task.target = target;
  HEDDLE_ASSIGN_OR_RETURN(task.space, schedule::MakeSpace(task.naive, target));
  HEDDLE_ASSIGN_OR_RETURN(task.default_trace, task.space->Expand(task.space->Preferred()));
  std::string identity = absl::StrCat(std::string(workload), "\n", ToText(target.target), "\n");
  for (int d = 0; d < task.space->NumDecisions(); ++d) {
    absl::StrAppend(&identity, task.space->Describe(d), " ", task.space->Choices(d), "\n");
  }
  task.identity = HashBytes(identity + schedule::ToText(task.default_trace));
  return task;
}

absl::StatusOr<Evaluated> EvaluateTrace(const ir::Program& naive, const machine::TargetInfo& target,
                                        std::string_view text) {
  HEDDLE_ASSIGN_OR_RETURN(const schedule::Trace trace, schedule::ParseTrace(text));
  HEDDLE_ASSIGN_OR_RETURN(const ir::Program program, schedule::Replay(naive, trace));
  return Evaluated{HashBytes(schedule::ToText(trace)), Features(program, target)};
}

CandidateSpace::CandidateSpace(Task task, uint64_t seed)
    : task_(std::move(task)), replayer_(task_.naive) {
  state_.seed = seed;
}

Rng CandidateSpace::NextRng() { return Rng(SplitMix64(SplitMix64(state_.seed) ^ state_.calls++)); }

std::optional<Candidate> CandidateSpace::TakeDefault() {
  if (std::exchange(state_.default_taken, true)) return std::nullopt;
  std::string text = schedule::ToText(task_.default_trace);
  const uint64_t hash = HashBytes(text);
  if (Visited(hash)) return std::nullopt;  // a record of it was learned
  MarkVisited(hash);
  return Candidate{std::move(text), "default"};
}

bool CandidateSpace::IsDefault(uint64_t hash) const {
  return hash == HashBytes(schedule::ToText(task_.default_trace));
}

std::optional<Point> CandidateSpace::DefaultPoint() const {
  Point point = space().Preferred();
  const absl::StatusOr<schedule::Trace> trace = space().Expand(point);
  if (!trace.ok() || *trace != task_.default_trace) return std::nullopt;
  return point;
}

std::vector<float> CandidateSpace::DefaultFeatures() {
  const absl::StatusOr<Evaluated> found = EvaluateTrace(schedule::ToText(task_.default_trace));
  return found.ok() ? found->features : std::vector<float>(FeatureTable().size());
}

const std::vector<float>* CandidateSpace::Known(uint64_t hash) const {
  if (task_.known_features == nullptr) return nullptr;
  const auto it = task_.known_features->find(hash);
  return it == task_.known_features->end() ? nullptr : &it->second;
}

std::optional<Drawn> CandidateSpace::Take(const Point& point) {
  const absl::StatusOr<schedule::Trace> trace = task_.space->ExpandWith(point, replayer_);
  if (!trace.ok()) return std::nullopt;
  Drawn drawn{point, 0, schedule::ToText(*trace)};
  drawn.hash = HashBytes(drawn.trace);
  if (Visited(drawn.hash)) return std::nullopt;
  if (Known(drawn.hash) == nullptr && !replayer_.Replay(*trace).ok()) return std::nullopt;
  MarkVisited(drawn.hash);
  return drawn;
}

std::vector<Drawn> CandidateSpace::TakeRandom(int n, Rng& rng) {
  std::vector<Drawn> out;
  if (state_.exhausted) return out;
  const int64_t draws = kDrawsPerCall + int64_t{kDrawsPerCandidate} * n;
  for (int64_t i = 0; i < draws && static_cast<int>(out.size()) < n; ++i) {
    if (std::optional<Drawn> drawn = Take(space().Random(rng))) out.push_back(*std::move(drawn));
  }
  if (static_cast<int>(out.size()) < n && space().Size() <= kEnumerable) Enumerate(n, rng, out);
  return out;
}

// Visits every point of a small space, starting from a random one.
void CandidateSpace::Enumerate(int n, Rng& rng, std::vector<Drawn>& out) {
  Point point = space().Random(rng);
  const auto size = static_cast<int64_t>(space().Size());
  for (int64_t i = 0; i < size; ++i) {
    if (static_cast<int>(out.size()) >= n) return;
    if (std::optional<Drawn> drawn = Take(point)) out.push_back(*std::move(drawn));
    space().Next(point);
  }
  state_.exhausted = static_cast<int>(out.size()) < n;
}

const Evaluated* CandidateSpace::Evaluate(const Point& point) {
  const auto [it, inserted] = seen_.try_emplace(PointKey(point));
  Seen& seen = it->second;
  if (seen.round != round_) {
    seen.round = round_;
    ++fresh_;
  }
  if (inserted) {
    const absl::StatusOr<schedule::Trace> trace = task_.space->ExpandWith(point, replayer_);
    if (!trace.ok()) return nullptr;
    seen.evaluated = EvaluateReplayed(HashBytes(schedule::ToText(*trace)), *trace);
  }
  return seen.evaluated;
}

const Evaluated* CandidateSpace::EvaluateReplayed(uint64_t hash, const schedule::Trace& trace) {
  const auto [it, inserted] = evaluated_.try_emplace(hash);
  std::optional<Evaluated>& evaluated = it->second;
  if (inserted) {
    if (const std::vector<float>* known = Known(hash)) {
      evaluated = Evaluated{hash, *known};
    } else if (const auto program = replayer_.Replay(trace); program.ok()) {
      evaluated = Evaluated{hash, Features(*program, task_.target, &statements_)};
    }
  }
  return evaluated ? &*evaluated : nullptr;
}

void CandidateSpace::ForgetEvaluations() {
  ++round_;
  fresh_ = 0;
  // If all features are known beforehand, there are few points, and each is asked for often.
  if (task_.known_features != nullptr) return;
  seen_.clear();
  evaluated_.clear();
}

absl::StatusOr<Evaluated> CandidateSpace::EvaluateTrace(std::string_view text) {
  const auto found = evaluated_.find(HashBytes(text));
  if (found != evaluated_.end() && found->second) return *found->second;
  if (const std::vector<float>* known = Known(HashBytes(text)))
    return Evaluated{HashBytes(text), *known};
  HEDDLE_ASSIGN_OR_RETURN(const schedule::Trace trace, schedule::ParseTrace(text));
  const uint64_t hash = HashBytes(schedule::ToText(trace));
  if (const Evaluated* evaluated = EvaluateReplayed(hash, trace)) return *evaluated;
  return replayer_.Replay(trace).status();
}

void CandidateSpace::Save(BlobWriter& w) const {
  w.Fixed64(task_.identity);
  w.Fixed64(state_.seed);
  w.Unsigned(state_.calls);
  w.Unsigned(state_.default_taken);
  w.Unsigned(state_.exhausted);
  std::vector<uint64_t> hashes(state_.visited.begin(), state_.visited.end());
  std::sort(hashes.begin(), hashes.end());
  w.Unsigned(hashes.size());
  for (uint64_t h : hashes) w.Fixed64(h);
}

absl::StatusOr<CandidateSpace::State> CandidateSpace::Parse(BlobReader& r) const {
  const uint64_t identity = r.Fixed64();
  State state;
  state.seed = r.Fixed64();
  state.calls = r.Unsigned();
  state.default_taken = r.Unsigned() != 0;
  state.exhausted = r.Unsigned() != 0;
  const size_t count = r.Count();
  for (size_t i = 0; i < count && r.ok(); ++i) state.visited.insert(r.Fixed64());
  if (!r.ok()) return absl::DataLossError("search state: malformed");
  if (identity != task_.identity) {
    return absl::DataLossError("search state: belongs to another workload, target or search space");
  }
  return state;
}

void SavePoint(const Point& point, BlobWriter& w) {
  w.Unsigned(point.size());
  for (int32_t choice : point) w.Signed(choice);
}

Point LoadPoint(BlobReader& r) {
  Point point(r.Count());
  for (int32_t& choice : point) choice = static_cast<int32_t>(r.Signed());
  return point;
}

bool InSpace(const schedule::Space& space, const Point& point) {
  if (static_cast<int>(point.size()) != space.NumDecisions()) return false;
  for (int d = 0; d < space.NumDecisions(); ++d) {
    const int32_t choice = point[static_cast<size_t>(d)];
    if (choice < 0 || choice >= space.Choices(d)) return false;
  }
  return true;
}

}  // namespace heddle::cost_model
