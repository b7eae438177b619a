// The pages /compare and /whatif.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "proto/access/identity.h"
#include "scheduler/page/source.h"
#include "views/html.h"

namespace heddle::scheduler {

// Two jobs (`a`, `b`) or two devices (`device_a`, `device_b`), from the row behind the task `after` on;
// with less than two of a kind, a page that asks which. NotFound: a job that the caller may not see.
absl::StatusOr<views::Page> ComparePage(PageSource* source, const Identity& caller,
                                        const std::map<std::string, std::string>& query);
absl::StatusOr<views::Page> WhatIfPage(PageSource* source, const Identity& caller);

}  // namespace heddle::scheduler
