#include "scheduler/store/record_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/sha256.h"
#include "base/target.h"

namespace heddle::scheduler {

std::string JobName(int64_t id) { return id == 0 ? "" : absl::StrCat("j", id); }

int64_t ParseJobName(const std::string& name) {
  int64_t id = 0;
  if (name.size() < 2 || name[0] != 'j' || !absl::SimpleAtoi(name.substr(1), &id) || id < 1)
    return 0;
  return id;
}

JobBlobs BlobsOf(const JobRow& row) {
  const v1::Job& job = row.job;
  JobBlobs used{row.id, {}, job.parts_digest()};
  for (const std::string& digest :
       {job.model_digest(), job.parts_digest(), job.module_digest(), job.default_digest(),
        job.other_digest(), job.other_default_digest()}) {
    if (!digest.empty()) used.blobs.push_back(digest);
  }
  return used;
}

int64_t QueryLimit(const v1::RecordQuery& query) {
  constexpr int64_t kDefault = 1000;
  return query.limit() <= 0 ? kDefault : std::min(query.limit(), kMaxQueryLimit);
}

bool Replaces(const v1::TransferSamples& made, const v1::TransferSamples& old) {
  if (made.samples().empty()) return false;
  if (made.version() < old.version()) return made.measured() > old.measured();
  return made.version() > old.version() || made.measured() >= old.measured();
}

Relatedness RelatednessOf(const WorkloadId& transfer_samples, const WorkloadId& search) {
  if (KindOf(transfer_samples.target) != KindOf(search.target)) return Relatedness::kNone;
  if (transfer_samples.device_key != search.device_key) return Relatedness::kTarget;
  if (transfer_samples.target != search.target) return Relatedness::kDevice;
  return transfer_samples.key == search.key ? Relatedness::kNone : Relatedness::kSame;
}

bool Nearer(const WorkloadId& a, const WorkloadId& b, const WorkloadId& search) {
  const auto nearness = [&](const WorkloadId& id) {
    return std::make_pair(id.key == search.key, RelatednessOf(id, search));
  };
  return nearness(a) > nearness(b);
}

std::optional<Fence> FenceOf(const InsertRecord& change) {
  const v1::Evidence& evidence = change.record.measurement().evidence();
  if (evidence.slot().empty()) return std::nullopt;
  return Fence{{evidence.worker(), evidence.slot()}, change.fencing_token};
}

absl::Status StaleFence(const Fence& fence, uint64_t seen) {
  return absl::FailedPreconditionError(absl::StrCat("fencing token ", fence.token, " of ",
                                                    fence.slot.worker, "/", fence.slot.slot,
                                                    " is older than ", seen));
}

std::string RecordDigest(const v1::Record& record) {
  Sha256 hash;
  auto add = [&](const std::string& text) {
    hash.Update(absl::StrCat(text.size(), ":"));
    hash.Update(text);
  };
  for (const std::string& part :
       {record.workload_key(), record.target(), record.device_key(), record.trace()})
    add(part);
  add(absl::StrCat(record.created_unix_ns(), "/", record.measurement().outcome()));
  for (double sample : record.measurement().samples_ns()) add(absl::StrCat(sample));
  return hash.Raw();
}

}  // namespace heddle::scheduler
