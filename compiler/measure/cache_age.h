// Makes what a timed kernel finds in the caches as old as it is in a model.
#pragma once

#include <chrono>
#include <cstdint>

#include "compiler/ir/ir.h"

namespace heddle::internal {

// Whether EvictLines does something on this CPU. Every x86 has such an instruction.
bool CanEvict();
// Writes the memory's lines back and drops them from the caches of all cores. What else the caches hold stays.
void EvictLines(const void* data, int64_t bytes);

// Computes in vector registers until then, without memory; with the widest that the CPU has, whatever the target. Meanwhile whoever shares the caches evicts what they would evict
// during other kernels of a model. It has to be dense vector code: some CPUs run such code at about 0.6 of their speed for the
// next few hundred microseconds after milliseconds without it (seen on a virtual Zen 3; docs/benchmarks.md).
void ComputeUntil(std::chrono::steady_clock::time_point end);

// Whether each element of the output needs, of an input of the same type that is no constant, only the element at the same
// place. A model then writes the output over that input where it can (graph/fusion/memory_plan.h). `program` is naive.
bool WritesOverInput(const ir::Program& program);

}  // namespace heddle::internal
