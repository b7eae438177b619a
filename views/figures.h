// Words for states, and what follows from a job as users see it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/types/span.h"
#include "proto/jobs.pb.h"

namespace heddle {

std::string StateWord(v1::JobState state);  // "tuning", "done", ..
// The state of a job in a word (StateWord), but for people, who take a job that no device or worker can run for one that runs: that is
// "waiting".
std::string ShownState(const v1::Job& job);
std::string StageWord(v1::StageKind kind);       // "import", "profile", ..; "?" for none
std::string SlotStateWord(v1::SlotState state);  // "free", "held", ..

// The time of the kernel that the module has: of the best one, or of the default one that the task keeps; 0: unknown.
double KernelNs(const v1::TaskStatus& task);
// Sum over the tasks of weight x KernelNs, or of the default kernels; 0 while a task has no measurement.
double EstimatedModelNs(const v1::Job& job, bool untuned);
// The best known time of one inference; 0: unknown.
double ModelNs(const v1::Job& job);
// The time and gain of the whole model, in one line: as compared in turns if that is done, otherwise the
// sums of its tasks, each timed by itself; empty while a task has no time.
std::string ModelGain(const v1::Job& job);
// Whether the compared module has default kernels only, since no tuned one was surely faster. Then there is no gain to measure.
bool KeepsAllDefaults(const v1::Job& job);
// Whether ModelNs is the sum of the tasks' best times, and not the time of the whole model.
bool IsSum(const v1::Job& job);
// ModelNs as text; a sum of the tasks' times is marked as such, since it is no time of the model.
std::string ModelTime(const v1::Job& job);
// What the mark "(sum)" of ModelTime means.
inline constexpr const char* kSumMeans =
    "(sum): the tasks' best times added up, each kernel measured alone with cold caches; the whole "
    "model is timed at the end of a job, unless it asks for no comparison or no device is free";
// Why the best times of the tasks and the time of the whole model do not agree, in one line. Empty until both are known, and where the
// module has default kernels only, since its time is not one of the tasks' best kernels.
std::string WhyTimesDiffer(const v1::Job& job);
// The job's reason without the leading word for its state: "cancelled: no time" becomes "no time". Empty if the reason is that word alone.
std::string ReasonBeyondState(const v1::Job& job);
// How many times as fast as with its default schedule the task runs: as compared inside the model if
// that is done, otherwise by the times of its records; 1 where it keeps the default kernel; 0: unknown.
double TaskGain(const v1::TaskStatus& task);

// The job that a record was measured for. Each service numbers its own jobs, so the job of an imported record is none of those here:
// "imported, j2 there".
std::string MadeFor(const v1::Record& record);

// Nanoseconds that stages of each kind held slots. Of stages that still run, the time until `now_unix_ns`.
std::map<v1::StageKind, double> HeldNs(absl::Span<const v1::StageSpan> spans, int64_t now_unix_ns);

}  // namespace heddle
