#include "cost_model/transfer/transfer_samples.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/status_macros.h"
#include "cost_model/blob.h"
#include "cost_model/features/features.h"
#include "cost_model/model/samples.h"

namespace heddle::cost_model {
namespace {

constexpr std::string_view kSamplesMagic = "HDLEXPER";
constexpr uint32_t kSamplesVersion = 1;  // 1..1000, so that TransferSamplesVersion() is unique

// Empty unless everything in `bytes` is valid.
OtherTasks Unpack(std::string_view bytes, int group) {
  const absl::StatusOr<std::string_view> payload = Unseal(kSamplesMagic, kSamplesVersion, bytes);
  if (!payload.ok()) return {};
  BlobReader r(*payload);
  if (r.Unsigned() != static_cast<uint64_t>(kFeatureVersion)) return {};
  const size_t count = r.Count();
  if (count > kMaxTransferSamples) return {};
  OtherTasks samples;
  FeatureCoder coder(FeatureTable().size());
  for (size_t i = 0; i < count && r.ok(); ++i) {
    Sample& sample = samples.emplace_back();
    sample.score = static_cast<float>(r.Unsigned()) / kScoreLevels;
    sample.features = coder.Load(r);
    sample.group = group;
    if (sample.score > 1) return {};
  }
  return r.AtEnd() ? samples : OtherTasks();
}

}  // namespace

std::string PackTransferSamples(const std::vector<Sample>& samples) {
  if (samples.size() < 2) return {};
  const size_t count = std::min(samples.size(), kMaxTransferSamples);
  BlobWriter w;
  w.Unsigned(static_cast<uint64_t>(kFeatureVersion));
  w.Unsigned(count);
  FeatureCoder coder(FeatureTable().size());
  for (size_t i = 0; i < count; ++i) {
    const Sample& sample = samples[i * (samples.size() - 1) / (count - 1)];
    w.Unsigned(static_cast<uint64_t>(std::lround(sample.score * kScoreLevels)));
    coder.Save(sample.features, w);
  }
  return Seal(kSamplesMagic, kSamplesVersion, std::move(w).Take());
}

int TransferSamplesVersion() { return static_cast<int>(kSamplesVersion) + 1000 * kFeatureVersion; }

OtherTasks JoinTransferSamples(std::span<const RelatedSamples> transfer_samples) {
  OtherTasks all;
  int group = 0;
  for (const RelatedSamples& transfer_samples : transfer_samples) {
    if (!(transfer_samples.weight > 0 && transfer_samples.weight <= 1)) continue;
    OtherTasks samples = Unpack(transfer_samples.samples, group + 1);
    if (samples.empty()) continue;
    ++group;
    for (Sample& sample : samples) sample.weight = static_cast<float>(transfer_samples.weight);
    std::move(samples.begin(), samples.end(), std::back_inserter(all));
  }
  return all;
}

absl::Status PagedSamples::Rewind() {
  pass_ = {};
  return pages_->Rewind();
}

absl::Status PagedSamples::Next(std::vector<Sample>* block) {
  block->clear();
  while (block->empty()) {  // a page without any usable task is not the end
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<RelatedSamples> page, pages_->Next());
    if (page.empty()) {
      all_ = pass_;
      return absl::OkStatus();
    }
    *block = JoinTransferSamples(page);
  }
  pass_.tasks += block->back().group;  // groups count from 1
  pass_.samples += static_cast<int>(block->size());
  for (Sample& sample : *block) sample.features = Pick(sample.features, columns_);
  return absl::OkStatus();
}

}  // namespace heddle::cost_model
