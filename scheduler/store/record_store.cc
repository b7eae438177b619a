#include "scheduler/store/record_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/quantiles.h"
#include "base/sha256.h"
#include "base/vocabulary/target.h"

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

void MarkCollected(int64_t unix_ns, v1::Job* job) {
  job->set_collected_unix_ns(unix_ns);
  job->clear_model_digest();
  job->clear_parts_digest();
  job->clear_module_digest();
  job->clear_default_digest();
  job->clear_other_digest();
  job->clear_other_default_digest();
  job->add_warnings(
      absl::StrCat("its model, module and raw measurements were collected on ",
                   absl::FormatTime("%Y-%m-%d", absl::FromUnixNanos(unix_ns), absl::UTCTimeZone()),
                   "; submit the model again for a module"));
}

v1::Measurement Thinned(const v1::Measurement& measured) {
  v1::Measurement thin;
  thin.set_outcome(measured.outcome());
  thin.set_message(measured.message());
  const auto& samples = measured.samples_ns();
  if (!samples.empty()) thin.add_samples_ns(Median({samples.begin(), samples.end()}));
  thin.set_build_ns(measured.build_ns());
  thin.set_profile_ns(measured.profile_ns());
  if (measured.has_evidence()) {
    thin.mutable_evidence()->set_worker(measured.evidence().worker());
    thin.mutable_evidence()->set_toolchain(measured.evidence().toolchain());
  }
  return thin;
}

absl::Status NotFinished(int64_t job) {
  return absl::FailedPreconditionError(
      absl::StrCat("job ", JobName(job), " has not ended, so it is not collected"));
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

absl::Status NotLeading(const Leader& leader, int64_t epoch) {
  return absl::AbortedError(absl::StrCat(
      "another scheduler leads since (",
      leader.address.empty() ? "it has ended again" : absl::StrCat("at ", leader.address),
      ", epoch ", leader.epoch, "; this one had ", epoch, "), so this one may write nothing more"));
}

absl::Status StaleFence(const Fence& fence, uint64_t seen) {
  return absl::FailedPreconditionError(absl::StrCat("fencing token ", fence.token, " of ",
                                                    fence.slot.worker, "/", fence.slot.slot,
                                                    " is older than ", seen));
}

std::string RecordDigest(const v1::Record& record) {
  std::string text;  // hashed at once, since each record that comes is
  const auto add = [&text](absl::string_view part) {
    absl::StrAppend(&text, part.size(), ":", part);
  };
  for (const std::string* part :
       {&record.workload_key(), &record.target(), &record.device_key(), &record.trace()})
    add(*part);
  add(absl::StrCat(record.created_unix_ns(), "/", record.measurement().outcome()));
  for (double sample : record.measurement().samples_ns()) add(absl::StrCat(sample));
  Sha256 hash;
  hash.Update(text);
  return hash.Raw();
}

}  // namespace heddle::scheduler
