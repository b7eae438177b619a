// What searches leave for other workers: their states, transfer samples, and models (cost_model). The first byte chooses what the
// rest is. All are sealed with a checksum, which is made here: a fuzzer finds none.
//
// Models of XGBoost are not reached: their own seal lies inside that of a state, and the library that reads them is not ours.
#include <map>
#include <memory>
#include <string>

#include "cost_model/blob.h"
#include "cost_model/model/model.h"
#include "cost_model/search.h"
#include "cost_model/search/methods.h"
#include "cost_model/transfer/transfer_samples.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/search_task.h"

namespace heddle::fuzz {
namespace {

using cost_model::Search;

constexpr size_t kVersionBytes = 4;
constexpr int kProposed = 3;

// `payload` in the seal of `like`, a sealed blob whose magic word has `magic` bytes.
std::string Sealed(std::string_view like, size_t magic, std::string_view payload) {
  uint32_t version = 0;
  for (size_t i = 0; i < kVersionBytes; ++i)
    version |= uint32_t{static_cast<uint8_t>(like[magic + i])} << (8 * i);
  return cost_model::Seal(like.substr(0, magic), version, payload);
}

void RestoreState(const std::string& strategy, std::string_view payload) {
  // Searches cost more than refusals, which leave them as they are.
  static auto& searches = *new std::map<std::string, std::unique_ptr<Search>>;
  std::unique_ptr<Search>& search = searches[strategy];
  if (search == nullptr) search = MakeFuzzSearch(strategy);
  constexpr size_t kMagic = std::string_view("HDLSEARCH").size();
  if (!search->Restore(Sealed(search->Save(), kMagic, payload)).ok()) return;
  const std::string saved = search->Save();
  std::unique_ptr<Search> again = MakeFuzzSearch(strategy);
  Require(again->Restore(saved).ok(), "a restored search can be saved and restored");
  (void)search->Report();
  (void)search->TransferSamples();
  const auto proposed = search->Propose(kProposed);
  if (proposed.ok()) {
    std::vector<cost_model::Result> results;
    for (const cost_model::Candidate& candidate : *proposed)
      results.push_back({candidate.trace, results.empty(), 1e-3});
    (void)search->Update(results);
  }
  search = nullptr;
}

void ReadModel(std::string_view payload) {
  const cost_model::ModelSpec spec = cost_model::FindMethod("attention")->model;
  constexpr size_t kMagic = 8;
  const std::string like = cost_model::MakeModel(spec, 0)->Serialize();
  const auto model = cost_model::ParseModel(Sealed(like, kMagic, payload), spec, 0);
  if (!model.ok()) return;
  (void)(*model)->Importance();
  for (const size_t columns : {size_t{0}, size_t{1}, size_t{100}}) {
    const std::vector<std::vector<float>> rows(2, std::vector<float>(columns, 0.5F));
    (void)(*model)->Predict(rows);
  }
}

void ReadSamples(std::string_view payload) {
  constexpr size_t kMagic = 8;
  const std::string like = cost_model::PackTransferSamples(FuzzSamples());
  const cost_model::RelatedSamples entry{Sealed(like, kMagic, payload), 0.5};
  const cost_model::OtherTasks tasks = cost_model::JoinTransferSamples({&entry, 1});
  if (tasks.size() < 2) return;
  (void)cost_model::PackTransferSamples(tasks);
}

}  // namespace

void Run(std::string_view input) {
  static constexpr const char* kStrategies[] = {"random", "grid", "genetic", "attention",
                                                "annealing"};
  const unsigned mode = TakeByte(&input) % (std::size(kStrategies) + 2);
  if (mode < std::size(kStrategies)) return RestoreState(kStrategies[mode], input);
  if (mode == std::size(kStrategies)) return ReadModel(input);
  ReadSamples(input);
}

}  // namespace heddle::fuzz
