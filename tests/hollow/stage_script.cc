#include "tests/hollow/stage_script.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/splitmix.h"
#include "base/vocabulary/workload_key.h"

namespace heddle::hollow {
namespace {

constexpr double kScatter = 0.25;     // of times of stages
constexpr double kNoise = 0.01;       // of repeated samples of a measurement
constexpr int kSamples = 5;           // of a measurement
constexpr double kUsualNs = 1e6;      // of a kernel
constexpr double kTraceSpread = 0.5;  // standard deviation of log(time) over the traces of a task
constexpr size_t kStateBytes = 256;   // of a search
constexpr size_t kModuleBytes = 1024;
// Of a candidate's code: the median, and the spread of log(bytes). Chosen to be no less than usual code.
constexpr double kCodeBytes = 64 << 10;
constexpr double kCodeSpread = 0.7;
constexpr double kMaxCodeBytes = 1 << 20;

// Of a stage, or of one candidate.
absl::Duration UsualTime(v1::StageKind kind) {
  switch (kind) {
    case v1::STAGE_IMPORT:
    case v1::STAGE_COMPILE:
    case v1::STAGE_COMPARE:
      return absl::Seconds(2);
    case v1::STAGE_UPDATE:
      return absl::Milliseconds(500);
    case v1::STAGE_PROFILE:
      return absl::Milliseconds(300);
    default:
      return absl::Milliseconds(200);
  }
}

uint64_t Hash(const std::string& text) {
  uint64_t hash = 0;
  for (const char c : text) hash = SplitMix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

// Of the standard normal distribution, from two numbers in [0, 1).
double Normal(double a, double b) {
  return std::sqrt(-2 * std::log(1 - a)) * std::cos(2 * std::numbers::pi * b);
}

v1::StageEvent ChunkOf(const std::string& name, const std::string& bytes) {
  v1::StageEvent event;
  v1::Chunk& chunk = *event.mutable_chunk();
  chunk.set_name(name);
  chunk.set_data(bytes);
  chunk.set_last(true);
  chunk.set_sha256(Sha256Hex(bytes));
  return event;
}

std::string AttemptText(const v1::StageStart& start) {
  return absl::StrCat(start.job(), " ", start.attempt_id());
}

}  // namespace

double StageScript::Chance(const std::string& text, uint64_t n) const {
  SplitMix numbers(Hash(text) ^ SplitMix64(options_.seed) ^ SplitMix64(n));
  return numbers.Unit();
}

absl::Duration StageScript::TimeOf(const v1::StageStart& start, int64_t candidate) const {
  const std::string text = absl::StrCat(AttemptText(start), " ", candidate);
  const double factor = std::exp(kScatter * Normal(Chance(text, 1), Chance(text, 2)));
  return options_.pace * factor * UsualTime(start.kind());
}

bool StageScript::Faulty(const v1::StageStart& start) const {
  return Chance(AttemptText(start), 3) < options_.stage_faults;
}

bool StageScript::Breaks(const v1::StageStart& start) const {
  return Chance(AttemptText(start), 4) < options_.breaks;
}

v1::StageEvent StageScript::AnswerTo(const v1::StageStart& start,
                                     const v1::StageInput& input) const {
  v1::StageEvent event;
  if (input.has_build()) {
    const v1::Candidate& candidate = input.build().candidate();
    v1::BuildResult& built = *event.mutable_built();
    built.set_candidate(candidate.id());
    built.set_build_ns(absl::ToInt64Nanoseconds(TimeOf(start, candidate.id())));
    built.mutable_artifact()->add_kernels()->set_symbol(candidate.trace());
    const std::string& trace = candidate.trace();
    const double bytes =
        kCodeBytes * std::exp(kCodeSpread * Normal(Chance(trace, 9), Chance(trace, 10)));
    built.mutable_artifact()->set_shared_object(
        std::string(static_cast<size_t>(std::min(bytes, kMaxCodeBytes)), 'c'));
    return event;
  }
  const v1::Candidate& candidate = input.profile().candidate();
  event.mutable_profiled()->set_candidate(candidate.id());
  v1::Measurement& measured = *event.mutable_profiled()->mutable_measurement();
  const std::string text = absl::StrCat(start.profile().workload(), " ", candidate.trace());
  if (Chance(text, 5) < options_.candidate_faults) {
    measured.set_outcome(v1::OUTCOME_RUN_CRASH);
    measured.set_message("a hollow crash");
    return event;
  }
  measured.set_outcome(v1::OUTCOME_OK);
  const double time_ns =
      kUsualNs * std::exp(kTraceSpread * Normal(Chance(text, 6), Chance(text, 7)));
  for (uint64_t i = 0; i < kSamples; ++i)
    measured.add_samples_ns(time_ns * (1 + kNoise * Chance(text, 8 + i)));
  return event;
}

std::vector<v1::StageEvent> StageScript::Results(const v1::StageStart& start) const {
  std::vector<v1::StageEvent> events;
  v1::StageEvent event;
  switch (start.kind()) {
    case v1::STAGE_IMPORT: {
      v1::ImportResult& result = *event.mutable_import();
      for (int i = 0; i < options_.tasks; ++i) {
        v1::TaskInfo& task = *result.add_tasks();
        task.set_workload(absl::StrCat("hollow task ", i, " of ", start.job()));
        task.set_key(WorkloadKey(task.workload()));
        task.set_label(absl::StrCat("hollow ", i));
        task.set_flops(1e8);
        task.set_weight(1 + i % 3);
      }
      result.add_inputs("x: f32[1]");
      result.add_outputs("y: f32[1]");
      result.set_kernels(options_.tasks);
      result.set_plan("a hollow plan");
      result.set_machine(start.machine());
      return {event};
    }
    case v1::STAGE_PROPOSE: {
      for (int i = 0; i < start.propose().count(); ++i) {
        v1::Candidate& candidate = *event.mutable_candidates()->add_candidates();
        candidate.set_trace(absl::StrCat("hollow trace ", start.attempt_id(), " ", i));
        candidate.set_origin("random");
      }
      return {event, ChunkOf("state", std::string(kStateBytes, 'p'))};
    }
    case v1::STAGE_UPDATE:
      return {ChunkOf("state", std::string(kStateBytes, 'u'))};
    case v1::STAGE_COMPILE: {
      const v1::CompileSpec& spec = start.compile();
      const auto module = [&](const std::string& name) {
        events.push_back(
            ChunkOf(name, absl::StrCat(start.job(), " ", name, std::string(kModuleBytes, '.'))));
      };
      module("module");
      if (spec.with_default()) module("default");
      if (!spec.other_plan().empty()) module("other");
      if (!spec.other_plan().empty() && spec.with_default()) module("other default");
      return events;
    }
    case v1::STAGE_COMPARE: {
      v1::CompareResult& result = *event.mutable_compared();
      const auto gain = [](double ratio, v1::Gain* out) {
        out->set_ratio(ratio);
        out->set_low(ratio - 0.01);
        out->set_high(ratio + 0.01);
        out->set_rounds(7);
      };
      result.set_default_ns(2 * kUsualNs);
      result.set_ns(kUsualNs);
      gain(2, result.mutable_gain());
      if (!start.compare().other_module().empty()) {
        result.set_other_ns(1.5 * kUsualNs);
        gain(1.5, result.mutable_other_gain());
        gain(4.0 / 3, result.mutable_other_over_default());
      }
      return {event};
    }
    default:
      return {};
  }
}

}  // namespace heddle::hollow
