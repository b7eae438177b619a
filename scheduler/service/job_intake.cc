#include "scheduler/service/job_intake.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"

namespace heddle::scheduler {

absl::Status JobIntake::CheckRoom(int64_t model_bytes) const {
  if (model_bytes > limits_.max_model_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the model is over this service's limit of ",
                                                     limits_.max_model_bytes >> 20,
                                                     " MiB (heddle-scheduler --max-model-mib)"));
  }
  if (const int64_t free_bytes = blobs_->FreeBytes(); free_bytes < kDiskReserveBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the disk of the scheduler's data directory has ", free_bytes >> 20,
        " MiB left, and the last ", kDiskReserveBytes >> 20,
        " are kept for the database, so the service takes no models; free some space"));
  }
  if (const int64_t free_files = blobs_->FreeFiles(); free_files < kDiskReserveFiles) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the disk of the scheduler's data directory has room for ", free_files,
        " files, and the last ", kDiskReserveFiles,
        " are kept for the database, so the service takes no models; remove some files"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<void>> JobIntake::Admit(const Identity& caller,
                                                       const std::string& submit_key,
                                                       v1::JobSpec* spec) {
  // Whose job it is follows from who calls. Only on this machine is the caller taken at its word.
  if (caller.role != Role::kLocal) spec->set_user(caller.tenant);
  HEDDLE_RETURN_IF_ERROR(JobLedger::ParamsFrom(*spec, MonotonicNow(), absl::Now()).status());
  // A submission that is sent again makes no further job.
  if (!submit_key.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(const std::optional<JobRow> known,
                            store_->FindSubmitted(spec->user(), submit_key));
    if (known) return std::shared_ptr<void>();
  }
  HEDDLE_RETURN_IF_ERROR(
      jobs_a_day_.Check(caller.tenant, 1, MonotonicNow(),
                        absl::StrCat("submitted ", limits_.max_jobs_a_day,
                                     " jobs (heddle-scheduler --max-jobs-a-day)")));
  return ClaimPlace(spec->user());
}

void JobIntake::Submitted(const Identity& caller, bool fresh, const ModelDigests& model,
                          const v1::BlobList& parts) {
  if (fresh) jobs_a_day_.Take(caller.tenant, 1, MonotonicNow());
  uploads_.Refer(model.file);
  for (const v1::BlobRef& part : parts.blobs()) uploads_.Refer(part.sha256());
}

absl::StatusOr<std::shared_ptr<void>> JobIntake::ClaimPlace(const std::string& user) {
  absl::MutexLock lock(&mutex_);
  int all = 0, of_user = 0;
  for (const auto& [claimant, places] : claimed_) {
    all += places;
    if (claimant == user) of_user += places;
  }
  for (const std::shared_ptr<const v1::Job>& job : loop_->jobs().Unfinished()) {
    ++all;
    of_user += job->spec().user() == user;
  }
  if (all >= limits_.max_jobs || of_user >= limits_.max_jobs_of_user) {
    return absl::ResourceExhaustedError(
        absl::StrCat(of_user >= limits_.max_jobs_of_user
                         ? absl::StrCat("you have ", of_user, " unfinished jobs")
                         : absl::StrCat("the service has ", all, " unfinished jobs"),
                     ", as many as it allows; submit again when some have ended, or cancel "
                     "some (heddle jobs lists them)"));
  }
  ++claimed_[user];
  return std::shared_ptr<void>(this, [this, user](void*) {
    absl::MutexLock unclaim(&mutex_);
    const auto claimed = claimed_.find(user);
    if (--claimed->second == 0) claimed_.erase(claimed);
  });
}

}  // namespace heddle::scheduler
