// Waiting in an extension module so that Ctrl-C works: Python runs the handlers of signals only between
// its own instructions, so a wait has to look for them.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/status.h"

namespace heddle::python {

// How often a wait looks for signals.
inline constexpr auto kSignalPoll = std::chrono::milliseconds(50);

// Waits, without the interpreter's lock, until `ready()` holds. `changed` is notified, under the mutex, when
// it may. Throws what a signal's handler raises, as KeyboardInterrupt; this takes twice kSignalPoll at most.
template <typename Ready>
void WaitUntil(std::mutex& mutex, std::condition_variable& changed, Ready ready) {
  while (true) {
    {
      pybind11::gil_scoped_release unlocked;
      std::unique_lock lock(mutex);
      if (changed.wait_for(lock, kSignalPoll, ready)) return;
    }
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
  }
}

// Runs `call` on a thread of its own, and returns what it returns: a status, or a value or a status. After a
// signal, the call goes on by itself until its own time limit, and its result is dropped; so it must own
// all that it uses, and none of that may be Python's.
template <typename Result>
Result RunInterruptibly(std::function<Result()> call) {
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Result> result;
  };
  auto state = std::make_shared<State>();
  std::thread([state, call = std::move(call)] {
    std::optional<Result> result;
    try {
      result.emplace(call());
    } catch (const std::exception& error) {
      result.emplace(absl::InternalError(error.what()));
    }
    std::lock_guard lock(state->mutex);
    state->result = std::move(result);
    state->changed.notify_one();
  }).detach();
  WaitUntil(state->mutex, state->changed, [&] { return state->result.has_value(); });
  return *std::move(state->result);
}

}  // namespace heddle::python
