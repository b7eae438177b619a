#include "base/vocabulary/choose_trials.h"

namespace heddle {

std::vector<ChosenTrial> ChooseTrials(absl::Span<const double> medians_ns, int64_t most) {
  std::vector<ChosenTrial> chosen;
  const size_t count = medians_ns.size();
  const size_t wanted = most <= 0 ? 0 : static_cast<size_t>(most);
  std::vector<size_t> fastest;  // those that were so far
  for (size_t i = 0; i < count; ++i) {
    const double ns = medians_ns[i];
    if (ns > 0 && (fastest.empty() || ns < medians_ns[fastest.back()])) fastest.push_back(i);
  }
  const size_t improved = fastest.size();
  size_t seen = 0, kept = 0;  // of these
  size_t spread = 0;          // chosen by their place alone
  for (size_t i = 0; i < count; ++i) {
    const bool is_fastest = seen < improved && fastest[seen] == i;
    // The k-th of those kept is at k * (improved - 1) / (kMostFastest - 1), so the last is the last.
    const bool keep = is_fastest && (improved <= kMostFastest ||
                                     seen * (kMostFastest - 1) >= kept * (improved - 1));
    seen += is_fastest;
    kept += keep;
    // The k-th of them is at k * count / wanted, so there are `wanted` of them in all.
    const bool in_turn = count <= wanted || (spread < wanted && i * wanted >= spread * count);
    spread += in_turn;
    if (keep || in_turn) chosen.push_back({i, is_fastest});
  }
  return chosen;
}

}  // namespace heddle
