// The names of the search strategies. MakeSearch in cost_model/search.h makes a search from a name.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace heddle {

// The first one is the default.
inline constexpr std::string_view kStrategies[] = {
    "annealing", "regression", "evolutionary", "ensemble-ei", "ensemble-ucb",
    "attention", "published",  "genetic",      "grid",        "random"};

inline bool IsStrategy(std::string_view name) {
  return std::find(std::begin(kStrategies), std::end(kStrategies), name) != std::end(kStrategies);
}

// The strategy that a job asks for: empty means the default.
inline std::string StrategyOrDefault(std::string_view name) {
  return std::string(name.empty() ? kStrategies[0] : name);
}

// "annealing, .. or random".
inline std::string StrategyList() {
  std::string list;
  for (const std::string_view& name : kStrategies) {
    const bool last = &name + 1 == std::end(kStrategies);
    list += (list.empty() ? "" : last ? " or " : ", ") + std::string(name);
  }
  return list;
}

}  // namespace heddle
