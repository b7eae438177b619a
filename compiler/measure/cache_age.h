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

// Keeps the vector units of this core busy until `end`, without touching memory. It uses the widest registers that the CPU has,
// whatever the target. Meanwhile other users of the shared caches evict what they would evict during other kernels of a model.
// The vector units must be busy: some CPUs run vector code at about 0.6 of its speed for the next few hundred microseconds
// after milliseconds without such code (seen on a virtual Zen 3; docs/benchmarks.md).
void ComputeUntil(std::chrono::steady_clock::time_point end);

// Whether each element of the output needs, of an input of the same type that is no constant, only the element at the same
// place. A model then writes the output over that input where it can (graph/fusion/memory_plan.h). `program` is naive.
bool WritesOverInput(const ir::Program& program);

}  // namespace heddle::internal
