// What follows from a job's state alone.
#pragma once

#include "proto/jobs.pb.h"

namespace heddle {

// The job is over, and its state never changes again.
inline bool IsFinal(v1::JobState state) {
  return state == v1::JOB_DONE || state == v1::JOB_FAILED || state == v1::JOB_CANCELLED;
}

}  // namespace heddle
