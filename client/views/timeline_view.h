// Draws the stages of one or more jobs over time: a row per slot, a letter per job.
#pragma once

#include <string>
#include <vector>

#include "proto/jobs.pb.h"

namespace heddle::client {

// `spans` of all jobs together; `width` columns for the time axis. A cell shows the job that held
// the slot for most of the cell's time, or '.' where it was idle.
std::string DrawTimeline(const std::vector<v1::StageSpan>& spans, int width);

// A table by kind of stage: how often it ran, how long it held slots, its share of all slot time,
// and its time relative to profile, which only build should come near. Empty if no stage has ended.
std::string StageTimes(const std::vector<v1::StageSpan>& spans, bool plain);

// Candidates of one job profiled per second, from its first stage of a round to its last. Empty
// while there are none.
std::string Throughput(const std::vector<v1::StageSpan>& spans);

// One line per stage in order of its start: offset, duration, job, stage, task, slot, outcome.
std::string ListTimeline(const std::vector<v1::StageSpan>& spans, bool plain);

}  // namespace heddle::client
