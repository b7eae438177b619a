#include "scheduler/ledger/claims.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace heddle::scheduler {
namespace {

std::string Text(double ns) { return absl::FormatDuration(absl::Nanoseconds(ns)); }

}  // namespace

std::vector<BrokenRecord> FindBroken(const v1::CompareResult& result,
                                     const std::vector<ClaimedKernel>& kernels,
                                     const std::string& job) {
  std::vector<BrokenRecord> broken;
  for (const ClaimedKernel& kernel : kernels) {
    const auto found = std::find_if(result.tasks().begin(), result.tasks().end(),
                                    [&](const v1::CompareResult::Task& task) {
                                      return task.workload_key() == kernel.claim.workload_key();
                                    });
    if (found == result.tasks().end() || found->ns() <= 0 || kernel.claim.ns() <= 0) continue;
    const int uses = std::max(1, kernel.uses);
    const double least = found->gain().high() > 0
                             ? std::min(found->ns(), found->default_ns() / found->gain().high())
                             : found->ns();
    const bool known = kernel.untuned_ns > 0 && found->default_ns() > 0;
    const double slower =
        known ? std::max(1.0, found->default_ns() / (uses * kernel.untuned_ns)) : 1;
    const double margin = known ? kClaimMargin : kLooseClaimMargin;
    if (least <= uses * (margin * slower * kernel.claim.ns() + kClaimCallNs)) continue;
    BrokenRecord& out = broken.emplace_back();
    *out.claim.mutable_claim() = kernel.claim;
    out.claim.set_ns(found->ns() / uses);
    out.reason = absl::StrCat("it says ", Text(kernel.claim.ns()), ", but its kernel took ",
                              Text(found->ns() / uses), " in the module of ", job,
                              ", and the default one ", Text(found->default_ns() / uses));
  }
  return broken;
}

}  // namespace heddle::scheduler
