// Transfer samples: a bounded number of a search's samples, from which searches of other tasks
// learn. They are sealed with the version of the features. The service keeps the latest ones of
// each task, so that a transfer model can choose the first batch of a new task.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cost_model/model/model.h"
#include "cost_model/search.h"
#include "cost_model/search/candidate_space.h"

namespace heddle::cost_model {

// Keeps the packed samples well under 64 KiB.
inline constexpr size_t kMaxTransferSamples = 128;

// Packs the samples of one task, given in order of arrival, with features of the whole table and
// scores in steps of 1 / kScoreLevels. Packs all of them, or kMaxTransferSamples spread evenly over
// them. Empty if there are fewer than two samples.
std::string PackTransferSamples(const std::vector<Sample>& samples);

// The version that PackTransferSamples writes; JoinTransferSamples accepts no other.
int TransferSamplesVersion();

// Unpacks the samples of each task, with its weight. Tasks become groups, numbered from 1. Entries
// that are damaged, have features of another version or a weight outside (0, 1] are skipped.
OtherTasks JoinTransferSamples(std::span<const RelatedSamples> transfer_samples);

// The samples of pages as a source of a fit. A page with usable tasks is a block; features are those
// of `columns`.
class PagedSamples final : public SampleSource {
 public:
  // `pages` must outlive it.
  PagedSamples(SamplePages* pages, std::vector<size_t> columns)
      : pages_(pages), columns_(std::move(columns)) {}

  absl::Status Rewind() override;
  absl::Status Next(std::vector<Sample>* block) override;

  // Usable ones in all pages, once they were read to the end.
  int tasks() const { return all_.tasks; }
  int samples() const { return all_.samples; }

 private:
  struct Counts {
    int tasks = 0, samples = 0;
  };
  SamplePages* const pages_;
  const std::vector<size_t> columns_;
  Counts pass_;  // of the current pass until now
  Counts all_;   // of the last complete one
};

}  // namespace heddle::cost_model
