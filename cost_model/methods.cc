#include "cost_model/methods.h"

#include <algorithm>

namespace heddle::cost_model {

std::span<const Method> Methods() {
  static const std::vector<Method>* const kMethods = [] {
    auto* methods = new std::vector<Method>;
    Method annealing;
    annealing.name = "annealing";
    // On replay tables trees of depth 3 find as much as those of depth 6 and are fitted four times
    // as fast; relation features rank candidates of other operators better, not those of one's own.
    annealing.model.depth = 3;
    annealing.without_alone = {"relation"};
    methods->push_back(annealing);
    Method regression = annealing;
    regression.name = "regression";
    regression.model.objective = Objective::kRegression;
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
    Method bound = improvement;
    bound.name = "ensemble-ucb";
    bound.acquisition = Acquisition::kUpperBound;
    methods->push_back(bound);
    // AutoTVM's constants; of its features the context of loops and accesses.
    Method published = annealing;
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
    published.without_alone = {};
    published.without = {"program", "side", "main", "traffic"};
    methods->push_back(published);
    return methods;
  }();
  return *kMethods;
}

int BatchSize(const Method& method, int measured) {
  return std::clamp(measured / 8, method.smallest_batch, method.largest_batch);
}

const Method* FindMethod(std::string_view name) {
  for (const Method& method : Methods()) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

}  // namespace heddle::cost_model
