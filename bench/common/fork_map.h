// Work that may crash or hang, done for many items in disposable processes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace heddle::bench {

// Calls work(0) .. work(n - 1), each in a forked child, and gives what they return, in order. There
// is one child at a time for each element of `lanes`, confined to its cores (empty: not confined),
// and item i is done by lane i % lanes.size(). A child does one item after the other and keeps what
// `work` has captured in between; when it dies or needs longer than `limit` for an item, that item
// is an Aborted or DeadlineExceeded and a new child goes on with the next. So does a new one after
// an item for which `work` returns Aborted: its process is of no more use (a GPU's is not after
// some errors). What is not done at `end` is given up: Cancelled.
std::vector<absl::StatusOr<std::string>> ForkMap(
    int n, const std::vector<std::vector<int>>& lanes, absl::Duration limit,
    const std::function<absl::StatusOr<std::string>(int)>& work,
    absl::Time end = absl::InfiniteFuture());

}  // namespace heddle::bench
