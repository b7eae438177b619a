// A small search space of a matrix product for tests: tiles, an order, vectorized or not, written
// by hand so that tests know every point; and an analytic cost of its candidates.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "compiler/ir/text.h"
#include "compiler/schedule/space.h"
#include "cost_model/features/features.h"
#include "cost_model/search/candidate_space.h"

namespace heddle::cost_model::testing {

inline constexpr char kMatmul[] = R"(
program mm(A: f32[64, 64], B: f32[64, 64]) -> (C: f32[64, 64]) {
  for i in 64 { for j in 64 { for k in 64 {
    block c(x < 64 spatial = i, y < 64 spatial = j, z < 64 reduce = k) sum init 0.0 {
      C[x, y] = (A[x, z] * B[z, y])
    }
  } } }
}
)";

// The same with matrices of `extent` rows and columns.
inline std::string Matmul(int extent) {
  std::string text = kMatmul;
  for (size_t at = 0; (at = text.find("64", at)) != std::string::npos;) {
    text.replace(at, 2, std::to_string(extent));
    at += 3;
  }
  return text;
}

// Decisions: inner tiles of i, j and k (1 << choice), order of the tile loops, what happens to the
// innermost loop, parallel.
class MatmulSpace : public schedule::Space {
 public:
  struct Shape {
    int tiles = 7;  // choices of every tile decision
    int orders = 6;
    int inner = 3;  // leave, unroll, vectorize
    int parallel = 2;
    int infeasible =
        0;            // every point whose decisions sum to a multiple of this is refused; 0: none
    int extent = 64;  // of Matmul
  };
  explicit MatmulSpace(Shape shape, int* expansions = nullptr)
      : shape_(shape), expansions_(expansions) {}

  int NumDecisions() const override { return 6; }
  int32_t Choices(int d) const override {
    return d < 3 ? shape_.tiles : d == 3 ? shape_.orders : d == 4 ? shape_.inner : shape_.parallel;
  }
  std::string Describe(int decision) const override {
    return "decision " + std::to_string(decision);
  }
  schedule::Point Preferred() const override { return schedule::Point(NumDecisions(), 0); }
  double Size() const override {
    double size = 1;
    for (int d = 0; d < NumDecisions(); ++d) size *= Choices(d);
    return size;
  }

  absl::StatusOr<schedule::Trace> Expand(const schedule::Point& p) const override {
    if (expansions_ != nullptr) ++*expansions_;
    int sum = 0;
    for (int32_t choice : p) sum += choice;
    if (shape_.infeasible > 0 && sum % shape_.infeasible == 0) {
      return absl::FailedPreconditionError("refused");
    }
    static const std::vector<std::vector<std::string>> kOrders = {
        {"i.1", "j.1", "k.1"}, {"i.1", "k.1", "j.1"}, {"j.1", "i.1", "k.1"},
        {"j.1", "k.1", "i.1"}, {"k.1", "i.1", "j.1"}, {"k.1", "j.1", "i.1"}};
    using schedule::Primitive;
    schedule::Trace t;
    const char* const names[] = {"i", "j", "k"};
    for (size_t a = 0; a < 3; ++a) {
      t.steps.push_back({Primitive::kSplit, {names[a]}, {shape_.extent >> p[a], 1 << p[a]}});
    }
    const std::vector<std::string>& order = kOrders[static_cast<size_t>(p[3])];
    t.steps.push_back(
        {Primitive::kReorder, {"i.0", "j.0", "k.0", order[0], order[1], order[2]}, {}});
    if (p[4] == 1) t.steps.push_back({Primitive::kUnroll, {order[2]}, {}});
    if (p[4] == 2) t.steps.push_back({Primitive::kVectorize, {order[2]}, {}});
    if (p[5] == 1) t.steps.push_back({Primitive::kParallel, {"i.0"}, {}});
    return t;
  }

 private:
  Shape shape_;
  int* expansions_;
};

inline machine::TargetInfo TestTarget() {
  machine::TargetInfo info;
  info.vector_bytes = 32;
  info.target.threads = 4;
  info.l1_bytes = 8 << 10;
  return info;
}

inline Task MatmulTask(MatmulSpace::Shape shape, int* expansions = nullptr) {
  Task task;
  task.naive = *ir::Parse(kMatmul);
  task.target = TestTarget();
  task.space = std::make_unique<MatmulSpace>(shape, expansions);
  task.identity = 42;
  return task;
}

// Seconds: arithmetic over lanes and threads, traffic of two caches, a cliff where registers run
// out, and a few per cent that depend on nothing a model could know.
inline double AnalyticSeconds(const std::string& trace_text,
                              const std::string& workload = kMatmul) {
  const ir::Program naive = *ir::Parse(workload);
  const schedule::Trace trace = *schedule::ParseTrace(trace_text);
  const std::vector<float> f = ExtractFeatures(*schedule::Replay(naive, trace), TestTarget());
  const auto value = [&](std::string_view name) {
    const auto table = FeatureTable();
    for (size_t i = 0; i < table.size(); ++i) {
      if (table[i].name == name) return std::exp2(static_cast<double>(f[i])) - 1;
    }
    ADD_FAILURE() << name;
    return 0.0;
  };
  double seconds = value("program.instructions") + 0.5 * value("main.traffic_2^11") +
                   0.05 * value("main.traffic_2^15");
  if (value("main.register_use") > 1) seconds *= value("main.register_use");
  if (value("main.parallel_extent") > 1) seconds = seconds / 4 + 2e4;
  return seconds * (1 + 0.05 * static_cast<double>(HashBytes(trace_text) % 100) / 100) * 1e-9;
}

inline std::vector<Result> Measure(const std::vector<Candidate>& candidates) {
  std::vector<Result> results;
  for (const Candidate& c : candidates)
    results.push_back({c.trace, true, AnalyticSeconds(c.trace)});
  return results;
}

inline std::vector<std::string> Traces(const std::vector<Candidate>& candidates) {
  std::vector<std::string> traces;
  for (const Candidate& c : candidates) traces.push_back(c.trace);
  return traces;
}

}  // namespace heddle::cost_model::testing
