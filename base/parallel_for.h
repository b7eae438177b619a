// Divides independent calls among threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace heddle {

// Calls f(0), .., f(n - 1), each once, on at most `threads` threads; the caller is one of them. Returns when all
// calls have returned. `f` is called by several threads at once and in no fixed order.
template <typename F>
void ParallelFor(int n, int threads, const F& f) {
  std::atomic<int> next = 0;
  const auto work = [&] {
    for (int i = next++; i < n; i = next++) f(i);
  };
  std::vector<std::jthread> others;
  for (int t = 1; t < std::min(threads, n); ++t) others.emplace_back(work);
  work();
}

}  // namespace heddle
