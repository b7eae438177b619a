// What bounds a kernel: its arithmetic, and the bytes that it moves. The model is the roofline (Williams, Waterman and
// Patterson 2009), with one bandwidth for each level of the memory.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/graph/fusion/fuse.h"
#include "compiler/machine/target_info.h"

namespace heddle::plan {

// Bytes that a call touches of each input, in the order of Group::inputs. An operator that is injective reads at most
// one element of an operand for each element of its result: a gather reads few rows of a large table. Walks through trees read
// a cache line of a table at each place that they look up (graph::OpDef::looked_up). Other operators read everything.
std::vector<int64_t> TouchedBytes(const graph::FusedGraph& fused, const graph::Group& group);

// What one call of a kernel does.
struct KernelWork {
  double flops = 0;
  double constant_bytes = 0;
  double activation_bytes = 0;  // other inputs, views of constants among them, and outputs
};
KernelWork WorkOf(const graph::FusedGraph& fused, const graph::Group& group,
                  const std::vector<int64_t>& touched);

class Roofline {
 public:
  // The figures of target.graph_speed, which are those of one core. Several threads are as many times as fast, at kernels that
  // are worth them (machine/worth_threads.h): a default schedule leaves the others on one thread.
  explicit Roofline(const machine::TargetInfo& target);

  // Bytes that the kernel reads in a nanosecond if `distance` bytes were touched since they were used last, they themselves included: the
  // reuse distance (Mattson, Gecsei, Slutz and Traiger 1970). They come from the smallest cache that holds so much.
  double RateAt(const KernelWork& work, double distance) const;
  // The same when a kernel is timed alone, with cold constants (machine/cold_timing.h).
  double ColdRate(const KernelWork& work) const;
  // The longer of arithmetic at the peak and of moving all operands. Constants take `constants_ns`. Activations are
  // warm: the kernel before has just written or read them.
  double Ns(const KernelWork& work, double constants_ns) const;
  double ColdNs(const KernelWork& work) const {
    return Ns(work, work.constant_bytes / ColdRate(work));
  }

  // Size of the largest cache.
  double CacheBytes() const { return l2_bytes_ > l3_bytes_ ? l2_bytes_ : l3_bytes_; }

 private:
  double ThreadsOf(const KernelWork& work) const;

  machine::TargetInfo target_;
  double l2_bytes_, l3_bytes_;
};

}  // namespace heddle::plan
