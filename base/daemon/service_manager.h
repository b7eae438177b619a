// What a daemon tells the service manager that started it (systemd's Type=notify): that it is ready,
// that it is well, that it ends. Where no manager waits for this, nothing is told.
#pragma once

#include <signal.h>

#include <functional>
#include <string_view>

namespace heddle {

// Says that this program is ready, and waits for one of `signals`, which every thread must have
// blocked. Returns its number, after it has said that the program ends.
//
// If the manager has a watchdog (WatchdogSec), `live` is called three times in its span, on this thread,
// and the manager hears "well" each time it is true. It should tell whether the thread that does the
// program's work goes on, so that the manager restarts a program that hangs.
int ServeUntilSignal(const sigset_t& signals, const std::function<bool()>& live);

// Waits until `turn` returns true, and then returns 0; from then on the manager's watchdog gives the program ten minutes until
// ServeUntilSignal, as it gives for a start. It calls `turn` on this thread, every `poll_ms` milliseconds, and
// feeds the manager's watchdog each time. Before it waits, it tells the manager that the program is ready. If one of `signals`
// comes first, it tells the manager that the program ends, and returns the signal's number.
int StandByForTurn(const sigset_t& signals, int poll_ms, const std::function<bool()>& turn);

// Sends lines of `NAME=VALUE` to the manager. False if there is none, or if it cannot be reached.
bool TellServiceManager(const char* socket, std::string_view lines);

}  // namespace heddle
