// The GPUs of this machine, asked in processes of their own: a driver may hang or crash, and keeps
// threads in the process that has started it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/device_kind.h"
#include "worker/confine/mechanisms.h"

namespace heddle::worker {

struct Gpu {
  std::string name;  // "cuda:0"
  runtime::DeviceInfo info;
};

// As the first command line argument, makes the program print its GPUs (ChildProcess appends more).
inline constexpr char kGpusFlag[] = "--list-gpus";
// That program's main. Returns the exit status. A GPU that does not answer is left out, with one line on
// stderr; the status is 1 if no other is left.
int GpusChildMain(int argc, char** argv);

// All GPUs of this machine, which `command` prints: a program and kGpusFlag. Empty: it has none, or no
// driver. Unavailable: the driver does not work, or does not answer within ten seconds.
absl::StatusOr<std::vector<Gpu>> FindGpus(const std::vector<std::string>& command);

struct GpuTrialOptions {
  std::vector<std::string> stage_command;  // starts the child of a stage (stage_child.h)
  confine::Confinement confinement;
  std::string folder;  // where the stage's own folder is made
};

// Builds a small kernel here and runs it on the GPU in a stage that is confined as those of jobs are, at
// most a minute. Returns one line: what it took. Errors, of one line: no compiler, or whatever kept the
// stage from running it. SIGPIPE must be ignored.
absl::StatusOr<std::string> TryGpu(const Gpu& gpu, const GpuTrialOptions& options);

}  // namespace heddle::worker
