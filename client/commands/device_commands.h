// heddle device lease|drain|resume: keeps jobs off slots for a person, for a limited time.
#pragma once

#include <string>

#include "client/commands/commands.h"

namespace heddle::client {

struct DeviceOptions {
  // Address of the tracker: HOST:PORT, or unix:PATH on this machine, or several, separated by commas. Over TLS, the command shows the
  // certificate in --tls-dir, which must be an operator's.
  std::string tracker;
  std::string place;  // "WORKER/SLOT"; drain and resume also take "WORKER", for all its slots
  std::string duration = "30m";  // of a lease: 1s to 1h
  std::string wait;  // for running stages to end; empty: 10m, or `duration` if that is less
};

// Holds one slot, which must be free, and prints the lease. It ends by itself after `duration`.
int LeaseDevice(const GlobalOptions& global, const DeviceOptions& options);
// Holds the slots one after the other, each when its stage has ended. A slot that shares cores with a held
// one needs no lease. Slots that are not free after `wait` are named, and those held so far stay held.
int DrainDevice(const GlobalOptions& global, const DeviceOptions& options);
// Ends the leases of people. Those of schedulers stay.
int ResumeDevice(const GlobalOptions& global, const DeviceOptions& options);

}  // namespace heddle::client
