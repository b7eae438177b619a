// Runs the scheduler: wires stores, scheduler loop and gRPC server together.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/daemon/log.h"
#include "scheduler/core/policy.h"
#include "scheduler/page/source.h"

namespace heddle::scheduler {

struct ServerOptions {
  std::string listen;  // empty: SchedulerSocket(data_directory)
  // Where clients reach this scheduler, told by one that stands by; empty: where it listens.
  std::string advertise;
  // While another scheduler leads, wait until it is gone (leadership.h) and refuse calls, rather than end.
  // Then `listen` is this scheduler's own.
  bool standby = false;
  std::string data_directory;
  std::string store;  // postgresql://USER@HOST/DATABASE; empty: an SQLite file in data_directory
  std::string tracker_address = "127.0.0.1:9191";  // or several, separated by commas
  std::string port_file;                           // empty: none
  std::string binary_directory;                    // for embedded
  bool embedded = false;
  bool unguarded = false;            // the embedded worker trusts every measurement
  bool require_confinement = false;  // embedded: refuse a host that cannot confine stages
  LogOptions log;                    // of the daemons that `embedded` starts
  std::string http;  // HOST:PORT of this machine for the page, /metrics and health; empty: none
  std::string otlp;  // http://HOST:PORT of a collector of OpenTelemetry; empty: none
  std::string policy = kDefaultPolicy;  // a name for MakePolicy
  long long max_model_mib = 16384;
  int64_t max_jobs_a_day = 20'000;  // ServiceLimits.max_jobs_a_day
  int64_t built_code_mib = 1024;    // DispatcherOptions.max_artifact_bytes
  int lease_s = 60;                 // how long a slot stays held when the scheduler is gone
  std::string tls_directory;        // certificates, as `heddle-ca issue` makes them; empty: none
  std::string token_file;           // of tokens.h; empty: DATA/tokens
  // Finished jobs that ended so many days ago are collected (keep_rule.h), except the `keep_jobs` that
  // ended last. 0 days: none is.
  int keep_days = 0;
  int64_t keep_jobs = 1000;
  WhatIfSimulator what_if;  // for the page; null: it cannot simulate
};

// Runs until SIGINT or SIGTERM. Prints "listening on HOST:PORT" to stdout when it takes calls, and before
// that "page at http://HOST:PORT/" if there is one. A scheduler that stands by prints "standing by on
// HOST:PORT" first. Ends the process, with a message, when it no longer leads.
// InvalidArgument for what the user can change (address, directory in use), another code for all
// else.
absl::Status RunServer(const ServerOptions& options);

}  // namespace heddle::scheduler
