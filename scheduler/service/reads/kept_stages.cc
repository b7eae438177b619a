#include "scheduler/service/reads/kept_stages.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/status_macros.h"

namespace heddle::scheduler {

KeptStages::KeptStages(Options options) : options_(std::move(options)) {}

absl::StatusOr<KeptStages::Spans> KeptStages::Latest(const std::string& list) {
  const absl::Time now = options_.now();
  Kept kept = Take(list);
  if (now - kept.read_all >= kKept) {
    kept = Kept{};
    kept.read_all = now;
  }
  const int64_t open =
      options_.first_open == nullptr ? std::numeric_limits<int64_t>::max() : options_.first_open();
  HEDDLE_ASSIGN_OR_RETURN(Spans later, options_.read(list, kept.from));
  std::erase_if(kept.spans,
                [&](const v1::StageSpan& span) { return options_.place(span) >= kept.from; });
  std::move(later.begin(), later.end(), std::back_inserter(kept.spans));
  if (kept.spans.size() > options_.most) {
    kept.spans.erase(kept.spans.begin(),
                     kept.spans.end() - static_cast<std::ptrdiff_t>(options_.most));
  }
  kept.from = std::min(open, FirstThatMayChange(kept.spans));
  Spans spans = kept.spans;
  Keep(list, std::move(kept));
  return spans;
}

int64_t KeptStages::FirstThatMayChange(const Spans& spans) const {
  if (spans.empty()) return 0;
  const int64_t late = options_.place(spans.back()) - options_.late;
  const auto runs = std::find_if(spans.begin(), spans.end(),
                                 [](const v1::StageSpan& span) { return span.end_unix_ns() == 0; });
  return std::max<int64_t>(0, runs == spans.end() ? late : std::min(late, options_.place(*runs)));
}

KeptStages::Kept KeptStages::Take(const std::string& list) {
  absl::MutexLock lock(&mutex_);
  const auto found = kept_.find(list);
  if (found == kept_.end()) return {};
  Kept kept = std::move(found->second);
  spans_ -= kept.spans.size();
  kept_.erase(found);
  return kept;
}

void KeptStages::Keep(const std::string& list, Kept kept) {
  absl::MutexLock lock(&mutex_);
  kept.asked = ++asked_;
  Kept& place = kept_[list];  // another look at the list may have kept it meanwhile
  spans_ += kept.spans.size();
  spans_ -= place.spans.size();
  place = std::move(kept);
  while (spans_ > kMostKept) {
    const auto oldest = std::min_element(
        kept_.begin(), kept_.end(),
        [](const auto& a, const auto& b) { return a.second.asked < b.second.asked; });
    spans_ -= oldest->second.spans.size();
    kept_.erase(oldest);
  }
}

}  // namespace heddle::scheduler
