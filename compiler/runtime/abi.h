/* The calling convention between generated kernels and the runtime. Plain C. */
#ifndef HEDDLE_RUNTIME_ABI_H_
#define HEDDLE_RUNTIME_ABI_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The body of a parallel loop: runs iterations [begin, end). Concurrent calls have different values
 * of `worker`, all below num_workers. */
typedef void (*heddle_parallel_body)(void* closure, int64_t begin, int64_t end, int32_t worker);

/* What a kernel needs from its host. Kernels have no undefined symbols but those of libm, memcpy,
 * memmove and memset. */
typedef struct heddle_host {
  int32_t num_workers; /* concurrency of parallel_for, >= 1. If it exceeds the target's -threads,
                          loops whose iterations need their own memory run on one worker. */
  /* Runs body over [0, n), cut into ranges that the workers take in turn. Returns when all ranges
   * are done. */
  void (*parallel_for)(const struct heddle_host* host, int64_t n, heddle_parallel_body body,
                       void* closure);
  void* context; /* for the host's use */
} heddle_host;

/* buffers: inputs, then outputs, each 64-byte aligned. workspace: KernelInfo.workspace_bytes,
 * 64-byte aligned; concurrent calls must not share it. Kernels never fail. */
typedef void (*heddle_kernel)(void* const* buffers, void* workspace, const heddle_host* host);

#ifdef __cplusplus
}
#endif
#endif /* HEDDLE_RUNTIME_ABI_H_ */
