// Draws the stages of one or more jobs over time: a row per slot, a letter per job.
#pragma once

#include <string>
#include <vector>

#include "proto/jobs.pb.h"

namespace heddle::client {

// `spans` of all jobs together; `width` columns for the time axis. A cell shows the job that held
// the slot for most of the cell's time, or '.' where it was idle.
std::string DrawTimeline(const std::vector<v1::StageSpan>& spans, int width);

// What each kind of stage took: how often it ran, how long its slots were held, its share of all,
// and beside profile, which no other stage but build should come near. Empty without a stage that
// ended.
std::string StageTimes(const std::vector<v1::StageSpan>& spans, bool plain);

// How many candidates of one job were profiled a second, from its first stage of a round to its
// last; empty while there are none.
std::string Throughput(const std::vector<v1::StageSpan>& spans);

// One line per stage in order of its start: offset, duration, job, stage, task, slot, outcome.
std::string ListTimeline(const std::vector<v1::StageSpan>& spans, bool plain);

}  // namespace heddle::client
