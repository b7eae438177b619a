#include "cost_model/transfer/transfer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "base/status_macros.h"

namespace heddle::cost_model {

double PairsInOrder(const std::vector<Sample>& samples, const std::vector<float>& thought) {
  double right = 0, all = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    for (size_t j = 0; j < samples.size(); ++j) {
      if (samples[i].score <= samples[j].score) continue;
      all += 1;
      right += thought[i] > thought[j] ? 1 : thought[i] == thought[j] ? 0.5 : 0;
    }
  }
  return all > 0 ? right / all : 1;
}

std::vector<Sample> Transfer::Choose(const OtherTasks& others) {
  std::map<int, std::vector<const Sample*>> groups;
  for (const Sample& s : others) groups[s.group].push_back(&s);
  std::erase_if(groups, [](const auto& group) { return group.second.size() < 2; });
  while (groups.size() > kMaxSamples / 2) groups.erase(std::prev(groups.end()));
  std::vector<Sample> chosen;
  for (const auto& [group, samples] : groups) {
    // Spread evenly over the search, because its later samples are mostly good candidates.
    const size_t count = std::min(samples.size(), kMaxSamples / groups.size());
    for (size_t i = 0; i < count; ++i) {
      chosen.push_back(*samples[i * (samples.size() - 1) / (count - 1)]);
    }
  }
  return chosen;
}

Transfer::Transfer(const ModelSpec& spec, uint64_t seed)
    : spec_(spec), seed_(seed), model_(MakeModel(spec, seed)) {}

absl::Status Transfer::Learn(const std::vector<Sample>& samples) {
  if (samples.empty()) return absl::OkStatus();
  HEDDLE_RETURN_IF_ERROR(model_->Fit(samples));
  std::set<int> groups;
  for (const Sample& s : samples) groups.insert(s.group);
  tasks_ = static_cast<int>(groups.size());
  samples_ = static_cast<int>(samples.size());
  return absl::OkStatus();
}

absl::Status Transfer::Learn(PagedSamples* samples, const std::string& folder) {
  HEDDLE_ASSIGN_OR_RETURN(model_, FitToSource(spec_, seed_, samples, folder));
  tasks_ = samples->tasks();
  samples_ = samples->samples();
  return absl::OkStatus();
}

double Transfer::TrustAt(size_t own) const {
  const double trust = Active() ? std::exp2(-static_cast<double>(own) / kHalving) : 0;
  return trust < kLeastTrust ? 0 : trust;
}

absl::StatusOr<std::vector<float>> Transfer::Predict(
    std::span<const std::vector<float>> features) const {
  std::vector<float> scores(features.size());
  if (!Active()) return scores;
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Estimate> found, model_->Predict(features));
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = found[i].score;
  return scores;
}

absl::Status Transfer::Validate(const std::vector<Sample>& own) {
  size_t due = 0;
  for (const size_t n : kValidatedAt) due = own.size() >= n ? n : due;
  if (due <= validated_ || !Active()) return absl::OkStatus();
  const auto same = [&](const Sample& s) { return s.score == own[0].score; };
  if (std::all_of(own.begin(), own.end(), same)) return absl::OkStatus();
  std::vector<std::vector<float>> features;
  for (const Sample& s : own) features.push_back(s.features);
  HEDDLE_ASSIGN_OR_RETURN(std::vector<float> thought, Predict(features));
  for (size_t i = 0; i < own.size(); ++i) thought[i] += own[i].prior;
  validated_ = due;
  misleads_ = PairsInOrder(own, thought) <= kLeastPairs;
  return absl::OkStatus();
}

void Transfer::Save(BlobWriter& w) const {
  w.Unsigned(static_cast<uint64_t>(tasks_));
  w.Unsigned(static_cast<uint64_t>(samples_));
  w.Unsigned(validated_);
  w.Unsigned(misleads_);
  w.Bytes(model_->trained() ? model_->Serialize() : "");
}

absl::Status Transfer::Load(BlobReader& r) {
  Transfer read(spec_, seed_);
  read.tasks_ = static_cast<int>(r.Unsigned());
  read.samples_ = static_cast<int>(r.Unsigned());
  read.validated_ = r.Unsigned();
  read.misleads_ = r.Unsigned() != 0;
  const std::string_view bytes = r.Bytes();
  if (!r.ok()) return absl::DataLossError("search state: malformed model of others");
  if (!bytes.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(read.model_, ParseModel(bytes, spec_, seed_));
  }
  *this = std::move(read);
  return absl::OkStatus();
}

}  // namespace heddle::cost_model
