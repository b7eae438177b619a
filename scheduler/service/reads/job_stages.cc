#include "scheduler/service/reads/job_stages.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/status_macros.h"

namespace heddle::scheduler {
namespace {

// The start of the first stage that runs; if none does, of the last one.
int64_t FirstThatMayChange(const JobStages::Spans& spans) {
  for (const v1::StageSpan& span : spans) {
    if (span.end_unix_ns() == 0) return span.start_unix_ns();
  }
  return spans.empty() ? 0 : spans.back().start_unix_ns();
}

}  // namespace

JobStages::JobStages(Read read, size_t most_spans, std::function<absl::Time()> now)
    : read_(std::move(read)), most_spans_(most_spans), now_(std::move(now)) {}

absl::StatusOr<JobStages::Spans> JobStages::Latest(const std::string& job) {
  const absl::Time now = now_();
  Kept kept = Take(job);
  if (now - kept.read_all >= kKept) {
    kept = Kept{};
    kept.read_all = now;
  }
  HEDDLE_ASSIGN_OR_RETURN(Spans later, read_(job, kept.since_unix_ns));
  std::erase_if(kept.spans, [&](const v1::StageSpan& span) {
    return span.start_unix_ns() >= kept.since_unix_ns;
  });
  std::move(later.begin(), later.end(), std::back_inserter(kept.spans));
  if (kept.spans.size() > most_spans_) {
    kept.spans.erase(kept.spans.begin(),
                     kept.spans.end() - static_cast<std::ptrdiff_t>(most_spans_));
  }
  kept.since_unix_ns = FirstThatMayChange(kept.spans);
  Spans spans = kept.spans;
  Keep(job, std::move(kept));
  return spans;
}

JobStages::Kept JobStages::Take(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  const auto found = kept_.find(job);
  if (found == kept_.end()) return {};
  Kept kept = std::move(found->second);
  spans_ -= kept.spans.size();
  kept_.erase(found);
  return kept;
}

void JobStages::Keep(const std::string& job, Kept kept) {
  absl::MutexLock lock(&mutex_);
  kept.asked = ++asked_;
  Kept& place = kept_[job];  // another look at the job may have kept it meanwhile
  spans_ += kept.spans.size() - place.spans.size();
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
