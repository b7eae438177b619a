#include "scheduler/sim/decision_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace heddle::sim {
namespace {

using namespace heddle::scheduler;  // NOLINT: the simulator is the scheduler's own

std::string Instant(absl::Time time) {
  return time == absl::InfiniteFuture() ? "never" : absl::StrCat(absl::ToUnixNanos(time));
}

template <typename Id>
std::string Maybe(const std::optional<Id>& id) {
  return id ? absl::StrCat(id->value) : "-";
}

struct ChangeText {
  std::string operator()(const AddCandidates& d) const {
    return absl::StrCat("add ", d.job.value, " ", d.task.value, " ", d.first.value, " ", d.count);
  }
  std::string operator()(const SetAttempts& d) const {
    return absl::StrCat("attempts ", d.job.value, " ", d.candidate.value, " ", d.attempts);
  }
  std::string operator()(const FinishCandidate& d) const {
    return absl::StrCat("finish ", d.job.value, " ", d.task.value, " ", d.candidate.value, " ",
                        d.attempt, " ", d.stage.value, " ", static_cast<int>(d.outcome), " ",
                        d.message);
  }
  std::string operator()(const DropArtifacts& d) const {
    std::string text = absl::StrCat("drop ", d.job.value);
    for (CandidateId id : d.candidates) absl::StrAppend(&text, " ", id.value);
    return text;
  }
  std::string operator()(const MarkLearned& d) const {
    return absl::StrCat("learned ", d.job.value, " ", d.task.value, " ", d.before.value);
  }
  std::string operator()(const TaskChanged& d) const {
    return absl::StrCat("task ", d.job.value, " ", d.task.value);
  }
  std::string operator()(const JobChanged& d) const { return absl::StrCat("job ", d.job.value); }
  std::string operator()(const FindRecords& d) const {
    return absl::StrCat("find ", d.job.value, " ", d.device_key);
  }
  std::string operator()(const DeadlineEstimate& d) const {
    return absl::StrCat("deadline ", d.job.value, " ", d.late, " ", Instant(d.finish));
  }
  std::string operator()(const TakeSearch& d) const {
    return absl::StrCat("search ", d.job.value, " ", d.task.value, " ", d.from_job.value, " ",
                        d.from_task.value);
  }
};

struct OrderText {
  std::string operator()(const StartStage& d) const {
    return absl::StrCat(
        "start ", d.attempt.value, " ", d.job.value, " ", static_cast<int>(d.kind), " ",
        Maybe(d.task), " ", Maybe(d.fetch), " ", d.slot.worker, "/", d.slot.slot, " [",
        absl::StrJoin(d.candidates, ",",
                      [](std::string* out, CandidateId id) { absl::StrAppend(out, id.value); }),
        "] ", d.count, " ", d.before.value);
  }
  std::string operator()(const FeedProfile& d) const {
    return absl::StrCat("feed ", d.attempt.value, " ", d.job.value, " ", d.candidate.value);
  }
  std::string operator()(const CloseProfile& d) const {
    return absl::StrCat("close ", d.attempt.value);
  }
  std::string operator()(const CancelStage& d) const {
    return absl::StrCat("cancel ", d.attempt.value);
  }
  std::string operator()(const EndFetch& d) const {
    return absl::StrCat("fetched ", d.fetch.value, " ", static_cast<int>(d.fault.kind), " ",
                        d.fault.message);
  }
};

}  // namespace

std::string ToText(const Decisions& decisions) {
  std::string text;
  for (const Change& change : decisions.changes)
    absl::StrAppend(&text, std::visit(ChangeText(), change), "\n");
  for (const Order& order : decisions.orders)
    absl::StrAppend(&text, std::visit(OrderText(), order), "\n");
  return text;
}

uint64_t HashText(std::string_view text, uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace heddle::sim
