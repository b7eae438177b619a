#include "scheduler/service/stages/sample_pages.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "base/vocabulary/target.h"
#include "scheduler/ledger/stage_order.h"

namespace heddle::scheduler {
namespace {

constexpr int64_t kRead = 64;                        // tasks, in one read
constexpr int kMostOfPage = 64;                      // tasks, as SamplePage says
constexpr size_t kMostOpenBytes = size_t{32} << 20;  // of pages that are not written yet

// One page in sixteen tasks ends with this one, whatever comes before or after it.
bool EndsPage(const WorkloadId& task) { return task.key.ends_with('0'); }

// Joins the samples of tasks, as they come, to pages.
class Pages {
 public:
  Pages(const WorkloadId& search, BlobStore* blobs) : search_(search), blobs_(blobs) {}

  absl::Status Add(const TransferSamples& task) {
    const Relatedness related = RelatednessOf(task.workload, search_);
    if (related == Relatedness::kNone || task.learned.samples().empty()) return absl::OkStatus();
    const Origin origin = {task.workload.target, task.workload.device_key};
    Open& page = open_[origin];
    page.weight = WeightOf(related);
    page.page.add_samples(task.learned.samples());
    open_bytes_ += task.learned.samples().size();
    ++made_.tasks;
    made_.measured += task.learned.measured();
    if (EndsPage(task.workload) || page.page.samples_size() == kMostOfPage) {
      HEDDLE_RETURN_IF_ERROR(Write(page));
      open_.erase(origin);
    }
    return open_bytes_ > kMostOpenBytes ? WriteAll() : absl::OkStatus();
  }

  absl::Status WriteAll() {
    for (const auto& [origin, page] : open_) HEDDLE_RETURN_IF_ERROR(Write(page));
    open_.clear();
    open_bytes_ = 0;
    return absl::OkStatus();
  }

  int tasks() const { return made_.tasks; }
  SamplePages Take() && { return std::move(made_); }

 private:
  struct Open {
    v1::SamplePage page;
    double weight = 0;
  };
  using Origin = std::pair<std::string, std::string>;  // target and device key

  absl::Status Write(const Open& open) {
    for (const std::string& samples : open.page.samples()) open_bytes_ -= samples.size();
    SamplePages::Page made;
    HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<BlobStore::Writer> writer, blobs_->NewWriter());
    HEDDLE_RETURN_IF_ERROR(writer->Append(open.page.SerializeAsString()));
    made.bytes = writer->size_bytes();
    HEDDLE_ASSIGN_OR_RETURN(const std::string digest, writer->Commit(""));
    made.ref.set_sha256(digest);
    made.ref.set_weight(open.weight);
    made_.pages.push_back(std::move(made));
    return absl::OkStatus();
  }

  const WorkloadId search_;
  BlobStore* const blobs_;
  std::map<Origin, Open> open_;
  size_t open_bytes_ = 0;
  SamplePages made_;
};

}  // namespace

absl::StatusOr<SamplePages> MakeSamplePages(RecordStore* store, const WorkloadId& search, int most,
                                            BlobStore* blobs) {
  // They are read again only by workers, so the database needs the space more.
  constexpr int64_t kLeftForOthers = int64_t{256} << 20;
  if (blobs->FreeBytes() < kLeftForOthers)
    return absl::ResourceExhaustedError("the disk has no room for pages of transfer samples");
  Pages pages(search, blobs);
  std::optional<WorkloadId> after;
  while (pages.tasks() < most) {
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<TransferSamples> read,
                            store->SamplesAfter(std::string(KindOf(search.target)), after, kRead));
    if (read.empty()) break;
    for (const TransferSamples& task : read) {
      if (pages.tasks() < most) HEDDLE_RETURN_IF_ERROR(pages.Add(task));
    }
    after = read.back().workload;
  }
  HEDDLE_RETURN_IF_ERROR(pages.WriteAll());
  return std::move(pages).Take();
}

std::unique_ptr<FitsToAll::Claim> FitsToAll::Take(const TransferModelId& id) {
  absl::MutexLock lock(&mutex_);
  absl::Time& next = next_.try_emplace(id, absl::InfinitePast()).first->second;
  if (MonotonicNow() < next) return nullptr;
  next = absl::InfiniteFuture();
  return std::make_unique<Claim>(this, id);
}

void FitsToAll::End(const TransferModelId& id, bool failed) {
  absl::MutexLock lock(&mutex_);
  if (failed) {
    next_[id] = MonotonicNow() + kPause;
  } else {
    next_.erase(id);
  }
}

}  // namespace heddle::scheduler
