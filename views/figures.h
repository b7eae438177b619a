// Words for states, and what follows from a job as users see it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/types/span.h"
#include "proto/jobs.pb.h"

namespace heddle {

std::string StateWord(v1::JobState state);       // "tuning", "done", ..
std::string StageWord(v1::StageKind kind);       // "import", "profile", ..; "?" for none
std::string SlotStateWord(v1::SlotState state);  // "free", "held", ..

// Sum over the tasks of weight x best; 0 while a task has no measurement.
double EstimatedModelNs(const v1::Job& job, bool untuned);
// The best known time of one inference; 0: unknown.
double ModelNs(const v1::Job& job);
// The time and gain of the whole model, in one line: as compared in turns if that is done, otherwise the
// sums of its tasks, each timed by itself; empty while a task has no time.
std::string ModelGain(const v1::Job& job);
// How many times as fast as with its default schedule the task runs: as compared inside the model if
// that is done, otherwise by the times of its records; 0: unknown.
double TaskGain(const v1::TaskStatus& task);

// Nanoseconds that stages of each kind held slots. Of stages that still run, the time until `now_unix_ns`.
std::map<v1::StageKind, double> HeldNs(absl::Span<const v1::StageSpan> spans, int64_t now_unix_ns);

}  // namespace heddle
