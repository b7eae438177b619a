#include "tests/fuzz/search_task.h"

#include <utility>

#include "cost_model/features/features.h"
#include "tests/fuzz/fuzz_target.h"

namespace heddle::fuzz {
namespace {

constexpr char kWorkload[] = R"(
program mm(x: f32[8, 8], w: f32[8, 8]) -> (out: f32[8, 8]) {
  for i in 8 { for j in 8 { for k in 8 {
    block y(vi < 8 spatial = i, vj < 8 spatial = j, vk < 8 reduce = k) sum init 0.0 {
      out[vi, vj] = (x[vi, vk] * w[vk, vj])
    } } } }
}
)";

}  // namespace

std::unique_ptr<cost_model::Search> MakeFuzzSearch(const std::string& strategy) {
  cost_model::SearchOptions options;
  options.strategy = strategy;
  options.seed = 1;
  auto search = cost_model::MakeSearch(kWorkload, {}, options);
  Require(search.ok(), "the small task has a search");
  return *std::move(search);
}

std::vector<cost_model::Sample> FuzzSamples() {
  std::vector<cost_model::Sample> samples(2);
  for (cost_model::Sample& sample : samples) {
    sample.features.assign(cost_model::FeatureTable().size(), 1);
    sample.score = 0.5F;
  }
  samples[1].score = 1;
  return samples;
}

}  // namespace heddle::fuzz
