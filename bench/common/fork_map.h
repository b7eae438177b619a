// Runs work that may crash or hang on many items, in disposable processes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace heddle::bench {

// Calls work(0) .. work(n - 1) in forked children and returns the results in order. One child at a
// time runs for each element of `core_sets`, confined to those cores (empty: not confined), and
// does the items i with i % core_sets.size() equal to its index, one after the other, keeping the
// state that `work` captures. If it dies or exceeds `limit` on an item, the item is Aborted or
// DeadlineExceeded, and a new child continues with the next one. The same happens if `work` returns
// Aborted, which says that its process is unusable, as after some GPU errors. Items not done at
// `end` are Cancelled.
std::vector<absl::StatusOr<std::string>> ForkMap(
    int n, const std::vector<std::vector<int>>& core_sets, absl::Duration limit,
    const std::function<absl::StatusOr<std::string>(int)>& work,
    absl::Time end = absl::InfiniteFuture());

}  // namespace heddle::bench
