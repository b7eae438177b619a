#include "base/choose_trials.h"

namespace heddle {

std::vector<ChosenTrial> ChooseTrials(absl::Span<const double> medians_ns, int64_t most) {
  std::vector<ChosenTrial> chosen;
  const size_t count = medians_ns.size();
  const size_t wanted = most <= 0 ? 0 : static_cast<size_t>(most);
  size_t spread = 0;  // chosen by their place alone
  double best_ns = 0;
  for (size_t i = 0; i < count; ++i) {
    const double ns = medians_ns[i];
    const bool fastest = ns > 0 && (best_ns == 0 || ns < best_ns);
    if (fastest) best_ns = ns;
    // The k-th of them is at k * count / wanted, so there are `wanted` of them in all.
    const bool in_turn = count <= wanted || (spread < wanted && i * wanted >= spread * count);
    spread += in_turn;
    if (fastest || in_turn) chosen.push_back({i, fastest});
  }
  return chosen;
}

}  // namespace heddle
