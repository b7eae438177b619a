// The time of an inference by kernel, and how far each kernel is from the limits of the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/views/terminal.h"
#include "compiler/runtime/executor.h"
#include "views/roofline.h"

namespace heddle::client {

std::string CpuName();  // "AMD EPYC .."

using MachineLimits = views::Limits;  // of all threads together
using views::Roofline;

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

// Of all uses of the kernel.
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
