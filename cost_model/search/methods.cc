#include "cost_model/search/methods.h"

#include <algorithm>

namespace heddle::cost_model {

std::span<const Method> Methods() {
  static const std::vector<Method>* const kMethods = [] {
    auto* methods = new std::vector<Method>;
    Method annealing;
    annealing.name = "annealing";
    // With only random candidates the first model learns just what is bad.
    annealing.cold_start = 1;
    // Candidates near the default schedule are good more often than others.
    annealing.beside_default = 0.4;
    methods->push_back(annealing);
    Method regression = annealing;
    regression.name = "regression";
    regression.model.objective = regression.others.objective = Objective::kRegression;
    regression.score_levels = 0;
    methods->push_back(regression);
    Method evolutionary = annealing;
    evolutionary.name = "evolutionary";
    evolutionary.walk = Walk::kEvolution;
    methods->push_back(evolutionary);
    Method improvement = regression;
    improvement.name = "ensemble-ei";
    improvement.model.members = 5;
    improvement.acquisition = Acquisition::kExpectedImprovement;
    methods->push_back(improvement);
    Method bound = annealing;
    bound.name = "ensemble-ucb";
    bound.model.members = 4;
    bound.acquisition = Acquisition::kUpperBound;
    methods->push_back(bound);
    Method attention = annealing;
    attention.name = "attention";
    attention.model.kind = attention.others.kind = ModelKind::kAttention;
    methods->push_back(attention);
    // AutoTVM as published: its constants, and those of our features that correspond to its context
    // features (loops, accesses, counts of operations). Differences from the original:
    //  - access features describe the store and two loads of the main statement one by one, and
    //    sum up its other loads, instead of describing each loop and buffer;
    //  - our loops are counted from the innermost;
    //  - rounds are fixed to 100; the original stops when its recall has not improved for 20;
    //  - XGBoost works on histograms of 64 bins and draws 4 pairs for each sample;
    //  - mutations are those of our space, and points that expand to one trace are one candidate;
    //  - the first batch already has 64 candidates, one of which is the default schedule;
    //  - samples of other tasks, if given, are used as in our method.
    Method published;
    published.name = "published";
    published.model.rounds = 100;
    published.model.min_child_weight = 1;
    published.chains = 128;
    published.steps = 500;
    published.patience = 30;
    published.evaluations = 128 * 500;
    published.elites = 0;
    published.relative_temperature = false;
    published.score_levels = 0;
    published.smallest_batch = published.largest_batch;
    published.without = {"program", "side", "main", "traffic", "estimate", "reuse"};
    methods->push_back(published);
    return methods;
  }();
  return *kMethods;
}

int BatchSize(const Method& method, int measured) {
  return std::clamp(static_cast<int>(measured * method.batch_share), method.smallest_batch,
                    method.largest_batch);
}

const Method* FindMethod(std::string_view name) {
  for (const Method& method : Methods()) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

}  // namespace heddle::cost_model
