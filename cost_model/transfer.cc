#include "cost_model/transfer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

#include "compiler/ir/status_macros.h"
#include "cost_model/features.h"

namespace heddle::cost_model {
namespace {

double Weight(size_t own) { return std::exp2(-static_cast<double>(own) / Transfer::kHalving); }

}  // namespace

Transfer::Transfer(const OtherTasks* others, const std::vector<size_t>& columns) {
  if (others == nullptr || others->empty()) return;
  std::map<int, std::vector<const Sample*>> groups;
  for (const Sample& s : *others) groups[s.group].push_back(&s);
  std::erase_if(groups, [](const auto& group) { return group.second.size() < 2; });
  while (groups.size() > kMaxSamples / 2) groups.erase(std::prev(groups.end()));
  for (const auto& [group, samples] : groups) {
    // Evenly over the search: late ones are of the candidates that it found to be good.
    const size_t count = std::min(samples.size(), kMaxSamples / groups.size());
    for (size_t i = 0; i < count; ++i) {
      const Sample& s = *samples[i * (samples.size() - 1) / (count - 1)];
      others_.push_back({Pick(s.features, columns), s.score, s.group});
    }
  }
}

bool Transfer::Active(size_t own) const {
  return !others_.empty() && !misleads_ && Weight(own) >= kLeastWeight;
}

void Transfer::Append(size_t own, std::vector<Sample>& training) const {
  if (!Active(own)) return;
  for (const Sample& s : others_) {
    training.push_back(s);
    training.back().weight = static_cast<float>(Weight(own));
  }
}

absl::Status Transfer::Judge(const std::vector<Sample>& own, const ModelSpec& spec, uint64_t seed) {
  size_t due = 0;
  for (const size_t n : kJudged) due = own.size() >= n ? n : due;
  if (due <= judged_ || !Active(own.size())) return absl::OkStatus();
  const auto same = [&](const Sample& s) { return s.score == own[0].score; };
  if (std::all_of(own.begin(), own.end(), same)) return absl::OkStatus();
  const std::unique_ptr<Model> model = MakeModel(spec, seed);
  HEDDLE_RETURN_IF_ERROR(model->Fit(others_));
  std::vector<std::vector<float>> features;
  for (const Sample& s : own) features.push_back(s.features);
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Estimate> found, model->Predict(features));
  double right = 0, all = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    for (size_t j = 0; j < own.size(); ++j) {
      if (own[i].score <= own[j].score) continue;
      all += 1;
      right += found[i].score > found[j].score ? 1 : found[i].score == found[j].score ? 0.5 : 0;
    }
  }
  judged_ = due;
  misleads_ = right <= kLeastPairs * all;
  return absl::OkStatus();
}

int Transfer::tasks() const {
  std::set<int> groups;
  for (const Sample& s : others_) groups.insert(s.group);
  return static_cast<int>(groups.size());
}

double Transfer::WeightAt(size_t own) const { return Active(own) ? Weight(own) : 0; }

void Transfer::Save(size_t features, BlobWriter& w) const {
  w.Unsigned(judged_);
  w.Unsigned(misleads_);
  w.Unsigned(others_.size());
  FeatureCoder coder(features);
  for (const Sample& s : others_) {
    w.Signed(s.group);
    w.Float(s.score);
    coder.Save(s.features, w);
  }
}

absl::StatusOr<Transfer> Transfer::Load(size_t features, BlobReader& r) {
  Transfer transfer;
  transfer.judged_ = r.Unsigned();
  transfer.misleads_ = r.Unsigned() != 0;
  const size_t count = r.Count();
  if (!r.ok() || count > kMaxSamples) {
    return absl::DataLossError("search state: malformed samples of others");
  }
  FeatureCoder coder(features);
  for (size_t i = 0; i < count && r.ok(); ++i) {
    Sample& s = transfer.others_.emplace_back();
    s.group = static_cast<int>(r.Signed());
    s.score = r.Float();
    s.features = coder.Load(r);
    // Group 0 is the search's own; a model takes no other scores.
    if (s.group <= 0 || !(s.score >= 0 && s.score <= 1)) {
      return absl::DataLossError("search state: malformed samples of others");
    }
  }
  return transfer;
}

}  // namespace heddle::cost_model
