#include "views/figures.h"

#include <fmt/format.h>

#include <algorithm>

#include "views/format.h"

namespace heddle {

std::string StateWord(v1::JobState state) {
  switch (state) {
    case v1::JOB_IMPORTING:
      return "importing";
    case v1::JOB_TUNING:
      return "tuning";
    case v1::JOB_PLANNING:
      return "planning";
    case v1::JOB_COMPILING:
      return "compiling";
    case v1::JOB_COMPARING:
      return "comparing";
    case v1::JOB_DONE:
      return "done";
    case v1::JOB_FAILED:
      return "failed";
    case v1::JOB_CANCELLED:
      return "cancelled";
    case v1::JOB_PAUSED:
      return "paused";
    default:
      return "unknown";
  }
}

std::string ShownState(const v1::Job& job) {
  const std::string& reason = job.reason();
  const bool active = job.state() == v1::JOB_IMPORTING || job.state() == v1::JOB_TUNING ||
                      job.state() == v1::JOB_PLANNING || job.state() == v1::JOB_COMPILING ||
                      job.state() == v1::JOB_COMPARING;
  // As scheduler/ledger/why_waiting.h says it, for the whole job or for one of its stages.
  for (const char* missing : {"no device ", "no worker ", "waiting: no "}) {
    if (active && (reason.starts_with(missing) ||
                   reason.find(std::string(": ") + missing) != std::string::npos))
      return "waiting";
  }
  return StateWord(job.state());
}

double KernelNs(const v1::TaskStatus& task) {
  return task.keeps_default() ? task.untuned_ns() : task.best_ns();
}

double EstimatedModelNs(const v1::Job& job, bool untuned) {
  double sum = 0;
  for (const v1::TaskStatus& task : job.tasks()) {
    if (task.info().weight() == 0) continue;  // of other plans
    const double ns = untuned ? task.untuned_ns() : KernelNs(task);
    if (ns <= 0) return 0;
    sum += ns * task.info().weight();
  }
  return sum;
}

double ModelNs(const v1::Job& job) {
  const v1::CompareResult& result = job.comparison().result();
  if (!job.comparison().has_result()) return EstimatedModelNs(job, false);
  return job.comparison().module_is_default() ? result.default_ns() : result.ns();
}

std::string ModelGain(const v1::Job& job) {
  if (KeepsAllDefaults(job))
    return fmt::format("model {} with the default kernels; no tuned one was surely faster",
                       FormatNs(ModelNs(job)));
  if (job.comparison().has_result()) {
    const v1::Gain& gain = job.comparison().result().gain();
    const std::string measured = fmt::format("{:.2f}x ({:.3f} to {:.3f}, {} rounds in turns)",
                                             gain.ratio(), gain.low(), gain.high(), gain.rounds());
    if (job.comparison().module_is_default())
      return fmt::format("model {} with the default schedules; tuned it was {}",
                         FormatNs(ModelNs(job)), measured);
    return fmt::format("model {}, {} over the default schedules", FormatNs(ModelNs(job)), measured);
  }
  const double tuned = EstimatedModelNs(job, false), untuned = EstimatedModelNs(job, true);
  if (tuned <= 0) return "";
  std::string text = "tasks add up to " + FormatNs(tuned);
  if (untuned > 0) text += fmt::format(" ({} over untuned)", FormatRatio(untuned / tuned));
  return text;
}

bool KeepsAllDefaults(const v1::Job& job) {
  const v1::Gain& gain = job.comparison().result().gain();
  return job.comparison().has_result() && gain.ratio() == 1 && gain.low() == gain.high();
}

bool IsSum(const v1::Job& job) { return ModelNs(job) > 0 && !job.comparison().has_result(); }

std::string ModelTime(const v1::Job& job) {
  return FormatNs(ModelNs(job)) + (IsSum(job) ? " (sum)" : "");
}

std::string WhyTimesDiffer(const v1::Job& job) {
  const double sum = EstimatedModelNs(job, false), model = ModelNs(job);
  if (!job.comparison().has_result() || job.comparison().module_is_default() || sum <= 0 ||
      model <= 0)
    return "";
  return fmt::format(
      "best: each kernel alone, with cold caches, in all {}; the whole model took {}",
      FormatNs(sum), FormatNs(model));
}

std::string ReasonBeyondState(const v1::Job& job) {
  const std::string word = StateWord(job.state());
  const std::string& reason = job.reason();
  if (reason == word) return "";
  return reason.starts_with(word + ": ") ? reason.substr(word.size() + 2) : reason;
}

std::string StageWord(v1::StageKind kind) {
  switch (kind) {
    case v1::STAGE_IMPORT:
      return "import";
    case v1::STAGE_PROPOSE:
      return "propose";
    case v1::STAGE_BUILD:
      return "build";
    case v1::STAGE_PROFILE:
      return "profile";
    case v1::STAGE_UPDATE:
      return "update";
    case v1::STAGE_COMPILE:
      return "compile";
    case v1::STAGE_COMPARE:
      return "compare";
    case v1::STAGE_PLAN:
      return "plan";
    default:
      return "?";
  }
}

std::string SlotStateWord(v1::SlotState state) {
  switch (state) {
    case v1::SLOT_FREE:
      return "free";
    case v1::SLOT_HELD:
      return "held";
    case v1::SLOT_BLOCKED:
      return "blocked";
    case v1::SLOT_DRAINING:
      return "draining";
    case v1::SLOT_QUARANTINED:
      return "quarantined";
    default:
      return "unknown";
  }
}

double TaskGain(const v1::TaskStatus& task) {
  if (task.keeps_default()) return 1;
  if (task.has_compared()) return task.compared().gain().ratio();
  return task.best_ns() > 0 && task.untuned_ns() > 0 ? task.untuned_ns() / task.best_ns() : 0;
}

std::string MadeFor(const v1::Record& record) {
  if (record.imported_by().empty()) return record.job();
  return record.job().empty() ? "imported" : fmt::format("imported, {} there", record.job());
}

std::map<v1::StageKind, double> HeldNs(absl::Span<const v1::StageSpan> spans, int64_t now_unix_ns) {
  std::map<v1::StageKind, double> held;
  for (const v1::StageSpan& span : spans) {
    const int64_t end = span.end_unix_ns() != 0 ? span.end_unix_ns() : now_unix_ns;
    held[span.kind()] += static_cast<double>(std::max<int64_t>(0, end - span.start_unix_ns()));
  }
  return held;
}

}  // namespace heddle
