// The time of an inference by kernel, and how far each kernel is from the limits of the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/views/terminal.h"
#include "compiler/runtime/executor.h"

namespace heddle::client {

std::string CpuName();  // "AMD EPYC .."

// The limits of all threads together.
struct MachineLimits {
  double gflops = 0;  // single-precision multiply-adds; 0: unknown
  double gbps = 0;    // reading memory, 10^9 bytes a second; 0: unknown
};

// The calls of one kernel in one inference.
struct KernelProfile {
  std::string task, label, schedule;
  bool winograd = false;
  int uses = 0;
  // Totals over all uses.
  double ns = 0;
  double flops = 0;  // of the direct algorithm
  // Total size of the buffers of its calls (inputs, constants, outputs), less the parts that the
  // kernel does not touch.
  int64_t bytes = 0;
};

// The roofline (Williams, Waterman and Patterson, 2009): a kernel takes at least the time of its
// operations at the peak and the time of its bytes at the bandwidth, whichever is longer.
struct Roofline {
  bool memory = false;  // true: bound by memory; false: by arithmetic
  // That least time over the time taken; 0 if a limit is unknown. It exceeds 1 if data came from a
  // nearer cache than the bandwidth's, or if Winograd needs fewer operations than are counted.
  double share = 0;
};
Roofline RooflineOf(const KernelProfile& kernel, const MachineLimits& limits);

// call_ns: one time for each call of the block (Manifest::CallsOf). Most time first.
std::vector<KernelProfile> ProfileByKernel(const runtime::Manifest& manifest,
                                           const std::vector<double>& call_ns, size_t block = 0);

// Memory that one inference touches: parameters, activations, inputs and outputs.
int64_t FootprintBytes(const runtime::Manifest& manifest, size_t block = 0);

// Measures the machine and a block of the module for about two seconds, with at least `rounds` inferences, and
// prints a table or one JSON object.
int PrintProfile(runtime::Executor& executor, size_t block, int threads, int rounds,
                 const OutputOptions& output);

}  // namespace heddle::client
