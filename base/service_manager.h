// What a daemon tells the service manager that started it (systemd's Type=notify): that it is ready,
// that it is well, that it ends. Where no manager waits for this, nothing is told.
#pragma once

#include <signal.h>

#include <cstdint>
#include <functional>
#include <string_view>

namespace heddle {

// Says that this program is ready, and waits for one of `signals`, which every thread must have
// blocked. Returns its number, after it has said that the program ends.
//
// If the manager has a watchdog (WatchdogSec), `progress` is called three times in its span, on this
// thread, and the manager hears "well" each time the number has changed. The number should count what
// the thread that does the program's work does, so that the manager restarts a program that hangs.
int ServeUntilSignal(const sigset_t& signals, const std::function<int64_t()>& progress);

// Sends lines of `NAME=VALUE` to the manager. False if there is none, or if it cannot be reached.
bool TellServiceManager(const char* socket, std::string_view lines);

}  // namespace heddle
