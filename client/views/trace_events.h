// The stages of jobs as events of the Trace Event Format, which ui.perfetto.dev and chrome://tracing
// show on a time axis.
// (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU)
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "proto/jobs.pb.h"

namespace heddle::client {

// An array for the member `traceEvents`. Each worker is a process and each of its slots a thread of
// it, with a slice for each stage; the process "jobs" has a thread with one slice for each job. Times
// are microseconds since the first of these. What goes on lasts until `now_unix_ns` and has the argument
// `running`.
nlohmann::json TraceEvents(const std::vector<std::pair<v1::Job, v1::Timeline>>& jobs,
                           int64_t now_unix_ns);

}  // namespace heddle::client
